"""Running a flow on the caller's thread.

The first interruption (Ctrl+C, or whatever a signal handler raises) that comes while a write is
under way is held back until the write's outcome is known; a second one gives up the wait. The
write itself runs on the writer's thread and is touched by neither. Work that keeps others from
writing is waited for in the same way, and runs on a thread of its own.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from killick.session.drive.steps import Flow, Pause, Read, Step, Work, Write
from killick.session.runtime import Runtime
from killick.stores.ops import Op

T = TypeVar("T")


def run(runtime: Runtime, flow: Flow[T] | Write[T], *, leaving: BaseException | None = None) -> T:
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


def _hand_over(runtime: Runtime, flow: Flow[T] | Write[T]) -> Any:
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


def _perform(runtime: Runtime, step: Step, *, patient: bool) -> Any:
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
    runtime.watcher.wait(step.since, step.seconds)
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
