"""Follow the files of agents that run, and bring in what they write as they write it.

A look reads a file as an import does, from its beginning, and merges it: so nothing is taken in
twice, and a source that was cut off, rewritten or replaced is found out by comparing. Only the last
turn differs. While its agent lives it stays open, held by this process as any running turn is by
its holder; when the agent is gone it ends as an import would end it. When this process is gone, the
next one to open the session closes the turn as crashed, and the next attachment goes on with a turn
that continues it.

`Attachment` decides which file is looked at when, and looks; it waits for nothing. `watch` sleeps
until something is written, an agent's process ends, or a look is due.
"""

import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from killick.errors import needs_extra
from killick.exchange.importer import (
    READERS,
    SUFFIXES,
    DiscoveredFile,
    How,
    changed_us,
    discover,
    find,
    import_file,
    look_at,
    usual_places,
    written_files,
)
from killick.exchange.merge import Merged
from killick.exchange.message_entries import grown
from killick.exchange.records import Outcome, Problem, Report, SettledBy, SourceLocation
from killick.exchange.writers import (
    SETTLED_SECONDS,
    LivingProcesses,
    Writers,
    find_writers,
    is_quiet,
    rested,
    settled,
)
from killick.model import entries as e
from killick.model.causes import Cause
from killick.model.messages import Part
from killick.session.runtime import Clock, system_clock
from killick.session.sync import Store

SINCE_SECONDS: Final = 24 * 3600
"""Files that were written within a day are brought in when it begins; others once they change."""

STOPPED: Final = "attach was stopped; its agent may go on"
REWRITTEN: Final = "its file was rewritten, and goes on differently"
GONE: Final = "its file is gone"

_QUIET_SECONDS: Final = 0.55
"""After a write: what is written in pieces is whole then (`writers.is_quiet`)."""

_RETRY_SECONDS: Final = (1.0, 60.0)
_SHARE: Final = 3
"""A look that takes long is followed by so many times its time without one of that file."""

_LOGS: Final = ("-wal", "-journal", "-shm")
_STEP_MS: Final = 100
_GATHER_MS: Final = 300
_PLACES_SECONDS: Final = 1.0
"""How often it is seen whether another agent has begun to keep sessions here."""


class Seen(msgspec.Struct, frozen=True):
    """The outcome of a look: sessions that changed, and what was skipped or repaired.

    `running` are the ids of those in which a turn runs.
    """

    sessions: list[Outcome] = []
    problems: list[Problem] = []
    running: frozenset[str] = frozenset()


class _Followed(msgspec.Struct):
    """A file that is followed, as of the last look at it."""

    file: DiscoveredFile
    due: float
    held: dict[str, str] = {}
    """The turn that runs here for each session."""
    streams: dict[str, tuple[str, tuple[Part, ...]]] = {}
    """The message that streams here for each session, and what is there of it."""
    size: int = 0
    writers: frozenset[int] = frozenset()
    """The processes whose end is waited for."""
    was_seen: bool = False
    is_asked_for: bool = False
    """A process writes to it, and its end would not be heard of."""
    failures: int = 0
    told: set[str] = set()
    """The problems that were reported: each look finds them again."""


