"""Find the sessions that other agents keep in files, and import them into a store."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from stat import S_ISREG
from typing import Final

import msgspec

from killick.errors import KillickError, SessionNotFound
from killick.exchange.compose import Composer, LateChange, SessionFacts
from killick.exchange.formats import (
    Format,
    Peek,
    ReadOptions,
    aider,
    claude_code,
    cline,
    cline_ui,
    codex,
    codex_exec,
    copilot,
    crush,
    deerflow,
    gemini,
    goose,
    hermes,
    jsonl,
    message_lists,
    opencode,
    pi,
    qwen,
    simple,
    specstory,
)
from killick.exchange.formats.jsonl import has_blob
from killick.exchange.merge import Merged, Unit, merge, relocated
from killick.exchange.records import (
    Outcome,
    ProblemRecord,
    Report,
    SettledBy,
    Source,
    SourceLocation,
)
from killick.exchange.rejoin import find as find_origin
from killick.exchange.repair import Repairer
from killick.exchange.writers import Writers, find_writers, is_quiet, rested, settled
from killick.journal.kinds import keyed_id
from killick.model import entries as e
from killick.model.limits import TITLE_CHARS_MAX
from killick.session.runtime import Clock, system_clock
from killick.session.sync import Session, Store

PROXY_NOTE_KEY: Final = "killick.proxy"
"""The key of the note that the proxy leaves in what it records."""
_PAGE: Final = 200
OPEN: Final = "its last turn is still open there; it is left for the next import"
UNEXPECTED: Final = "an error that should not be; please report it"
EMPTY: Final = "there is no message in it; it is left out unless it is asked for"
ORPHAN: Final = "the session that it worked for is not here"

_PROSE: Final = ".md"
SUFFIXES: Final = (".jsonl", ".json", ".db", ".jsonl.zst", _PROSE)
_SPEAKS: Final = (e.MessageRecorded, e.MessageStarted)
_AS_IS: Final[SettledBy] = "as-is"

READERS: Final[dict[str, Format]] = {
    format_.name: format_
    for format_ in (
        simple.FORMAT,
        qwen.FORMAT,
        claude_code.FORMAT,
        codex.FORMAT,
        codex_exec.FORMAT,
        copilot.FORMAT,
        pi.FORMAT,
        gemini.FORMAT,
        opencode.FORMAT,
        crush.FORMAT,
        specstory.FORMAT,
        aider.FORMAT,
        goose.FORMAT,
        cline.FORMAT,
        cline_ui.FORMAT,
        hermes.FORMAT,
        deerflow.FORMAT,
        message_lists.FORMAT,  # last: it takes all that looks like messages
    )
}
"""Every foreign format, in the order in which they are asked."""

FORMATS: Final = (jsonl.NAME, *READERS)


class DiscoveredFile(msgspec.Struct, frozen=True):
    """A file or folder that holds sessions, when it was last written to, and in which format.

    `folder` is where its agent worked, as far as its beginning or its place says.
    """

    path: Path
    format: str
    changed_us: int
    folder: str | None = None


class Detection(msgspec.Struct, frozen=True):
    """The format of a file; or why a file that looks like one is not taken."""

    format: str | None = None
    refused: str | None = None
    folder: str | None = None


def import_paths(  # noqa: PLR0913  (what there is to choose)
    store: Store,
    paths: Iterable[Path],
    *,
    only: str | None = None,
    since_us: int | None = None,
    dry_run: bool = False,
    as_is: bool = False,
    empty: bool = False,
    clock: Clock = system_clock,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Bring in every session that lies in these files and folders.

    `only` names the one format to take, `since_us` leaves files alone that were not changed since.
    With `as_is`, a session is complete as it stands, even if an agent still writes to it. Sessions
    without a message are left out unless `empty` asks for them.
    If interrupted: whole turns are there; importing again goes on.
    """
    report = Report()
    files = list(find(paths, report, only=only, since_us=since_us))
    known = set(store.session_ids())
    names = frozenset(name for format_ in READERS.values() for name in format_.commands)
    writers = _Once(lambda: find_writers(names))
    for number, file in enumerate(files, start=1):
        try:
            done, by = (True, _AS_IS) if as_is else _rests(file, clock(), writers)
            how = How(clock=clock, dry_run=dry_run, known=known, empty=empty, settled_by=by)
            import_file(store, file, report, how, done=done)
        except OSError as error:  # it went away meanwhile
            report.skip(SourceLocation(str(file.path)), _unreadable(error))
        if progress is not None:
            progress(number, len(files))
    _name_missing_parents(report, known)
    return report


