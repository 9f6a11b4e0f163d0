"""Noticing what others have committed: one polling thread for a process, while somebody waits.

Commits of this process are told at once. Those of other processes are found by asking the database
for its change mark, which costs a few microseconds; nothing polls while nobody follows or runs a
turn. Polling only ever means "look again": what there is to see is read from the journal.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

from holdfast.errors import HoldfastError

_FOLLOWING_SECONDS: Final = 0.010
_RUNNING_SECONDS: Final = 0.050
_LINGER_POLLS: Final = 20
"""Polls without anybody interested after which the thread ends."""


class Watcher:
    """Counts changes; `generation` moves when there may be something new to read."""

    def __init__(
        self,
        change_mark: Callable[[], int],
        on_foreign: Callable[[], None],
        watch: Callable[[Collection[int], Collection[int]], None] = lambda followed, running: None,
    ) -> None:
        self._change_mark = change_mark
        self._on_foreign = on_foreign
        self._watch = watch
        self._followed: Counter[int] = Counter()
        self._running: Counter[int] = Counter()
        # Entered itself and not through the condition, whose methods a signal can land in.
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        self._wakes: set[Callable[[], None]] = set()
        self._followers = 0
        self._look_again = False
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

    def bump(self) -> None:
        """Something was committed."""
        with self._mutex:
            self.generation += 1
            wakes, self._wakes = self._wakes, set()
            self._changed.notify_all()
        for wake in wakes:
            wake()

    def committed(self) -> None:
        """Something was committed by this process: only those who follow need to know."""
        if self._followers:
            self.bump()
        else:
            self.generation += 1

    def wait(self, since: int, seconds: float) -> None:
        """Block until the generation is past `since`, or the time is over."""
        with self._mutex:
            self._changed.wait_for(lambda: self.generation != since or self._closed, seconds)

    def call_on_change(self, since: int, wake: Callable[[], None]) -> None:
        """Call `wake` once, from any thread, when the generation is past `since`."""
        with self._mutex:
            if self.generation == since and not self._closed:
                self._wakes.add(wake)
                return
        wake()

    def forget(self, wake: Callable[[], None]) -> None:
        """Whoever asked to be called waits no longer."""
        with self._mutex:
            self._wakes.discard(wake)

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
            following = sessions is self._followed
            self._followers += change * following
            if (before > 0) != (key in sessions):
                self._watch(self._followed, self._running)
            # What was asked of a turn before it was known here is found by looking once more.
            self._look_again = self._look_again or (change > 0 and not following)
            if self._is_wanted() and self._thread is None and not self._closed:
                thread = threading.Thread(target=self._poll, name="holdfast-watcher", daemon=True)
                thread.start()
                self._thread = thread
            elif change > 0 and following:
                self._changed.notify_all()  # the poller may be sleeping for longer than we allow

    def _is_wanted(self) -> bool:
        return bool(self._followed or self._running)

    def _poll(self) -> None:
        seen: int | None = None
        idle = 0
        while not self._closed:
            mark = self._look()
            if mark is not None and (mark != seen or self._look_again):
                seen, self._look_again = mark, False
                self._on_foreign()
                self.bump()
            with self._mutex:
                idle = 0 if self._is_wanted() else idle + 1
                if idle > _LINGER_POLLS:
                    self._thread = None
                    return
                self._rest()

    def _look(self) -> int | None:
        try:
            return self._change_mark()
        except HoldfastError:
            return None  # the next read or write of a caller says what is wrong

    def _rest(self) -> None:
        seconds = _FOLLOWING_SECONDS if self._followers else _RUNNING_SECONDS
        before = self._followers
        self._changed.wait_for(lambda: self._closed or self._followers > before, seconds)
