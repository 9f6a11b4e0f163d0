"""Find the sessions that other agents keep in files, and import them into a store."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from killick.errors import KillickError
from killick.exchange.compose import Composer, LateChange, SessionFacts
from killick.exchange.formats import (
    Format,
    Peek,
    ReadOptions,
    claude_code,
    cline,
    codex,
    deerflow,
    goose,
    hermes,
    jsonl,
    message_lists,
)
from killick.exchange.formats.jsonl import has_blob
from killick.exchange.merge import Merged, merge, relocated
from killick.exchange.records import Outcome, ProblemRecord, Report, Source, SourceLocation
from killick.exchange.repair import Repairer
from killick.journal.kinds import keyed_id
from killick.model import entries as e
from killick.model.limits import TITLE_CHARS_MAX
from killick.session.runtime import Clock, system_clock
from killick.session.sync import Session, Store

_PAGE: Final = 200
OPEN: Final = "its last turn is still open there; it is left for the next import"
UNEXPECTED: Final = "an error that should not be; please report it"
SETTLED_SECONDS: Final = 600
"""An agent that has not written to a file for so long is done with it."""

_SUFFIXES: Final = (".jsonl", ".json", ".db", ".jsonl.zst")

READERS: Final[dict[str, Format]] = {
    format_.name: format_
    for format_ in (
        claude_code.FORMAT,
        codex.FORMAT,
        goose.FORMAT,
        cline.FORMAT,
        hermes.FORMAT,
        deerflow.FORMAT,
        message_lists.FORMAT,  # last: it takes all that looks like messages
    )
}
"""Every foreign format, in the order in which they are asked."""

FORMATS: Final = (jsonl.NAME, *READERS)


class DiscoveredFile(msgspec.Struct, frozen=True):
    """A file or folder that holds sessions, when it was last written to, and in which format."""

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
    files = list(find(paths, report, only=only, since_us=since_us))
    known = set(store.session_ids())
    for number, file in enumerate(files, start=1):
        _import(store, file, report, known, clock=clock, dry_run=dry_run)
        if progress is not None:
            progress(number, len(files))
    return report


def _rests(file: DiscoveredFile, now_us: int) -> bool:
    """Tell whether its agent is done with the file. A copy is younger than its content."""
    told_us = READERS[file.format].newest_us(file.path)
    written_us = file.changed_us if told_us is None else min(file.changed_us, told_us)
    return now_us - written_us > SETTLED_SECONDS * 1_000_000


def _import(
    store: Store,
    file: DiscoveredFile,
    report: Report,
    known: set[str],
    *,
    clock: Clock,
    dry_run: bool,
) -> None:
    try:
        if file.format == jsonl.NAME:
            jsonl.import_lines(store, file.path, report, dry_run=dry_run, known=known)
            return
        reading = ReadOptions(file.changed_us, _rests(file, clock()))
        for source in READERS[file.format].read(file.path, reading):
            if isinstance(source, ProblemRecord):
                report.note(source.location, source.reason, repaired=source.repaired)
            else:
                import_source(store, source, report, clock=clock, dry_run=dry_run, known=known)
    except OSError as error:
        report.skip(SourceLocation(str(file.path)), f"it cannot be read: {error.strerror or error}")
    except KillickError as error:
        report.skip(SourceLocation(str(file.path)), f"the session could not be taken over: {error}")
    except Exception as error:  # noqa: BLE001  (a fault of ours; the next file has none of it)
        report.skip(
            SourceLocation(str(file.path)), f"{UNEXPECTED}: {type(error).__name__}: {error}"
        )


def find(
    paths: Iterable[Path],
    report: Report,
    *,
    only: str | None = None,
    since_us: int | None = None,
) -> Iterator[DiscoveredFile]:
    """Yield the files that hold sessions, each once; report a named file that holds none."""
    seen = set[Path]()
    for path in paths:
        named = not path.is_dir()
        for file in [path] if named else _files(path):
            discovered = _look(file, report, named=named)
            if (
                discovered is None
                or discovered.path in seen
                or only not in (None, discovered.format)
            ):
                continue
            seen.add(discovered.path)
            if since_us is None or discovered.changed_us >= since_us:
                yield discovered


def count_files(path: Path) -> int:
    """Count the files that `find` would look at."""
    return sum(1 for _ in _files(path)) if path.is_dir() else int(path.is_file())


def _files(folder: Path) -> Iterator[Path]:
    for name, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(name) / file for file in sorted(files) if file.endswith(_SUFFIXES))


def _look(path: Path, report: Report, *, named: bool) -> DiscoveredFile | None:
    if path.with_name(f"{path.name}-lock").exists():
        # One of our own, perhaps open right here: closing a file drops every lock on it.
        if named:
            report.skip(SourceLocation(str(path)), "it is a store of Killick, and no session")
        return None
    try:
        format_ = detect(path)
        if format_ is not None:
            unit = READERS[format_].unit(path) if format_ in READERS else path
            return DiscoveredFile(unit, format_, _changed_us(unit))
    except OSError as error:
        if named or not isinstance(error, FileNotFoundError):
            report.skip(SourceLocation(str(path)), f"it cannot be read: {error.strerror or error}")
        return None
    if named:
        report.skip(
            SourceLocation(str(path)), f"no session in it; known formats: {', '.join(FORMATS)}"
        )
    return None


def _changed_us(path: Path) -> int:
    """Return when it was last written to; a database writes to a log beside it first."""
    if path.is_dir():
        files = [file for file in path.iterdir() if file.is_file()] or [path]
    else:
        log = path.with_name(f"{path.name}-wal")
        files = [path, log] if log.exists() else [path]
    return max(file.stat().st_mtime_ns for file in files) // 1_000


def detect(path: Path) -> str | None:
    """Return the format of a file. Raises OSError."""
    peek = Peek(path)
    if any(jsonl.is_own(record) for record in peek.records):
        return jsonl.NAME
    return next((format_.name for format_ in READERS.values() if format_.claims(peek)), None)


def usual_places(environment: Mapping[str, str], home: Path) -> list[tuple[str, Path]]:
    """Return the existing folders in which agents keep their sessions on this machine."""
    return [
        (format_.name, path)
        for format_ in READERS.values()
        for path in format_.places(environment, home)
        if path.exists()
    ]


def import_source(
    store: Store,
    source: Source,
    report: Report,
    *,
    clock: Clock,
    dry_run: bool = False,
    known: set[str] | None = None,
) -> Outcome:
    """Bring one session in. If interrupted: whole turns are there; the next import goes on."""
    before = len(report.problems)
    composer = Composer(source, report)
    session_id = composer.session_id
    repairer = Repairer(report, lambda name: has_blob(store, name))
    try:
        units = repairer.units(composer.entries(), close=False)
        merged = merge(
            store,
            session_id,
            units,
            dry_run=dry_run,
            known=known,
            passing=(e.Compacted,) if source.changes_late else (),
        )
        if not dry_run and merged.action != "left":
            _finish(store, source, composer.facts, merged, report.summary(before), clock)
    except (KillickError, OSError) as error:
        report.skip(SourceLocation(source.origin), f"the session could not be taken over: {error}")
        merged = Merged(session_id, "left", why=str(error))
    outcome = Outcome(
        source=source.name,
        origin=source.origin,
        session_id=merged.session_id,
        action=merged.action,
        entries=merged.added,
        title=composer.facts.title[0] if composer.facts.title else None,
        fork_of=merged.fork_of,
        why=merged.why or (OPEN if composer.facts.left_open else None),
    )
    report.sessions.append(outcome)
    return outcome


def _finish(
    store: Store,
    source: Source,
    facts: SessionFacts,
    merged: Merged,
    problems: dict[str, object],
    clock: Clock,
) -> None:
    """Give it the title that it has there, and note where it came from."""
    session = store.session(merged.session_id)
    about, bodies, title = session.info().about, list[e.Body](), facts.title
    if title is not None and about.titled_by != "person" and about.title != title[0]:
        key = f"title/{session.head}"
        entry_id = keyed_id("ent", session.id, key)
        bodies.append(e.Renamed(id=entry_id, title=title[0][:TITLE_CHARS_MAX], by=title[1]))
    bodies += _changed_since(session, facts.changes, merged)
    if facts.archived and merged.action == "new":
        bodies.append(e.Archived(id=keyed_id("ent", session.id, "archived")))
    if merged.added:
        entry_id = keyed_id("ent", session.id, f"imported/{session.head}")
        bodies.append(
            e.Imported(id=entry_id, source=source.name, origin=source.origin, report=problems)
        )
    if bodies:
        now, head = clock(), session.head
        entries = [e.Entry(head + n, now, body) for n, body in enumerate(bodies, start=1)]
        store.import_entries(session.id, entries)


def _changed_since(session: Session, changes: list[LateChange], merged: Merged) -> Iterator[e.Body]:
    """Yield the source's later visibility changes and summaries that the session lacks."""
    if not changes:
        return
    known, after = set[str](), 0
    while page := session.entries(after=after, limit=_PAGE):
        known |= {
            entry.body.id for entry in page if isinstance(entry.body, e.Visibility | e.Compacted)
        }
        after = page[-1].seq
    for body in changes:
        seq = body.through if isinstance(body, e.Compacted) else body.seq
        if body.id not in known and 0 < merged.seq_here(seq) <= session.head:
            yield relocated(body, merged.seq_here)
