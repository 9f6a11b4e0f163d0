"""Waking a thread or an event loop that waits for a commit, through a file descriptor.

Releasing a lock needs the interpreter: the caller wakes up, finds it taken, and sleeps again until
the writer thread does. Writing to a descriptor does not: the caller goes on at once, and the writer
thread follows when that caller sleeps. An event loop is spared a callback and two reads.

Where gevent has put greenlets in the place of threads there are none of these: the caller would
sleep with all of them, the writer too.
"""

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final, Self

_BELLS_MAX: Final = 8
"""Callers in one store that have one at the same time. More than these share commits anyway, and a
file descriptor for each of a thousand threads would be missed elsewhere."""


class WakeupFd:
    """One file descriptor that a thread, or an event loop, sleeps at.

    It may ring for an operation that its caller no longer waits for. So a ring says "look", never
    "it is done".
    """

    __slots__ = ("_forget", "fd")

    def __init__(self, fd: int, forget: Callable[[int], None]) -> None:
        self.fd = fd
        self._forget = forget

    def __del__(self) -> None:
        # What may still ring it holds it, so no write goes to a number that was reused.
        self._forget(self.fd)

    @property
    def loop(self) -> Self:
        """It stands for an event loop of its own: it wakes one caller."""
        return self

    def wake(self, _waiting: Sequence[object]) -> None:
        os.write(self.fd, _ONE)

    def wait(self) -> None:
        """Sleep until it rings. May be interrupted: what a signal handler raises comes out here."""
        os.read(self.fd, len(_ONE))


_ONE: Final = (1).to_bytes(8, sys.byteorder)


def _usable() -> bool:
    """Return whether there are eventfds, and threads are real: who replaces them replaces locks."""
    return sys.platform == "linux" and type(threading.Lock()).__module__ == "_thread"


def make_for_loop() -> WakeupFd | None:
    """One whose `wait` raises BlockingIOError where it has not rung; None where a loop has none."""
    if not _usable():
        return None
    try:
        return WakeupFd(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK), os.close)
    except OSError:  # no descriptor is left
        return None


class Bells:
    """The bells of one opening of a store, lent to those who wait.

    No lock is needed: lists give each of their items to one thread only. And none may be: a signal
    handler may write too, on a thread that it has interrupted in here.
    """

    def __init__(self) -> None:
        self._idle: list[WakeupFd] = []
        self._places = [True] * (_BELLS_MAX if _usable() else 0)

    def borrow(self) -> WakeupFd | None:
        """A bell, or None where there is none: then a lock has to do."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._make()

    def give_back(self, bell: WakeupFd) -> None:
        """The wait is over. One that was given up is not given back: it may ring at any time."""
        self._idle.append(bell)

    def _make(self) -> WakeupFd | None:
        places, close = self._places, os.close  # `os` may be gone when the last bell goes

        def forget(fd: int) -> None:
            close(fd)
            places.append(True)

        try:
            places.pop()
        except IndexError:
            return None
        try:
            return WakeupFd(os.eventfd(0), forget)
        except OSError:  # no descriptor is left: the lock has to do
            places.append(True)
            return None
