"""Notices what others have committed: one polling thread for a process, while a caller waits.

Commits of this process are told at once. Those of other processes are found by asking the database
for its change mark; nothing polls while no caller follows or runs a turn. The database says how
often it is asked: one that is notified of changes need not be asked often. A change only means
"look again": what there is to see is read from the journal.

A caller that waits for one session sleeps at a door of its own, and is woken by changes of that
session, and by those of which it is not known what they changed.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from killick.errors import KillickError
from killick.stores.contract import Pace

_FOLLOWING_SECONDS: Final = 0.010
_RUNNING_SECONDS: Final = 0.050
"""Two looks are never closer together, whatever is noticed: it is seen by one look."""

_HELD_SECONDS: Final = 0.05
"""How long the writer's thread waits for one that enters or leaves; that takes microseconds."""

_QUIET_SECONDS: Final = 2.0
"""Without a change, after which the next may be found a little later."""

_LINGER_RESTS: Final = 20
"""Rests without an interested caller after which the thread ends."""

_SLICE_SECONDS: Final = 1.0 if sys.platform == "win32" else threading.TIMEOUT_MAX
"""How long a wait lasts that nothing ends: on Windows Ctrl+C does not."""


class Watched(Protocol):
    """A database, as far as it is watched."""

    def change_mark(self) -> int: ...
    def changed(self, followed: Collection[int]) -> Collection[int] | None: ...
    def watch(
        self, followed: Collection[int], running: Collection[int], notice: Callable[[], None]
    ) -> None: ...
    def pace(self) -> Pace: ...


class _Door:
    """Where callers sleep that wait for one session: threads at the condition, others by a call."""

    __slots__ = ("changed", "sleepers", "wakes")

    def __init__(self, mutex: threading.RLock) -> None:
        self.changed = threading.Condition(mutex)
        self.sleepers = 0
        self.wakes: set[Callable[[], None]] = set()


