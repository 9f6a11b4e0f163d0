"""A public name that goes, or is called in another way, has a line in the CHANGELOG."""

import re

import pytest

from tests.docs.pages import ROOT
from tests.tidy import api


def unreleased() -> str:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return re.split(r"^## ", text, flags=re.MULTILINE)[1]


def unannounced(before: dict[str, str], now: dict[str, str], news: str) -> list[str]:
    """Return the names that went or changed without being named in the news."""
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", news))))
    changed = [name for name, call in before.items() if now.get(name) != call]
    return [name for name in changed if name.rpartition(".")[2] not in words]


def test_no_public_name_changes_without_a_word() -> None:
    """Write a line under "Unreleased"; at a release `python -m tests.tidy.api` begins anew."""
    assert unannounced(api.read(), api.lines(), unreleased()) == []


@pytest.mark.parametrize(
    ("now", "news", "found"),
    [
        ({}, "", ["killick.Store.search"]),
        ({"killick.Store.search": "(self)"}, "`Store.close` is gone.", ["killick.Store.search"]),
        ({"killick.Store.search": "(self)"}, "`Store.search` takes nothing.", []),
        ({"killick.Store.search": "(self, words)", "killick.New": "()"}, "", []),
    ],
)
def test_a_change_is_seen(now: dict[str, str], news: str, found: list[str]) -> None:
    assert unannounced({"killick.Store.search": "(self, words)"}, now, news) == found
