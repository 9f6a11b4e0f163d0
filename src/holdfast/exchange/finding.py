"""Which files hold sessions, and of which agent: told by what is in them, never by their names."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from holdfast.exchange import claude_code, codex, goose, message_lists, own
from holdfast.exchange.importing import Source, import_source
from holdfast.exchange.lines import read_lines
from holdfast.exchange.report import Place, Report
from holdfast.session.sources import Clock, system_clock
from holdfast.session.store import Store

SETTLED_SECONDS: Final = 600
"""Who has not written to a file for so long does not write to it any more."""

_LOOKED_AT: Final = 20
_SUFFIXES: Final = {".jsonl", ".json", ".db"}

Reader = Callable[[Path, int, bool], Iterable[Source]]


def _goose(path: Path, *, settled: bool) -> Iterable[Source]:
    if goose.is_goose_database(path):
        return goose.goose_database(path, settled=settled)
    return [goose.goose_file(path, settled=settled)]


READERS: Final[dict[str, Reader]] = {
    claude_code.NAME: lambda path, _, settled: claude_code.claude_code(path, settled=settled),
    codex.NAME: lambda path, _, settled: [codex.codex(path, settled=settled)],
    goose.NAME: lambda path, _, settled: _goose(path, settled=settled),
    "messages": lambda path, at_us, settled: [
        message_lists.message_list(path, at_us=at_us, settled=settled)
    ],
}
"""Every foreign format, and what reads it."""

FORMATS: Final = (own.NAME, *READERS)


class Found(msgspec.Struct, frozen=True):
    """A file that holds sessions, when it was last written to, and in which format it is."""

    path: Path
    format: str
    changed_us: int


def import_paths(
    store: Store,
    paths: Iterable[Path],
    *,
    only: str | None = None,
    since_us: int | None = None,
    dry_run: bool = False,
    clock: Clock = system_clock,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Bring in every session that lies in these files and folders.

    `only` names the one format to take, `since_us` leaves files alone that were not changed since.
    If interrupted: whole turns are there; importing again goes on.
    """
    report = Report()
    found = [
        one
        for path in paths
        for one in find(path, report)
        if only in (None, one.format) and (since_us is None or one.changed_us >= since_us)
    ]
    known = set(store.session_ids())
    for number, one in enumerate(found, start=1):
        _import(store, one, report, known, clock=clock, dry_run=dry_run)
        if progress is not None:
            progress(number, len(found))
    return report


def _import(
    store: Store, found: Found, report: Report, known: set[str], *, clock: Clock, dry_run: bool
) -> None:
    settled = clock() - found.changed_us > SETTLED_SECONDS * 1_000_000
    try:
        if found.format == own.NAME:
            own.import_lines(store, found.path, report, dry_run=dry_run, known=known)
            return
        for source in READERS[found.format](found.path, found.changed_us, settled):
            import_source(store, source, report, clock=clock, dry_run=dry_run, known=known)
    except OSError as error:
        report.skip(Place(str(found.path)), f"it cannot be read: {error.strerror or error}")


def find(path: Path, report: Report) -> Iterator[Found]:
    """The files with sessions; a file that was named and holds none is reported."""
    if path.is_dir():
        for file in _files(path):
            yield from _look(file, None)
        return
    yield from _look(path, report)


def _files(folder: Path) -> Iterator[Path]:
    for name, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(name) / file for file in sorted(files) if Path(file).suffix in _SUFFIXES)


def _look(path: Path, report: Report | None) -> Iterator[Found]:
    try:
        format_ = detect(path)
        changed = _changed_us(path)
    except OSError as error:
        if report is not None:
            report.skip(Place(str(path)), f"it cannot be read: {error.strerror or error}")
        return
    if format_ is not None:
        yield Found(path, format_, changed)
    elif report is not None:
        report.skip(Place(str(path)), f"no session in it; known formats: {', '.join(FORMATS)}")


def _changed_us(path: Path) -> int:
    """When it was last written to; what a database was told lies in a log beside it first."""
    log = path.with_name(f"{path.name}-wal")
    files = (path, log) if log.exists() else (path,)
    return max(file.stat().st_mtime_ns for file in files) // 1_000


def detect(path: Path) -> str | None:
    """The format of a file, by the first records in it."""
    if goose.is_goose_database(path):
        return goose.NAME
    records = (line.record for line in islice(read_lines(path), _LOOKED_AT))
    for record in records:
        if record is None:
            continue
        if own.is_own(record):
            return own.NAME
        if codex.is_codex(record):
            return codex.NAME
        if claude_code.is_claude_code(record):
            return claude_code.NAME
        if goose.is_goose(record):
            return goose.NAME
    return _document(path)


def _document(path: Path) -> str | None:
    """The format of a file that is one JSON value."""
    if path.suffix == ".db" or path.stat().st_size > message_lists.BYTES_MAX:
        return None
    if goose.is_goose_document(path):
        return goose.NAME
    rows, _, _ = message_lists.read_document(path)
    known = (isinstance(row, dict) and row.get("role") in message_lists.ROLES for _, row in rows)
    return "messages" if any(known) else None


def usual_places(environment: Mapping[str, str], home: Path) -> list[tuple[str, Path]]:
    """Where the agents of this machine keep their sessions, as far as there are any."""
    claude = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    codex_home = Path(environment.get("CODEX_HOME") or home / ".codex")
    root = environment.get("GOOSE_PATH_ROOT")
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "goose"
    places = [
        (goose.NAME, (Path(root) / "data" if root else data) / "sessions"),
        (claude_code.NAME, claude / "projects"),
        (codex.NAME, codex_home / "sessions"),
        (codex.NAME, codex_home / "archived_sessions"),
    ]
    return [(name, path) for name, path in places if path.is_dir()]
