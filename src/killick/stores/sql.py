"""Read SQL from files: every store has a queries.sql, in blocks with names, and migrations."""

import re
from collections.abc import Callable, Collection
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from killick.journal.codec import decode, to_bytes
from killick.model.sessions import Description
from killick.stores.contract import Listing


def parse(text: str) -> dict[str, str]:
    """Return blocks by name: a line `-- name --` opens one, other comments are left out."""
    blocks: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith("-- ") and line.endswith(" --"):
            current = blocks.setdefault(line[3:-3], [])
        elif not line.startswith("--"):
            current.append(line)
    return {name: "\n".join(lines).strip().rstrip(";") for name, lines in blocks.items()}


class Queries(SimpleNamespace):
    """One attribute for each statement; a misspelt one raises where it is used."""

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"queries.sql has no statement {name!r}")


@cache
def load(package: str) -> Queries:
    """Return the statements of a package's queries.sql."""
    return Queries(**parse(files(package).joinpath("queries.sql").read_text(encoding="utf-8")))


class Migration(NamedTuple):
    number: int
    name: str
    sql: str


def numbered(package: str) -> list[Migration]:
    """Return all migrations of this package, in order; their numbers are 1, 2, 3 …"""
    folder = files(package).joinpath("migrations")
    scripts = sorted(
        (item.name, item.read_text(encoding="utf-8"))
        for item in folder.iterdir()
        if item.name.endswith(".sql")
    )
    all_ = [Migration(int(name[:4]), name.removesuffix(".sql"), sql) for name, sql in scripts]
    assert [migration.number for migration in all_] == list(range(1, len(all_) + 1))
    return all_


def build() -> str:
    try:
        return version("killick")
    except PackageNotFoundError:
        return "source"


def as_bytes(text: str | None) -> bytes | None:
    return None if text is None else to_bytes(text)


def folded(title: str | None) -> bytes | None:
    """Return a title as it is searched: without regard to case."""
    return None if title is None else to_bytes(title.casefold())


def shown(about: bytes) -> Description:
    """Decode a row; a damaged session is listed all the same, and raises when it is opened."""
    try:
        return decode(about, Description)
    except ValueError:
        return Description(extra={"damaged": True})


# -- lists -------------------------------------------------------------------------------------

NEWEST: Final = 500
"""Among so many of the newest sessions a list looks first for what many sessions may have."""

_CONDITIONAL: Final = re.compile(r"^(.*?) */\* (by|if|else) (.+) \*/$")
_FEW: Final = ("fork_of", "parent")
_MANY: Final = ("tag", "model", "project")
_IN_ORDER: Final = ("interrupted", "pinned")


@cache
def chosen(sql: str, by: str, given: frozenset[str]) -> str:
    """Return a statement for one way to look, and for the filters that are given.

    A line that ends in `/* by tag, model */` is for these ways, one that ends in `/* if tag */` for
    this filter, and in `/* else tag */` for this filter where the way is another.
    """
    lines = []
    for line in sql.splitlines():
        conditional = _CONDITIONAL.match(line)
        if conditional is None:
            lines.append(line)
        elif _is_wanted(conditional[2], conditional[3].split(", "), by, given):
            lines.append(conditional[1])
    return "\n".join(lines)


def _is_wanted(when: str, names: Collection[str], by: str, given: Collection[str]) -> bool:
    if when == "by":
        return by in names
    return any(name in given and (when == "if" or name != by) for name in names)


def ways(listing: Listing, given: Collection[str]) -> tuple[str, ...]:
    """Return by what to look for the sessions of a list; the last way finds all of them.

    The index of a tag, a model or a project knows its sessions and not their times, so all of them
    are sorted. Where many of the newest have it, these are enough, and looking at them is quicker.
    """
    for name in (*_FEW, *_MANY):
        if name in given:
            return ("newest", name) if name in _MANY and listing.limit <= NEWEST else (name,)
    for name in _IN_ORDER:
        if getattr(listing, name):
            return (name,)
    return ("time",)


def list_rows(
    sql: str, listing: Listing, bindings: dict[str, Any], fetch: Callable[[str, Any], list[Any]]
) -> list[Any]:
    """Return the rows of a list, by statements that each use an index."""
    given = frozenset(name for name, value in bindings.items() if value is not None)
    rows: list[Any] = []
    for by in ways(listing, given):
        statement = chosen(sql, by, given)
        rows = fetch(statement, {**bindings, "newest": NEWEST})
        if len(rows) == listing.limit:
            break
    return rows


def usage_rows(
    sql: str, bindings: dict[str, Any], fetch: Callable[[str, Any], list[Any]]
) -> list[Any]:
    """Return rows of usage: of one session, of a project, of some days, or all."""
    given = frozenset(name for name, value in bindings.items() if value is not None)
    by = next((name for name in ("session", "project") if name in given), "all")
    if by == "all" and given & {"since_day", "until_day"}:
        by = "day"
    return fetch(chosen(sql, by, given), bindings)


def beyond(prefix: bytes) -> bytes:
    """Return the first bytes after all text that begins with the prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else b"\xff"