class How(msgspec.Struct, frozen=True):
    """How the sessions of a file are taken in.

    A caller that follows the file names the turns that it has `held` so far: a last turn without
    an ending runs here then.
    """

    clock: Clock
    dry_run: bool = False
    known: set[str] | None = None
    empty: bool = True
    settled_by: SettledBy | None = None
    held: frozenset[str] | None = None


class _Once:
    """The processes of this machine, looked at when the first young file asks for them."""

    def __init__(self, look: Callable[[], Writers | None]) -> None:
        self._look = look

    @cached_property
    def writers(self) -> Writers | None:
        return self._look()


def _rests(file: DiscoveredFile, now_us: int, once: _Once) -> tuple[bool, SettledBy]:
    """Tell whether its agent is done with the file.

    A copy is younger than its content; of one, an agent in the folder says nothing.
    """
    format_ = READERS.get(file.format)
    if format_ is None or rested(file.changed_us, now_us):
        return True, "age"
    told_us = format_.newest_us(file.path)
    is_copy = told_us is not None and rested(told_us, now_us)
    files, writers = written_files(file.path), once.writers
    commands = () if is_copy else format_.commands
    living = writers is not None and writers.has(files, commands, file.folder)
    if is_copy and not living:
        return True, "age"
    return settled(files, writers, living=living)


def import_file(
    store: Store, file: DiscoveredFile, report: Report, how: How, *, done: bool
) -> list[Merged]:
    """Bring in the sessions of one file; return what became of each.

    If interrupted: whole turns are there; calling it again goes on.
    """
    merged = list[Merged]()
    with _reported(file.path, report):
        if file.format == jsonl.NAME:
            jsonl.import_lines(store, file.path, report, dry_run=how.dry_run, known=how.known)
            return merged
        reading = ReadOptions(file.changed_us, done, is_quiet(file.changed_us, how.clock()))
        for source in READERS[file.format].read(file.path, reading):
            if isinstance(source, ProblemRecord):
                report.take(source)
            else:
                source.changed_us = file.changed_us
                merged.append(_import_source(store, source, report, how))
    return merged


@contextmanager
def _reported(path: Path, report: Report) -> Iterator[None]:
    """Report what goes wrong with a file; the next file has none of it."""
    try:
        yield
    except OSError as error:
        report.skip(SourceLocation(str(path)), _unreadable(error))
    except KillickError as error:
        report.skip(SourceLocation(str(path)), f"the session could not be taken over: {error}")
    except Exception as error:  # noqa: BLE001  (a fault of ours)
        report.skip(SourceLocation(str(path)), f"{UNEXPECTED}: {type(error).__name__}: {error}")


def entries_of(path: Path, report: Report) -> Iterator[e.Entry]:
    """Yield the entries that another agent's file stands for, as it stands; stores none of them."""
    file = discover(path, report, named=True)
    if file is None:
        return
    with _reported(path, report):
        reading = ReadOptions(file.changed_us, settled=True)
        for source in READERS[file.format].read(file.path, reading):
            if isinstance(source, ProblemRecord):
                report.take(source)
                continue
            source.changed_us = file.changed_us
            yield from (located.entry for located in Composer(source, report).entries())


def _unreadable(error: OSError) -> str:
    return f"it cannot be read: {error.strerror or error}"


def _name_missing_parents(report: Report, known: set[str]) -> None:
    """Say of a subagent's session that the one it worked for is not here."""
    for number, outcome in enumerate(report.sessions):
        if outcome.parent is not None and outcome.parent not in known and outcome.action != "left":
            why = "; ".join(filter(None, [outcome.why, f"{ORPHAN} ({outcome.parent})"]))
            report.sessions[number] = msgspec.structs.replace(outcome, why=why)


