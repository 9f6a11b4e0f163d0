"""What is handed to the writer, and how its outcome comes back to whoever waits for it."""

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from killick.stores.engine import Engine

T = TypeVar("T")


class Waiting(Protocol):
    """A caller that is not blocked but wants to be told, on an event loop of its own."""

    @property
    def loop(self) -> "Loop": ...


class Loop(Protocol):
    """Where such callers wait: told of all that a commit has answered with one call."""

    def wake(self, waiting: Sequence[Any]) -> None: ...


def finish(ops: Sequence["Op[Any]"]) -> None:
    """The outcomes of these operations are final: release those who wait for them."""
    loops: dict[int, tuple[Loop, list[Waiting]]] = {}
    last: Loop | None = None
    for op in ops:
        op.finished = True
        waiting = op.waiting
        if waiting is None:
            op.done.release()
            continue
        loop = waiting.loop
        if loop is not last:
            last, together = loops.setdefault(id(loop), (loop, []))
        together.append(waiting)
    for loop, answered in loops.values():
        loop.wake(answered)


class Op(Generic[T]):
    """One operation on its way through the writer, and its outcome."""

    __slots__ = ("apply", "done", "error", "finished", "value", "waiting")

    def __init__(self, apply: Callable[[Engine], T], waiting: "Waiting | None" = None) -> None:
        self.apply = apply
        self.value: T
        self.error: BaseException | None = None
        self.finished = False
        self.waiting = waiting
        if waiting is None:
            # A bare lock is the one primitive whose wait a signal can interrupt without harm.
            self.done = threading.Lock()
            self.done.acquire()

    def wait(self, timeout: float = -1) -> bool:
        """Block until the outcome is known; False when the time ran out first.

        For callers without anything else to wait at.
        """
        if not self.done.acquire(timeout=timeout):
            return False
        self.done.release()
        return True

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self.value


class Parting(weakref.ref[Any]):
    """Puts itself into the writer's queue when what it refers to is gone.

    No line of Python runs then, so no signal handler can: whoever is interrupted while a block is
    left, however often, lets go of the block, and that is enough.
    """

    __slots__ = ("apply",)
    apply: Callable[[Engine], Any]
