"""Read SQL from files: every store has a queries.sql, in blocks with names, and migrations."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from types import SimpleNamespace
from typing import NamedTuple

from killick.journal.codec import decode, to_bytes
from killick.model.sessions import Description


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
