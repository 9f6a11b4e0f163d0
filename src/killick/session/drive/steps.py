"""Flows: what they may wait for, and how a blocking caller drives one.

The logic of both faces is written once, as flows: generators that yield a step where they must
wait and are sent its outcome. `run` blocks for each step; `drive_async` awaits it.

An interruption (Ctrl+C, or whatever a signal handler raises) that comes while a write is under way
is held back until the write's outcome is known, and then thrown into the flow; a second one gives
up the wait. The write itself runs on the writer thread, and exclusive work on a reader thread, so
neither is interrupted.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Generator, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from killick.errors import KillickError, StoreError
from killick.session.drive.wakeup_fd import Bells
from killick.session.watcher import Watcher
from killick.stores.contract import Database, HolderInDoubt, Reader
from killick.stores.engine.state import EngineState, Op
from killick.stores.writer import Writer

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

    Work that keeps others from writing is `exclusive`: it is not interrupted in between, where an
    interrupted caller might not release the lock.
    """

    __slots__ = ("exclusive", "work")

    def __init__(self, work: Callable[[Database], T], *, exclusive: bool) -> None:
        self.work = work
        self.exclusive = exclusive


class Pause:
    """Until something was committed after `since`, or the time is over; may be interrupted.

    Without a `since`, until the time is over; with a `key`, until that session has changed.
    """

    __slots__ = ("key", "seconds", "since")

    def __init__(self, since: int | None, seconds: float, key: int = 0) -> None:
        self.since = since
        self.seconds = seconds
        self.key = key


Step = Write[Any] | Read[Any] | Work[Any] | Pause
Flow = Generator[Step, Any, T]


def write(apply: Callable[[EngineState], T]) -> Flow[T]:
    """Wait for one write; `value = yield from write(…)`."""
    return _until_sure(Write(apply))


def read(look: Callable[[Reader], T]) -> Flow[T]:
    """Wait for one read; `value = yield from read(…)`."""
    return _until_sure(Read(look))


def _until_sure(step: Write[T] | Read[T]) -> Flow[T]:
    """Take a step; again after a pause where it is not sure yet whether another process lives."""
    while True:
        try:
            outcome: T = yield step
        except HolderInDoubt as doubt:
            seconds = doubt.seconds
        else:
            return outcome
        yield Pause(None, seconds)


def together(flows: Sequence[Flow[Any]], keys: Collection[int]) -> Flow[list[Any]]:
    """Carry out the first write of each flow in one commit, in order; return what the flows return.

    `keys` are the sessions that they are about, as far as there are any yet. A flow that a rule
    refuses is refused alone; its error is raised when the others are done. Where the store fails,
    nothing of it is written.

    If interrupted: every flow learns of it, and cleans up as it does when it is driven alone.
    """
    if not flows:
        return []
    pairs: list[tuple[Flow[Any], Write[Any]]] = []
    try:
        for flow in flows:
            pairs.append((yield from _until_write(flow)))
        outcomes = yield Write(partial(_apply_all, [step for _, step in pairs], keys))
    except BaseException as error:
        for flow, _ in pairs:
            with contextlib.suppress(BaseException):
                yield from _go_on(flow, partial(flow.throw, error))
        raise
    values, failure = [], None
    for (flow, step), (value, refused) in zip(pairs, outcomes, strict=True):
        if refused is None and step.then is not None:
            step.then(value)
        resume = partial(flow.send, value) if refused is None else partial(flow.throw, refused)
        try:
            values.append((yield from _go_on(flow, resume)))
        except KillickError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return values


def only(step: Write[T]) -> Flow[T]:
    """Return a flow of this step alone."""
    outcome: T = yield step
    return outcome


def _until_write(flow: Flow[T]) -> Flow[tuple[Flow[T], Write[Any]]]:
    """Drive a flow to its first write, which is not carried out; one without gets an empty one."""
    resume: Callable[[], Step] = partial(next, flow)
    while True:
        try:
            step = resume()
        except StopIteration as done:
            over = only(Write(partial(_nothing, done.value)))
            return (yield from _until_write(over))
        if isinstance(step, Write):
            return flow, step
        try:
            resume = partial(flow.send, (yield step))
        except BaseException as error:  # noqa: BLE001  (thrown into the flow, which raises it)
            resume = partial(flow.throw, error)


def _nothing(value: T, _engine: EngineState) -> T:
    return value


