"""What a blocked caller waits at while its write is carried out.

Whoever releases a lock holds the interpreter while doing so: the caller wakes up, finds it taken,
and sleeps again until the writer does. A bell is rung without holding it, so a caller goes on at
once, and the writer follows when that caller has handed over its next write and sleeps. It saves a
lone caller half of the switches between threads.

Where gevent has put greenlets in the place of threads there are none: the caller would sleep with
all of them, the writer too.
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
    """One file descriptor that a thread sleeps at.

    It may ring for an operation that nobody waits for any more. So a ring says "look", never
    "it is done".
    """

    __slots__ = ("_fd", "_forget")

    def __init__(self, fd: int, forget: Callable[[int], None]) -> None:
        self._fd = fd
        self._forget = forget

    def __del__(self) -> None:
        # Whoever may still ring it holds it, so nobody writes to a number that is another's by now.
        self._forget(self._fd)

    @property
    def loop(self) -> Self:
        """It is told by nobody else, so it stands for an event loop of its own."""
        return self

    def wake(self, _waiting: Sequence[object]) -> None:
        os.write(self._fd, _ONE)

    def wait(self) -> None:
        """Sleep until it rings. May be interrupted: what a signal handler raises comes out here."""
        os.read(self._fd, len(_ONE))


_ONE: Final = (1).to_bytes(8, sys.byteorder)


def _threads_are_the_systems() -> bool:
    """Whoever replaces threads replaces their locks."""
    return type(threading.Lock()).__module__ == "_thread"


class Bells:
    """The bells of one opening of a store, lent to those who wait.

    No lock is needed: lists give each of their items to one thread only. And none may be: a signal
    handler may write too, on a thread that it has interrupted in here.
    """

    def __init__(self) -> None:
        self._idle: list[WakeupFd] = []
        usable = sys.platform == "linux" and _threads_are_the_systems()
        self._places = [True] * (_BELLS_MAX if usable else 0)

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
        except OSError:  # no descriptor is left; whoever needs one more urgently may have it
            places.append(True)
            return None