class Attachment:
    """The files that are followed, and when each is looked at next."""

    def __init__(
        self,
        store: Store,
        paths: Sequence[Path] = (),
        *,
        only: str | None = None,
        since_us: int | None = None,
        usual: tuple[Mapping[str, str], Path] | None = None,
        clock: Clock = system_clock,
        ticks: Callable[[], float] = time.monotonic,
        look_for_writers: Callable[[frozenset[str]], Writers | None] = find_writers,
    ) -> None:
        self._store = store
        self._paths = tuple(paths)
        self._only = only
        self._since_us = clock() - SINCE_SECONDS * 1_000_000 if since_us is None else since_us
        self._usual = (os.environ, Path.home()) if usual is None else usual
        self._clock = clock
        self._ticks = ticks
        self._look_for_writers = look_for_writers
        self._commands = frozenset(name for form in READERS.values() for name in form.commands)
        self._followed: dict[Path, _Followed] = {}
        self._strangers: dict[Path, tuple[int, int]] = {}
        """Files in which no session was found, as they stood then."""
        self._known = set(store.session_ids())
        self.processes = LivingProcesses()

    # -- what is followed ----------------------------------------------------------------------

    def places(self) -> list[Path]:
        """Return the files and folders that agents write to, as far as they exist."""
        if self._paths:
            return [path for path in self._paths if path.exists()]
        return [path for name, path in usual_places(*self._usual) if self._only in (None, name)]

    def begin(self, places: Iterable[Path]) -> Seen:
        """Find what was written lately below these places; a file that was named in any case."""
        files = [path for path in places if path.is_file()]
        report = Report()
        for file in find(files, report, only=self._only):
            self._follow(file)
        folders = [path for path in places if path not in files]
        for file in find(folders, Report(), only=self._only, since_us=self._since_us):
            self._follow(file)
        return Seen(problems=report.problems)

    def changed(self, paths: Iterable[Path]) -> None:
        """Note that these files were written to, made or removed."""
        for path in dict.fromkeys(map(_without_log, paths)):
            followed = self._unit_of(path)
            if followed is not None:
                if not _was_only_read(followed):
                    followed.due = min(followed.due, self._ticks())
            elif path.name.endswith(SUFFIXES) and self._is_asked_for(path):
                self._discover(path)

    def _discover(self, path: Path) -> None:
        """Follow a file if it is a session; one that is none is read again when it has changed.

        Looking at a database is told as a change of it, as in `_was_only_read`.
        """
        stand = _stand(path)
        if stand is None:
            self._strangers.pop(path, None)
        elif self._strangers.get(path) != stand:
            self._strangers[path] = stand
            file = discover(path, Report(), named=False)
            if file is not None and self._only in (None, file.format):
                del self._strangers[path]
                self._follow(file)

    def _is_asked_for(self, path: Path) -> bool:
        asked = set(self._paths)
        return not asked or path in asked or not asked.isdisjoint(path.parents)

    def died(self) -> None:
        """Find the processes that have ended: the files that they wrote to are looked at."""
        for followed in self._followed.values():
            if followed.writers and not self.processes.alive(followed.writers):
                followed.due = min(followed.due, self._ticks())

    def _follow(self, file: DiscoveredFile) -> None:
        known = self._followed.get(file.path)
        if known is None and file.format in READERS:
            self._followed[file.path] = _Followed(file, self._ticks())
        elif known is not None:
            known.due = min(known.due, self._ticks())

    def _unit_of(self, path: Path) -> _Followed | None:
        for candidate in (path, *path.parents):
            if candidate in self._followed:
                return self._followed[candidate]
        return None

    # -- looks ---------------------------------------------------------------------------------

    def wait_seconds(self) -> float:
        """Return how long it is until a look is due; infinity when none is."""
        self.died()
        due = min((followed.due for followed in self._followed.values()), default=_NEVER)
        return max(0.0, due - self._ticks())

    def look(self) -> Iterator[Seen]:
        """Look at every file that is due, and yield what came in.

        If interrupted: whole looks are in the store, and the turn of the last one is held.
        """
        self.died()
        now = self._ticks()
        due = [followed for followed in self._followed.values() if followed.due <= now]
        for followed in sorted(due, key=lambda followed: followed.due):
            seen = self._look_at(followed)
            if seen.sessions or seen.problems:
                yield seen

    def _look_at(self, followed: _Followed) -> Seen:
        report, began = Report(), self._ticks()
        try:
            self._refresh(followed, report)
            done, by = self._is_done(followed)
            held = frozenset(followed.held.values())
            how = How(self._clock, known=self._known, empty=False, settled_by=by, held=held)
            merged = import_file(self._store, followed.file, report, how, done=done)
            self._take(followed, merged, report)
            self._plan(followed, began, done=done)
        except OSError:
            self._let_go(followed, "other", GONE)
            if not followed.held:
                del self._followed[followed.file.path]
            report.repair(SourceLocation(str(followed.file.path)), GONE)
        return _seen(followed, report)

    def _refresh(self, followed: _Followed, report: Report) -> None:
        """See when the file was written last, and whether it has become shorter. Raises OSError."""
        file = followed.file
        followed.file = msgspec.structs.replace(file, changed_us=changed_us(file.path))
        if file.folder is None:
            with suppress(OSError):
                folder = look_at(file.path).folder
                followed.file = msgspec.structs.replace(followed.file, folder=folder)
        size = sum(each.stat().st_size for each in written_files(file.path))
        if size < followed.size and not file.path.is_dir() and not _is_database(file.path):
            what = f"it was cut from {followed.size} to {size} bytes; what came in before stays"
            report.repair(SourceLocation(str(file.path)), what)
        followed.size = size

    def _is_done(self, followed: _Followed) -> tuple[bool, SettledBy]:
        """Tell whether the agent is gone, and how that is known.

        Of an agent that was never seen among the processes, only the age of its file tells.
        """
        file, now_us = followed.file, self._clock()
        if self.processes.alive(followed.writers):
            return False, "process"
        files, commands = written_files(file.path), READERS[file.format].commands
        writers = self._look_for_writers(self._commands)
        living = set[int]() if writers is None else writers.of(files, commands, file.folder)
        followed.writers = self.processes.watch(living)
        followed.is_asked_for = bool(living) and not followed.writers
        if living:
            followed.was_seen = True
            return False, "process"
        if rested(file.changed_us, now_us):
            return True, "age"
        done, by = settled(files, writers, living=False)
        # Its process could be found: by its folder, or by its database, which it keeps open.
        could = commands and (file.folder is not None or _is_database(file.path))
        if by == "process" and not (followed.was_seen or could):
            return False, "age"
        return done and is_quiet(file.changed_us, now_us), by

    def _take(self, followed: _Followed, merged: list[Merged], report: Report) -> None:
        """Note which turns run here now; end those that their file does not go on with."""
        before, followed.held = followed.held, {}
        failed = any(each.try_again for each in merged) or (not merged and bool(report.problems))
        for each in merged:
            if each.running is not None:
                followed.held[each.session_id] = each.running
                self._stream(followed, each)
        if failed:
            followed.held = before | followed.held
            self._known |= set(self._store.session_ids())
        for session_id, turn_id in before.items():
            if followed.held.get(session_id) != turn_id:
                self._end(session_id, turn_id, "other", REWRITTEN)
        followed.failures = followed.failures + 1 if failed else 0

    def _stream(self, followed: _Followed, merged: Merged) -> None:
        """Hand over what a message that its agent still writes has more than at the last look."""
        message_id, parts = merged.growing or ("", ())
        before = followed.streams.pop(merged.session_id, ("", ()))
        deltas, streamed = grown(before[1] if before[0] == message_id else (), parts)
        if deltas:
            self._store.import_deltas(merged.session_id, message_id, deltas)
        if message_id:
            followed.streams[merged.session_id] = (message_id, streamed)

    def _plan(self, followed: _Followed, began: float, *, done: bool) -> None:
        """Decide when the file is looked at again, if nothing is written to it."""
        now, now_us = self._ticks(), self._clock()
        due = _NEVER
        if followed.failures:
            shortest, longest = _RETRY_SECONDS
            due = now + min(longest, shortest * 2 ** min(followed.failures - 1, 10))
        elif not is_quiet(followed.file.changed_us, now_us):
            due = now + _QUIET_SECONDS
        elif followed.is_asked_for:
            due = now + _RETRY_SECONDS[0]
        elif not done and not followed.writers:
            rests_us = followed.file.changed_us + SETTLED_SECONDS * 1_000_000
            due = now + max(_QUIET_SECONDS, (rests_us - now_us) / 1_000_000 + 1)
        followed.due = max(due, now + _SHARE * (now - began))

    # -- turns that run here -------------------------------------------------------------------

    @property
    def held(self) -> dict[str, str]:
        """Return the turns that run here, by their sessions."""
        return {
            session_id: turn_id
            for followed in self._followed.values()
            for session_id, turn_id in followed.held.items()
        }

    @property
    def is_over(self) -> bool:
        """Tell whether no agent is at work: no turn runs, and nothing was written just now."""
        return not self.held and self.wait_seconds() > _RETRY_SECONDS[0]

    def close(self) -> None:
        """End the turns that are held as interrupted; the next attachment goes on with them.

        If interrupted: those that are left are closed as crashed by the next process.
        """
        for followed in self._followed.values():
            self._let_go(followed, "shut_down", STOPPED)
        self.processes.close()

    def _let_go(self, followed: _Followed, cause: Cause, reason: str) -> None:
        for session_id, turn_id in list(followed.held.items()):
            self._end(session_id, turn_id, cause, reason)
            del followed.held[session_id]

    def _end(self, session_id: str, turn_id: str, cause: Cause, reason: str) -> None:
        """Interrupt a turn that is held, unless it is over."""
        ending = e.TurnEnding(turn_id=turn_id, status="interrupted", reason=reason, cause=cause)
        self._store.end_imported(session_id, ending)