def find(
    paths: Iterable[Path],
    report: Report,
    *,
    only: str | None = None,
    since_us: int | None = None,
) -> Iterator[DiscoveredFile]:
    """Yield the files that hold sessions, each once; report a named file that holds none.

    In a folder, files of no known format are only counted.
    """
    seen = set[Path]()
    for path in paths:
        named = not path.is_dir()
        for file in [path] if named else _files(path):
            if not seen.isdisjoint(file.parents):
                continue  # a part of what is read as one
            discovered = discover(file, report, named=named)
            if discovered is None or discovered.path in seen:
                continue
            if only not in (None, discovered.format):
                if named:
                    what = f"it is of {discovered.format}, and only {only} was asked for"
                    report.skip(SourceLocation(str(file)), what)
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
        yield from (Path(name) / file for file in sorted(files) if file.endswith(SUFFIXES))


def discover(path: Path, report: Report, *, named: bool) -> DiscoveredFile | None:
    if path.with_name(f"{path.name}-lock").exists():
        # One of our own, perhaps open right here: closing a file drops every lock on it.
        if named:
            report.skip(SourceLocation(str(path)), "it is a store of Killick, and no session")
        return None
    try:
        if not S_ISREG(path.stat().st_mode):
            if named:
                report.skip(SourceLocation(str(path)), "it is no file: save what it gives to one")
            return None
        detection = look_at(path)
        if detection.format is not None:
            unit = READERS[detection.format].unit(path) if detection.format in READERS else path
            return DiscoveredFile(unit, detection.format, changed_us(unit), detection.folder)
    except OSError as error:
        if named or not isinstance(error, FileNotFoundError):
            report.skip(SourceLocation(str(path)), _unreadable(error))
        return None
    if detection.refused is not None:
        report.skip(SourceLocation(str(path)), detection.refused)
    elif named:
        report.skip(
            SourceLocation(str(path)), f"no session in it; known formats: {', '.join(FORMATS)}"
        )
    elif not path.name.endswith(_PROSE):
        report.unknown.append(str(path))
    return None


def changed_us(path: Path) -> int:
    """Return when it was last written to; a database writes to a log beside it first."""
    return max(file.stat().st_mtime_ns for file in written_files(path)) // 1_000


def written_files(path: Path) -> list[Path]:
    """Return the files that an agent writes to for what is read as one."""
    if path.is_dir():
        return [file for file in path.rglob("*") if file.is_file()] or [path]
    log = path.with_name(f"{path.name}-wal")
    return [path, log] if log.exists() else [path]


def detect(path: Path) -> str | None:
    """Return the format of a file. Raises OSError."""
    return look_at(path).format


def look_at(path: Path) -> Detection:
    """Look for the marker of a format, and at how much of the file fits it. Raises OSError."""
    peek = Peek(path)
    if any(jsonl.is_own(record) for record in peek.records):
        return Detection(jsonl.NAME)
    format_ = next((format_ for format_ in READERS.values() if format_.claims(peek)), None)
    if format_ is None:
        return Detection()
    strange, count = format_.misfits(peek)
    if strange * 2 > count:
        what = (
            f"it looks like {format_.name}, but {strange} of its first {count} records are none "
            "of that format; nothing of it was taken"
        )
        return Detection(refused=what)
    return Detection(format_.name, folder=peek.folder or format_.works_in(path))


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
    _import_source(store, source, report, How(clock, dry_run, known))
    return report.sessions[-1]


