"""Formats of other agents: how to recognize and read their files, and where they lie.

Each format is one module with one `Format` at its end; `importer` lists them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from killick.exchange import read
from killick.exchange.read import BYTES_MAX, SourceDocument, read_document, read_lines
from killick.exchange.records import ProblemRecord, Source

_LOOKED_AT: Final = 100
_LOOKED_AT_BYTES: Final = 4 * 1024 * 1024
_HEAD_BYTES: Final = 4096
_FOLDERS: Final = ("cwd", "directory", "working_dir")


class Peek:
    """A look into a file, for the formats to recognize it; each thing is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def tables(self) -> dict[str, set[str]]:
        """Return the tables of a database, with their columns."""
        return read.shape(self.path)

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Return the first JSON objects of a file with one on each line."""
        if self.tables:
            return []
        records, size = list[dict[str, Any]](), 0
        for line in islice(read_lines(self.path), _LOOKED_AT):
            if line.record is not None:
                records.append(line.record)
            size += len(line.raw)
            if size > _LOOKED_AT_BYTES:
                break
        return records

    @cached_property
    def document(self) -> SourceDocument:
        """Return the JSON document; an empty one for a database or a file that is too large.

        Of one that lists a long conversation, all but that.
        """
        if self.tables:
            return SourceDocument()
        try:
            listed = read.read_listed(self.path, "conversation")
            if listed is not None:
                return SourceDocument(listed.about)
            too_large = self.path.stat().st_size > BYTES_MAX
            return SourceDocument() if too_large else read_document(self.path)
        except OSError:
            return SourceDocument()

    def rows_document(self, begins: re.Pattern[str]) -> SourceDocument:
        """Return the document, read for rows that begin so."""
        if self.tables or self.path.stat().st_size > BYTES_MAX:
            return SourceDocument()
        return read_document(self.path, begins)

    def begins_with(self, *starts: bytes) -> bool:
        """Tell whether the first thing in a file that is no database is one of these."""
        if self.tables:
            return False
        with read.open_file(self.path) as file:
            return file.read(_HEAD_BYTES).lstrip().startswith(starts)

    @cached_property
    def folder(self) -> str | None:
        """Return the folder in which the agent worked, as far as the first lines say."""
        for record in self.records:
            payload, data = record.get("payload"), record.get("data")
            beside = [payload, data, data.get("context") if isinstance(data, dict) else None]
            for level in [record, *(inner for inner in beside if isinstance(inner, dict))]:
                folder = next((level[name] for name in _FOLDERS if name in level), None)
                if isinstance(folder, str):
                    return folder
        return None


class ReadOptions(msgspec.Struct, frozen=True):
    """The time a file was written last, and whether its agent is done with it.

    `quiet` says that nothing was written to it for a moment: what an agent writes at once is there.
    """

    changed_us: int
    settled: bool
    quiet: bool = False

    @property
    def rests(self) -> bool:
        """Tell whether what is there of a message is all that was written of it."""
        return self.settled or self.quiet


def _nowhere(_environment: Mapping[str, str], _home: Path) -> Iterable[Path]:
    return ()


def _unknown(_path: Path) -> int | None:
    return None


def _nobody_says(_path: Path) -> str | None:
    return None


def _all_fit(_peek: Peek) -> tuple[int, int]:
    return 0, 1


def misfits(fits: Callable[[dict[str, Any]], bool]) -> Callable[[Peek], tuple[int, int]]:
    """Return a function that counts the lines that are none of a format, and all lines."""

    def count(peek: Peek) -> tuple[int, int]:
        return sum(not fits(record) for record in peek.records), len(peek.records)

    return count


class Format(msgspec.Struct, frozen=True):
    """A format that sessions come in.

    `claims` looks for a marker that no other format has, `misfits` counts how many of the first
    records do not fit: a file most of which is something else is refused whole.
    `read` gives its sessions, and what is bad in none of them. `unit` is what a file is read as:
    the same path for files that hold one session together.
    `places` are the folders in which the agent keeps its sessions. `newest_us` is the time of the
    last thing that a file says, where it says times. `commands` are the names of its program.
    `works_in` is the folder that the place of a file tells, where no line of it does.
    """

    name: str
    claims: Callable[[Peek], bool]
    read: Callable[[Path, ReadOptions], Iterable[Source | ProblemRecord]]
    unit: Callable[[Path], Path] = lambda path: path
    places: Callable[[Mapping[str, str], Path], Iterable[Path]] = _nowhere
    newest_us: Callable[[Path], int | None] = _unknown
    misfits: Callable[[Peek], tuple[int, int]] = _all_fit
    commands: tuple[str, ...] = ()
    works_in: Callable[[Path], str | None] = _nobody_says


def chosen(environment: Mapping[str, str], name: str, otherwise: Path) -> Path:
    """Return the folder that a variable of the environment names, or the default."""
    return Path(environment.get(name) or otherwise)
