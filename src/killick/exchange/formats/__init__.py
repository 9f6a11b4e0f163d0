"""What a format is: how its files are told, how they are read, and where its agent keeps them.

Each format is one module with one `Format` at its end; `finding` lists them.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from killick.exchange import read
from killick.exchange.read import BYTES_MAX, SourceDocument, read_document, read_lines
from killick.exchange.records import ProblemRecord, Source

_LOOKED_AT: Final = 20


class Peek:
    """What is in a file, as far as somebody asks; each look is taken once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def tables(self) -> dict[str, set[str]]:
        """The tables of a database, with their columns."""
        return read.shape(self.path)

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """The first JSON objects in it, one on each line."""
        if self.tables:
            return []
        lines = islice(read_lines(self.path), _LOOKED_AT)
        return [line.record for line in lines if line.record is not None]

    @cached_property
    def document(self) -> SourceDocument:
        """The one JSON value that it is; nothing where it is a database, or far too long."""
        if self.tables or self.path.stat().st_size > BYTES_MAX:
            return SourceDocument()
        try:
            return read_document(self.path)
        except OSError:
            return SourceDocument()


class Reading(msgspec.Struct, frozen=True):
    """How a file is to be read: when it was written last, and whether nobody writes any more."""

    changed_us: int
    settled: bool


def _nowhere(_environment: Mapping[str, str], _home: Path) -> Iterable[Path]:
    return ()


def _unknown(_path: Path) -> int | None:
    return None


class Format(msgspec.Struct, frozen=True):
    """A format that sessions come in.

    `read` gives its sessions, and what is bad in none of them. `unit` is what a file is read as:
    the same path for files that hold one session together.
    `places` are the folders in which the agent keeps its sessions. `newest_us` is the time of the
    last thing that a file says, where it says times.
    """

    name: str
    claims: Callable[[Peek], bool]
    read: Callable[[Path, Reading], Iterable[Source | ProblemRecord]]
    unit: Callable[[Path], Path] = lambda path: path
    places: Callable[[Mapping[str, str], Path], Iterable[Path]] = _nowhere
    newest_us: Callable[[Path], int | None] = _unknown


def chosen(environment: Mapping[str, str], name: str, otherwise: Path) -> Path:
    """A folder that a variable of the environment may name."""
    return Path(environment.get(name) or otherwise)