def _apply_all(
    steps: Sequence[Write[Any]], keys: Collection[int], engine: EngineState
) -> list[tuple[Any, KillickError | None]]:
    """Run the writes; each gives its value, or the error with which it was refused."""
    engine.need(keys)  # before anything is written: then it is too late to ask for a lock
    outcomes: list[tuple[Any, KillickError | None]] = []
    for step in steps:
        before, savepoint = engine.tx.writes, engine.savepoint()
        try:
            outcomes.append((step.apply(engine), None))
        except KillickError as refused:
            if engine.tx.writes != before or isinstance(refused, StoreError):
                raise
            engine.give_back(savepoint)
            outcomes.append((None, refused))
    return outcomes


def _go_on(flow: Flow[T], resume: Callable[[], Step]) -> Flow[T]:
    """Drive a flow from the step at which it waits to its end."""
    while True:
        try:
            step = resume()
        except StopIteration as done:
            result: T = done.value
            return result
        try:
            resume = partial(flow.send, (yield step))
        except BaseException as error:  # noqa: BLE001  (thrown into the flow, which raises it)
            resume = partial(flow.throw, error)


def work(do: Callable[[Database], T], *, exclusive: bool = False) -> Flow[T]:
    """Wait for work on the whole database; `value = yield from work(…)`."""
    outcome: T = yield Work(do, exclusive=exclusive)
    return outcome


# -- what drives a flow ------------------------------------------------------------------------


class Services(Protocol):
    """The parts of a runtime that carry steps out."""

    writer: Writer
    watcher: Watcher
    bells: Bells

    def look(self, step: Read[Any] | Work[Any]) -> Any: ...
    def look_elsewhere(self, step: Read[Any] | Work[Any], op: Op[Any]) -> None: ...


def run(runtime: Services, flow: Flow[T] | Write[T], *, leaving: BaseException | None = None) -> T:
    """Drive a flow to its end, or take its only step.

    When an interruption is already `leaving` the block, the next one is the second.
    """
    if runtime.writer.is_current_thread():
        handed_over: T = _hand_over(runtime, flow)
        return handed_over
    patient = not isinstance(leaving, KeyboardInterrupt)
    if isinstance(flow, Write):
        outcome: T = _perform(runtime, flow, patient=patient)
        return outcome
    value: Any = None
    error: BaseException | None = None
    try:
        while True:
            try:
                step = flow.send(value) if error is None else flow.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            try:
                value, error = _perform(runtime, step, patient=patient), None
            except BaseException as caught:  # noqa: BLE001  (thrown into the flow, which raises it)
                error = caught
    finally:
        # An exception that its own traceback holds would keep what a read was interrupted in, and
        # with it an old moment of the database, until the garbage is collected.
        error = None


def _hand_over(runtime: Services, flow: Flow[T] | Write[T]) -> Any:
    """Go as far as the first write and wait for nothing.

    A finaliser may run on the writer's own thread, which must not wait for itself.
    """
    if isinstance(flow, Write):
        runtime.writer.submit(Op(flow.apply))
        return None
    value: Any = None
    while True:
        try:
            step = flow.send(value)
        except StopIteration as done:
            return done.value
        if not isinstance(step, Read):
            break
        value = runtime.look(step)
    if isinstance(step, Write):
        runtime.writer.submit(Op(step.apply))
    flow.close()
    return None


def _perform(runtime: Services, step: Step, *, patient: bool) -> Any:
    if isinstance(step, Write):
        bell = runtime.bells.borrow()
        op = Op(step.apply, bell)
        runtime.writer.submit(op)
        _settle(op, op.wait if bell is None else bell.wait, patient=patient)
        if bell is not None:
            runtime.bells.give_back(bell)
        value = op.result()
        if step.then is not None:
            step.then(value)
        return value
    if isinstance(step, Work) and step.exclusive:
        done: Op[Any] = Op(lambda engine: None)
        runtime.look_elsewhere(step, done)
        _settle(done, done.wait, patient=patient)
        return done.result()
    if isinstance(step, Read | Work):
        return runtime.look(step)
    assert isinstance(step, Pause)
    if step.since is None:
        time.sleep(step.seconds)
    else:
        runtime.watcher.wait(step.since, step.seconds, step.key)
    return None


def _settle(op: Op[Any], wait: Callable[[], object], *, patient: bool) -> None:
    interruption: BaseException | None = None
    try:
        while not op.finished:
            try:
                wait()
            except BaseException as caught:
                if interruption is not None or not patient:
                    raise
                interruption = caught
        if interruption is not None:
            raise interruption from op.error
    finally:
        interruption = None  # as above
