"""What a flow may wait for.

The logic of both faces is written once, as flows: generators that yield a step where they must
wait and are sent its outcome. The synchronous face blocks for it, the asynchronous one awaits it.
An interruption that comes while a write is under way is thrown into the flow only after the
write's outcome is final.
"""

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from killick.stores.contract import Database, Reader
from killick.stores.engine.state import EngineState

T = TypeVar("T")


class Write(Generic[T]):
    """One operation of the engine, durable when the flow goes on.

    `then` is called with the outcome once it is durable. What only writes once, and often, is
    handed to a face as a step, without a flow around it.
    """

    __slots__ = ("apply", "then")

    def __init__(
        self, apply: Callable[[EngineState], T], then: Callable[[T], object] | None = None
    ) -> None:
        self.apply = apply
        self.then = then


class Read(Generic[T]):
    """A read as of one moment."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[Reader], T]) -> None:
        self.read = read


class Work(Generic[T]):
    """Work on the database as a whole that may take long.

    What keeps others from writing meanwhile is `exclusive`, and cannot be interrupted in between:
    whoever is, may not get to let go of the lock.
    """

    __slots__ = ("exclusive", "work")

    def __init__(self, work: Callable[[Database], T], *, exclusive: bool) -> None:
        self.work = work
        self.exclusive = exclusive


class Pause:
    """Until something was committed after `since`, or the time is over; may be interrupted."""

    __slots__ = ("seconds", "since")

    def __init__(self, since: int, seconds: float) -> None:
        self.since = since
        self.seconds = seconds


Step = Write[Any] | Read[Any] | Work[Any] | Pause
Flow = Generator[Step, Any, T]


def write(apply: Callable[[EngineState], T]) -> Flow[T]:
    """Wait for one write; `value = yield from write(…)`."""
    outcome: T = yield Write(apply)
    return outcome


def read(look: Callable[[Reader], T]) -> Flow[T]:
    """Wait for one read; `value = yield from read(…)`."""
    outcome: T = yield Read(look)
    return outcome


def work(do: Callable[[Database], T], *, exclusive: bool = False) -> Flow[T]:
    """Wait for work on the whole database; `value = yield from work(…)`."""
    outcome: T = yield Work(do, exclusive=exclusive)
    return outcome