def _import_source(store: Store, source: Source, report: Report, how: How) -> Merged:
    before = len(report.problems)
    origin = find_origin(store, source, store.session_ids() if how.known is None else how.known)
    if origin is not None:
        source = origin.rest(source)
    composer = Composer(source, report)
    facts = composer.facts
    session_id = composer.session_id if origin is None else origin.session_id
    repairer = Repairer(report, lambda name: has_blob(store, name))
    try:
        if _passed_here(store, session_id, how.known):
            merged = Merged(session_id, "left", why=f"the proxy has recorded it, as {session_id}")
            _add_outcome(source, facts, merged, report, how)
            return merged
        keep_open = how.held is not None
        units = repairer.units(composer.entries(), close=False, keep_open=keep_open)
        if origin is not None:
            units = origin.units(store, units)
        merged = merge(
            store,
            session_id,
            units if how.empty else _with_messages(units, facts, report),
            dry_run=how.dry_run,
            known=how.known,
            # Before turns were "unseen", the start of an unanswered call was written at its end.
            passing=(e.ToolStarted, e.Compacted) if source.changes_late else (e.ToolStarted,),
            held=how.held,
        )
        merged.growing = facts.growing
        if origin is not None:
            facts.title = None  # it has one here
        if not how.dry_run and merged.action != "left":
            _finish(store, source, facts, merged, report.summary(before), how)
    except (KillickError, OSError) as error:
        report.skip(SourceLocation(source.origin), f"the session could not be taken over: {error}")
        merged = Merged(session_id, "left", why=str(error), try_again=True)
    _add_outcome(source, facts, merged, report, how)
    return merged


def _passed_here(store: Store, session_id: str, known: set[str] | None) -> bool:
    """Tell whether this conversation was recorded as it passed: then the first record stays."""
    if known is not None and session_id not in known:
        return False
    try:
        session = store.session(session_id)
        return "proxy" in session.info().about.extra or bool(session.notes(key=PROXY_NOTE_KEY))
    except SessionNotFound:
        return False


def _add_outcome(
    source: Source, facts: SessionFacts, merged: Merged, report: Report, how: How
) -> None:
    title = facts.title[0] if facts.title else facts.prompt
    outcome = Outcome(
        source=source.name,
        origin=source.origin,
        session_id=merged.session_id,
        action=merged.action,
        entries=merged.added,
        title=title,
        fork_of=merged.fork_of,
        why=_why(facts, merged),
        parent=facts.parent,
        settled_by=how.settled_by,
    )
    report.sessions.append(outcome)


def _why(facts: SessionFacts, merged: Merged) -> str | None:
    if facts.left_open and merged.running is None:
        return OPEN
    return EMPTY if facts.silent and merged.action == "left" else merged.why


def _with_messages(units: Iterable[Unit], facts: SessionFacts, report: Report) -> Iterator[Unit]:
    """Yield the units, or none when there is no message in any; note which.

    Where something could not be read a message may have been: what is left is yielded then.
    """
    held, speaks, whole = list[Unit](), False, len(report.problems)
    for unit in units:
        speaks = speaks or any(isinstance(entry.body, _SPEAKS) for entry in unit.entries)
        held.append(unit)
        if speaks:
            yield from held
            held.clear()
    if held and len(report.problems) > whole:
        speaks = True
        yield from held
    facts.silent = not speaks


def _finish(
    store: Store,
    source: Source,
    facts: SessionFacts,
    merged: Merged,
    problems: dict[str, object],
    how: How,
) -> None:
    """Give it the title that it has there, and note where it came from."""
    session = store.session(merged.session_id)
    info, bodies = session.info(), list[e.Body]()
    about, title = info.about, facts.title
    if title is None and facts.prompt is not None and about.title is None:
        title = (facts.prompt, "import")
    if title is not None and about.titled_by != "person" and about.title != title[0]:
        key = f"title/{session.head}"
        entry_id = keyed_id("ent", session.id, key)
        bodies.append(e.Renamed(id=entry_id, title=title[0][:TITLE_CHARS_MAX], by=title[1]))
    bodies += _changed_since(session, facts.changes, merged)
    if facts.archived and merged.action == "new":
        bodies.append(e.Archived(id=keyed_id("ent", session.id, "archived")))
    if merged.added > merged.went_on:
        entry_id = keyed_id("ent", session.id, f"imported/{session.head}")
        about_import = problems | {"at_us": how.clock()}
        if merged.action == "forked":
            about_import["fork"] = {"of": merged.fork_of, "at": merged.fork_at, "why": merged.why}
        bodies.append(
            e.Imported(id=entry_id, source=source.name, origin=source.origin, report=about_import)
        )
    if bodies:
        # A session is as old as what it says; when it came in is told in the report.
        at_us, head = info.updated_at_us, session.head
        entries = [e.Entry(head + n, at_us, body) for n, body in enumerate(bodies, start=1)]
        store.import_entries(session.id, entries, hold=how.held is not None)


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