_NEVER: Final = float("inf")


def _without_log(path: Path) -> Path:
    """Return the database that a log belongs to, or the path itself."""
    for end in _LOGS:
        if path.name.endswith(end):
            return path.with_name(path.name.removesuffix(end))
    return path


def _was_only_read(followed: _Followed) -> bool:
    """Tell whether a database is as it was at the last look.

    A reader opens log and shared memory for writing, which the system tells as a change of theirs:
    so each look would be the reason of the next.
    """
    file = followed.file
    if not followed.size or not _is_database(file.path):
        return False
    return _stand(file.path) == (followed.size, file.changed_us)


def _stand(path: Path) -> tuple[int, int] | None:
    """Return how much was written and when it was written last; None when it is gone."""
    with suppress(OSError):
        return sum(each.stat().st_size for each in written_files(path)), changed_us(path)
    return None


def _is_database(path: Path) -> bool:
    return path.name.endswith(".db")


def _seen(followed: _Followed, report: Report) -> Seen:
    """Return what is new: a look finds again what the look before has found."""
    problems = [problem for problem in report.problems if str(problem) not in followed.told]
    followed.told.update(map(str, problems))
    changed = ("new", "grown", "forked")
    sessions = [each for each in report.sessions if each.action in changed]
    return Seen(sessions, problems, frozenset(followed.held))