class Watcher:
    """Counts changes; `generation` moves when there may be something new to read."""

    def __init__(self, database: Watched, on_foreign: Callable[[], None]) -> None:
        self._database = database
        self._on_foreign = on_foreign
        self._followed: Counter[int] = Counter()
        self._running: Counter[int] = Counter()
        # Entered itself and not through the condition, whose methods a signal can land in.
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        self._wakes: set[Callable[[], None]] = set()
        self._doors: dict[int, _Door] = {}
        self._callers: dict[Callable[[], None], tuple[int, _Door]] = {}
        self._moved: dict[int, int] = {}
        self._all_moved = 0
        self._followers = 0
        self._look_again = False
        self._noticed = False
        self._resting = False
        self._thread: threading.Thread | None = None
        self._closed = False
        self.generation = 0

    @contextmanager
    def following(self, key: int = 0) -> Iterator[None]:
        """Poll quickly, for changes of this session, for as long as this lasts."""
        self._enlist(self._followed, key, 1)
        try:
            yield
        finally:
            self._enlist(self._followed, key, -1)

    def run_began(self, key: int = 0) -> None:
        """A turn runs here, so a stop from another process must be noticed."""
        self._enlist(self._running, key, 1)

    def run_ended(self, key: int = 0) -> None:
        self._enlist(self._running, key, -1)

    def bump(self, keys: Collection[int] | None = None) -> None:
        """Something was committed, in these sessions; None stands for any."""
        with self._mutex:
            self.generation += 1
            wakes, self._wakes = self._wakes, set()
            self._changed.notify_all()
            if keys is None:
                self._all_moved = self.generation
            else:
                moved = (key for key in keys if key in self._followed)
                self._moved.update(dict.fromkeys(moved, self.generation))
            for key in list(self._doors) if keys is None else keys:
                door = self._doors.get(key)
                if door is not None:
                    wakes |= door.wakes
                    door.wakes.clear()
                    door.changed.notify_all()
        for wake in wakes:
            wake()

    def committed(self, keys: Collection[int] | None = None) -> None:
        """Something was committed by this process: only those who follow need to know.

        Called on the writer's thread. A signal handler that waits for it may have interrupted the
        thread that holds the mutex; then the polling thread finds the change.
        """
        if not self._followers:
            self.generation += 1
        elif (keys is None or keys) and self._mutex.acquire(timeout=_HELD_SECONDS):
            try:
                self.bump(keys)
            finally:
                self._mutex.release()

    def notice(self) -> None:
        """The database was told of a change: it is asked at once. May come from any thread."""
        self._noticed = True
        if self._resting:
            with self._mutex:
                self._changed.notify_all()

    def has_moved(self, since: int, key: int = 0) -> bool:
        """Return whether there may be something new: in this session, if it is followed."""
        if key not in self._followed or key == 0:
            return self.generation != since
        return max(self._moved.get(key, 0), self._all_moved) > since

    def wait(self, since: int, seconds: float, key: int = 0) -> None:
        """Block until something has moved after `since`, or the time is over."""
        deadline = time.monotonic() + seconds
        with self._mutex:
            door = self._enter(key)
            try:
                while not self.has_moved(since, key) and not self._closed:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return
                    changed = self._changed if door is None else door.changed
                    changed.wait(min(left, _SLICE_SECONDS))
            finally:
                self._leave(key, door)

    def _enter(self, key: int) -> _Door | None:
        """Return the door of a session that is followed, one sleeper more; the mutex is held."""
        if key not in self._followed or key == 0:
            return None
        door = self._doors.get(key)
        if door is None:
            door = self._doors[key] = _Door(self._mutex)
        door.sleepers += 1
        return door

    def _leave(self, key: int, door: _Door | None) -> None:
        if door is not None:
            door.sleepers -= 1
            if not door.sleepers and self._doors.get(key) is door:
                del self._doors[key]

    def call_on_change(self, since: int, wake: Callable[[], None], key: int = 0) -> None:
        """Call `wake` once, from any thread, when something has moved after `since`.

        `forget` must follow, whether it was called or not.
        """
        with self._mutex:
            if not self.has_moved(since, key) and not self._closed:
                door = self._enter(key)
                (self._wakes if door is None else door.wakes).add(wake)
                if door is not None:
                    self._callers[wake] = key, door
                return
        wake()

    def forget(self, wake: Callable[[], None]) -> None:
        """Forget a `wake` whose caller waits no longer."""
        with self._mutex:
            self._wakes.discard(wake)
            key, door = self._callers.pop(wake, (0, None))
            if door is not None:
                door.wakes.discard(wake)
                self._leave(key, door)

    def close(self) -> None:
        self._closed = True
        self.bump()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)

    @property
    def followers(self) -> int:
        return self._followers

    @property
    def closed(self) -> bool:
        return self._closed

    def _enlist(self, sessions: Counter[int], key: int, change: int) -> None:
        with self._mutex:
            before = sessions[key]
            sessions[key] += change
            if not sessions[key]:
                del sessions[key]
                if sessions is self._followed:
                    self._moved.pop(key, None)
            following = sessions is self._followed
            self._followers += change * following
            if (before > 0) != (key in sessions):
                self._database.watch(self._followed, self._running, self.notice)
            # What was asked of a turn before it was known here is found by looking once more.
            self._look_again = self._look_again or (change > 0 and not following)
            if self._is_wanted() and self._thread is None and not self._closed:
                thread = threading.Thread(target=self._poll, name="killick-watcher", daemon=True)
                thread.start()
                self._thread = thread
            elif change > 0 and (following or self._resting):
                self._changed.notify_all()  # the poller may be resting for longer than we allow

    def _is_wanted(self) -> bool:
        return bool(self._followed or self._running)

    def _poll(self) -> None:
        seen: int | None = None
        failing = False
        moved_at = time.monotonic()
        rests = 0
        while not self._closed:
            if self._is_wanted():
                rests = 0
                self._noticed = False
                mark = self._look()
                if mark is None and not failing:
                    self.bump()  # the next look of a caller says what is wrong
                failing = mark is None
                if mark is not None and (mark != seen or self._look_again):
                    seen, self._look_again = mark, False
                    moved_at = time.monotonic()
                    self._on_foreign()
                    self._bump_changed()
            with self._mutex:
                if rests > _LINGER_RESTS and not self._is_wanted():
                    self._thread = None
                    return
                rests += 1
                self._rest(quiet=time.monotonic() - moved_at > _QUIET_SECONDS)

    def _bump_changed(self) -> None:
        """Wake those whose sessions others have changed, as far as the database can tell."""
        with self._mutex:
            followed = frozenset(self._followed) - {0}
        try:
            keys = self._database.changed(followed) if followed else ()
        except KillickError:
            keys = None  # the next look of a caller says what is wrong
        self.bump(keys)

    def _look(self) -> int | None:
        try:
            return self._database.change_mark()
        except KillickError:
            return None

    def _rest(self, *, quiet: bool) -> None:
        """Until it is time to look again, or there is a reason to; the mutex is held."""
        least = _FOLLOWING_SECONDS if self._followers else _RUNNING_SECONDS
        seconds, began, before = least, time.monotonic(), self._followers
        if self._is_wanted():
            pace = self._database.pace()
            seconds = max(least, pace.quiet if quiet else pace.busy)
        self._resting = seconds > least
        self._changed.wait_for(lambda: self._is_due(before), seconds)
        self._resting = False
        left = began + least - time.monotonic()
        if left > 0 and self._followers <= before:
            self._changed.wait_for(lambda: self._closed, left)

    def _is_due(self, before: int) -> bool:
        noticed = self._resting and (self._noticed or self._look_again)
        return noticed or self._closed or self._followers > before
