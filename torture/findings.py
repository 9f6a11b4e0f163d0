"""What the campaigns have found over time, as it is kept in `findings.toml`."""

import datetime
import tomllib
from pathlib import Path

import msgspec


class Finding(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One bug: what it was, who found it, and what would notice it now."""

    name: str
    campaign: str
    since: datetime.date
    what: str
    tests: list[str] = []
    seeds: list[int] = []
    """Of its campaign; run again by CI."""
    museum: str | None = None


def load() -> list[Finding]:
    text = Path(__file__).with_name("findings.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text)["finding"], list[Finding])