# -- waiting ---------------------------------------------------------------------------------------


def watch(
    attachment: Attachment,
    tell: Callable[[Seen], None],
    stop: threading.Event,
    *,
    until_end: bool = False,
) -> None:
    """Follow until the caller sets `stop`, which is seen within a second, between two looks.

    With `until_end` it returns when no agent is at work any more. Raises ExtraMissing, and OSError
    for what the system does not let it watch.
    If interrupted: what was told is in the store; the turn of a look that was cut off is closed as
    crashed by the next process.
    """
    with needs_extra("attach", "following files"):
        import watchfiles  # noqa: F401  (before anything is brought in)
    while not stop.is_set():
        places = attachment.places()
        with _events(places) as events:
            tell(attachment.begin(places))
            while attachment.places() == places and not stop.is_set():
                for seen in attachment.look():
                    tell(seen)
                    if stop.is_set():
                        break
                if until_end and attachment.is_over:
                    return
                events.wait(attachment)


@contextmanager
def _events(places: list[Path]) -> Iterator["_Events"]:
    events = _Events()
    folders = {path for path in places if path.is_dir()}
    # A file that is replaced is heard of by its folder alone.
    beside = {path.absolute().parent for path in places if path not in folders}
    threads = [
        threading.Thread(target=events.run, args=(watched, recursive), daemon=True)
        for watched, recursive in ((folders, True), (beside, False))
        if watched
    ]
    for thread in threads:
        thread.start()
    try:
        yield events
    finally:
        events.over.set()
        for thread in threads:
            thread.join()
        events.close()


class _Events:
    """Changes that the watching threads have heard of, and where the caller sleeps."""

    def __init__(self) -> None:
        self._inner, self._outer = socket.socketpair()
        self._inner.settimeout(0)
        self._lock = threading.Lock()
        self._changed: set[Path] = set()
        self._error: Exception | None = None
        self.over = threading.Event()

    def run(self, folders: Iterable[Path], recursive: bool) -> None:  # noqa: FBT001  (a thread's)
        """Hear of changes until it is over; on a thread of its own."""
        import watchfiles

        try:
            for changes in watchfiles.watch(
                *folders,
                watch_filter=None,
                debounce=_GATHER_MS,
                step=_STEP_MS,
                stop_event=self.over,
                recursive=recursive,
                raise_interrupt=False,
            ):
                with self._lock:
                    self._changed |= {Path(name) for _, name in changes}
                self._outer.send(b"!")
        except Exception as error:  # noqa: BLE001  (raised where the caller waits)
            self._error = error
            self._outer.send(b"!")

    def wait(self, attachment: Attachment) -> None:
        """Sleep until something happens or is due, and tell the attachment."""
        seconds = attachment.wait_seconds()
        with selectors.DefaultSelector() as selector:
            selector.register(self._inner, selectors.EVENT_READ)
            for descriptor in attachment.processes.descriptors():
                selector.register(descriptor, selectors.EVENT_READ)
            selector.select(min(_PLACES_SECONDS, seconds))
        with suppress(BlockingIOError):
            self._inner.recv(1 << 16)
        if self._error is not None:
            raise OSError(f"the files cannot be watched: {self._error}") from self._error
        with self._lock:
            changed, self._changed = self._changed, set()
        attachment.changed(changed)

    def close(self) -> None:
        self._inner.close()
        self._outer.close()
