"""The migrations of a store: numbered SQL files in a folder beside its code."""

from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import NamedTuple


class Migration(NamedTuple):
    number: int
    name: str
    sql: str


def numbered(package: str) -> list[Migration]:
    """All migrations of this package, in order; their numbers are 1, 2, 3 …"""
    folder = files(package).joinpath("migrations")
    found = sorted(
        (item.name, item.read_text(encoding="utf-8"))
        for item in folder.iterdir()
        if item.name.endswith(".sql")
    )
    all_ = [Migration(int(name[:4]), name.removesuffix(".sql"), sql) for name, sql in found]
    assert [one.number for one in all_] == list(range(1, len(all_) + 1))
    return all_


def build() -> str:
    try:
        return version("killick")
    except PackageNotFoundError:
        return "source"
