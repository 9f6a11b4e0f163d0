"""What is handed to the writer, and how its outcome comes back to whoever waits for it."""

import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from killick.stores.engine.state import EngineState

T = TypeVar("T")


class WaitingCaller(Protocol):
    """A caller that is not blocked but wants to be told, on an event loop of its own."""

    @property
    def loop(self) -> "Loop": ...


class Loop(Protocol):
    """Where such callers wait: told of all that a commit has answered with one call."""

    def wake(self, waiting: Sequence[Any]) -> None: ...


def finish(ops: Sequence["Op[Any]"]) -> None:
    """The outcomes of these operations are final: release those who wait for them."""
    loops: dict[int, tuple[Loop, list[WaitingCaller]]] = {}
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

    def __init__(
        self, apply: Callable[[EngineState], T], waiting: "WaitingCaller | None" = None
    ) -> None:
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


class DropCallback(weakref.ref[Any]):
    """Puts itself into the writer's queue when what it refers to is gone.

    No line of Python runs then, so no signal handler can: whoever is interrupted while a block is
    left, however often, lets go of the block, and that is enough.
    """

    __slots__ = ("apply",)
    apply: Callable[[EngineState], Any]


SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


class Histogram(msgspec.Struct, frozen=True):
    """How many values were at most each of `bounds`; the last of `counts` are those beyond."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Figures(msgspec.Struct, frozen=True):
    """What one opening of a store has done so far, and what it has open now.

    `operations` counts writes of callers and flushes of deltas, `refused` those of them that a rule
    or the store said no to. `recovered` are turns that were closed for a process that had died.
    """

    operations: int
    refused: int
    commit_seconds: Histogram
    commit_sizes: Histogram
    turns: int
    followers: int
    recovered: int


class _Counter:
    """One histogram while it grows. Written by one thread; a reader may be one value behind."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def shown(self) -> Histogram:
        return Histogram(self._bounds, tuple(self._counts), self._total)


class Tally:
    """Kept by the writer, read by anybody."""

    def __init__(self) -> None:
        self._seconds = _Counter(SECONDS)
        self._sizes = _Counter(SIZES)
        self._operations = 0
        self._refused = 0
        self.recovered = 0

    def committed(self, operations: int, seconds: float) -> None:
        self._seconds.add(seconds)
        self._sizes.add(operations)
        self._operations += operations

    def refused(self) -> None:
        self._refused += 1

    def shown(self, *, turns: int, followers: int) -> Figures:
        return Figures(
            operations=self._operations,
            refused=self._refused,
            commit_seconds=self._seconds.shown(),
            commit_sizes=self._sizes.shown(),
            turns=turns,
            followers=followers,
            recovered=self.recovered,
        )
