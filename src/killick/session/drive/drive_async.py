"""Awaiting a flow, under asyncio and under trio.

A cancelled caller gets its cancellation after the outcome of the write under way is known, never
before; its flow then learns of the cancellation where it waited, and cleans up. No `await` is ever
inside a transaction: those run on the writer's thread.
"""

import asyncio
import contextlib
import contextvars
import inspect
import math
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from functools import partial
from types import FrameType
from typing import Any, Final, TypeVar

import anyio

from killick.session.drive.steps import Flow, Pause, Read, Services, Step, Work, Write
from killick.session.drive.wakeup_fd import make_for_loop
from killick.stores.engine.state import Op, WaitingCaller, finish

T = TypeVar("T")
Submit = Callable[[WaitingCaller], Op[Any]]
"""Starts an operation that a caller waits for on an event loop."""


def settle(runtime: Services, flow: Flow[T] | Write[T]) -> Coroutine[Any, Any, T]:
    """Drive a flow to its end, or take its only step."""
    return _perform(runtime, flow) if isinstance(flow, Write) else _drive(runtime, flow)


async def _drive(runtime: Services, flow: Flow[T]) -> T:
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = flow.send(value) if error is None else flow.throw(error)
        except StopIteration as done:
            result: T = done.value
            return result
        try:
            value, error = await _perform(runtime, step), None
        except BaseException as caught:  # noqa: BLE001  (thrown into the flow, which raises it)
            error = caught


def in_trio() -> bool:
    # Another thread may be importing it: then no trio runs here.
    in_trio_run = getattr(sys.modules.get("trio.lowlevel"), "in_trio_run", None)
    return in_trio_run is not None and bool(in_trio_run())


def _perform(runtime: Services, step: Step) -> Coroutine[Any, Any, Any]:
    if isinstance(step, Pause):
        return _pause(runtime, step)
    submit = partial(_submit, runtime, step)
    return _wait_in_trio(submit, step) if in_trio() else _wait_in_asyncio(submit, step)


def _submit(
    runtime: Services, step: Write[Any] | Read[Any] | Work[Any], waiting: WaitingCaller
) -> Op[Any]:
    if isinstance(step, Write):
        return runtime.writer.submit(Op(step.apply, waiting))
    op: Op[Any] = Op(lambda engine: None, waiting)
    runtime.look_elsewhere(step, op)
    return op


def _outcome(op: Op[Any], step: Step | None) -> Any:
    value = op.result()
    if isinstance(step, Write) and step.then is not None:
        step.then(value)
    return value


# -- asyncio -----------------------------------------------------------------------------------


class _AsyncioLoop:
    """The callers of one event loop, which a file descriptor wakes, or else a call.

    The loop holds it, as what it calls when the descriptor can be read. So the descriptor is closed
    with the loop, or with one that is dropped unclosed, and callers that wait there go too.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._answered: deque[_Wait] = deque()
        self._bell = make_for_loop()
        if self._bell is not None:
            try:  # in a context of its own: the loop would keep the first caller's
                contextvars.Context().run(loop.add_reader, self._bell.fd, self._look)
            except NotImplementedError:
                self._bell = None

    def wake(self, waiting: Sequence["_Wait"]) -> None:
        """Called on the writer's or a reader's thread."""
        self._answered.extend(waiting)
        if self._bell is not None:
            self._bell.wake(waiting)
        elif (loop := self._loop()) is not None:
            with contextlib.suppress(RuntimeError):  # it was closed: no caller waits there any more
                loop.call_soon_threadsafe(self._answer)

    def _look(self) -> None:
        assert self._bell is not None
        try:
            self._bell.wait()
            self._answer()
        except BlockingIOError:  # nothing rang: a forked child that has the descriptor too heard it
            self._answer()
        except BaseException:  # a signal handler's: the loop may run on, and shall look again
            self._bell.wake(())
            raise

    def _answer(self) -> None:
        while self._answered:
            future = self._answered[0].future
            if not future.done():
                future.set_result(None)
            self._answered.popleft()


class _Wait:
    """One caller that waits; its future may be replaced after a cancellation."""

    __slots__ = ("future", "loop")

    def __init__(self, future: "asyncio.Future[None]", loop: _AsyncioLoop) -> None:
        self.future = future
        self.loop = loop


_loops: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_AsyncioLoop]]" = (
    weakref.WeakKeyDictionary()
)


def _callers_of(loop: asyncio.AbstractEventLoop) -> _AsyncioLoop:
    known = _loops.get(loop)
    callers = None if known is None else known()
    if callers is None:
        callers = _AsyncioLoop(loop)
        _loops[loop] = weakref.ref(callers)
    return callers


async def _wait_in_asyncio(submit: Submit, step: Step | None = None) -> Any:
    loop = asyncio.get_running_loop()
    wait = _Wait(loop.create_future(), _callers_of(loop))
    op = submit(wait)
    try:
        await wait.future
    except asyncio.CancelledError as cancellation:
        await _outlast(loop, wait, op)
        raise cancellation from op.error
    return _outcome(op, step)


async def _outlast(loop: asyncio.AbstractEventLoop, wait: _Wait, op: Op[Any]) -> None:
    """Wait for the outcome although cancelled, however often."""
    # Without the shield an enclosing anyio scope would cancel again at every step of the loop.
    with anyio.CancelScope(shield=True):
        while not op.finished:
            wait.future = loop.create_future()
            if op.finished:
                return
            try:
                await wait.future
            except asyncio.CancelledError:  # task.cancel() does not know the shield
                continue


# -- trio --------------------------------------------------------------------------------------


class _TrioLoop:
    """The callers of one run of trio."""

    def __init__(self, token: Any) -> None:
        self._token = weakref.ref(token)

    def wake(self, waiting: Sequence["_TrioWait"]) -> None:
        import trio

        token = self._token()
        if token is not None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(self._answer, waiting)

    def _answer(self, waiting: Sequence["_TrioWait"]) -> None:
        for caller in waiting:
            caller.event.set()


class _TrioWait:
    """One caller that waits."""

    __slots__ = ("event", "loop")

    def __init__(self, event: Any, loop: _TrioLoop) -> None:
        self.event = event
        self.loop = loop


_trio_loops: "weakref.WeakKeyDictionary[Any, _TrioLoop]" = weakref.WeakKeyDictionary()


async def _wait_in_trio(submit: Submit, step: Step | None = None) -> Any:
    import trio

    token = trio.lowlevel.current_trio_token()
    callers = _trio_loops.get(token)
    if callers is None:
        callers = _trio_loops[token] = _TrioLoop(token)
    event = trio.Event()
    op = submit(_TrioWait(event, callers))
    with trio.CancelScope(shield=True):
        await event.wait()
    try:
        await trio.lowlevel.checkpoint_if_cancelled()
    except trio.Cancelled as cancellation:
        raise cancellation from op.error
    return _outcome(op, step)


# -- both --------------------------------------------------------------------------------------


async def _pause(runtime: Services, step: Pause) -> None:
    if step.since is None:
        await anyio.sleep(step.seconds)
        return
    event = anyio.Event()
    call_soon = _caller()

    def wake() -> None:
        call_soon(event.set)

    try:
        runtime.watcher.call_on_change(step.since, wake, step.key)
        with anyio.move_on_after(step.seconds):
            await event.wait()
    finally:
        runtime.watcher.forget(wake)


def _caller() -> Callable[[Callable[[], None]], None]:
    """Return how any thread can have a function called on this event loop."""
    call_soon: Callable[[Callable[[], None]], object]
    if in_trio():
        import trio

        call_soon = trio.lowlevel.current_trio_token().run_sync_soon
    else:
        call_soon = asyncio.get_running_loop().call_soon_threadsafe

    def call(function: Callable[[], None]) -> None:
        # trio's RunFinishedError is a RuntimeError as well.
        with contextlib.suppress(RuntimeError):
            call_soon(function)

    return call


class StopScope:
    """Cancels the body of a turn when it is asked to stop, and tells that cancellation from others.

    The same idea as `asyncio.timeout`: the task is cancelled, and when the cancellation reaches the
    end of the block it is taken back there. A generator may be left in another task than the one
    that entered it, where trio can leave no scope: there is none in a generator under trio, and the
    next call on the turn raises. So it does under asyncio, unless the task waits in a generator:
    what a consumer does between two steps is its own.
    """

    def __init__(self) -> None:
        self._trio_scope: Any = None
        self._task: asyncio.Task[Any] | None = None
        self._in_generator = False
        self._cancelling = 0
        self._fired = False
        self._cancelled = False
        self._left = False
        self._undelivered = False
        self._call_soon = _caller()

    def enter(self) -> None:
        """Begin to watch the task; called by the method that enters the block."""
        self._in_generator = _is_generators_block(sys._getframe(2))
        if in_trio():
            import trio

            if self._in_generator:
                return
            self._trio_scope = trio.CancelScope()
            self._trio_scope.__enter__()
            return
        self._task = asyncio.current_task()
        self._cancelling = 0 if self._task is None else self._task.cancelling()

    def fire(self) -> None:
        """Deliver a stop; called on any thread."""
        self._call_soon(self._cancel)

    def _cancel(self) -> None:
        if self._left or self._fired:
            return
        self._fired = True
        if self._trio_scope is not None:
            self._trio_scope.cancel()
        elif self._task is not None and (not self._in_generator or _is_in_generator(self._task)):
            self._cancelled = self._task.cancel("killick: the turn was asked to stop")

    def leave(self, error: BaseException | None) -> bool:
        """Return whether what leaves the block is this scope's own cancellation."""
        self._left = True
        if self._trio_scope is not None:
            return self._leave_trio(error)
        if not self._cancelled or self._task is not asyncio.current_task():
            return False
        assert self._task is not None
        ours = self._task.uncancel() <= self._cancelling
        if isinstance(error, asyncio.CancelledError):
            return ours
        self._undelivered = ours
        return False

    def _leave_trio(self, error: BaseException | None) -> bool:
        kind = None if error is None else type(error)
        trace = None if error is None else error.__traceback__
        return bool(self._trio_scope.__exit__(kind, error, trace)) and error is not None

    def absorb(self, cancellation: BaseException) -> bool:
        """Return whether a cancellation that came while the block was left is ours."""
        if not self._undelivered or not isinstance(cancellation, asyncio.CancelledError):
            return False
        self._undelivered = False
        assert self._task is not None
        return self._task.cancelling() <= self._cancelling


def _is_generators_block(frame: FrameType | None) -> bool:
    """Return whether this frame, in which a block is entered, is one of a generator.

    Not if `contextlib` drives it: a manager is left where it was entered, in its caller's block.
    """
    while frame is not None:
        if frame.f_code.co_filename != contextlib.__file__:
            if not frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR:
                return False
            driver = frame.f_back
            if driver is None or driver.f_code.co_filename != contextlib.__file__:
                return True
        frame = frame.f_back
    return False


def _is_in_generator(task: "asyncio.Task[Any]") -> bool:
    """Return whether a task waits within a step of an asynchronous generator."""
    waits: Any = task.get_coro()
    while inspect.iscoroutine(waits) or inspect.isgenerator(waits):
        waits = waits.gi_yieldfrom if inspect.isgenerator(waits) else waits.cr_await
    return isinstance(waits, _GENERATOR_STEPS)


async def _no_steps() -> AsyncIterator[None]:
    yield


def _generator_steps() -> tuple[type, ...]:
    """Return the types of what a caller awaits of a generator; no module names them."""
    generator: Any = _no_steps()
    steps = generator.asend(None), generator.athrow(GeneratorExit), anext(generator, None)
    for step in steps:
        step.close()
    return tuple(type(step) for step in steps)


_GENERATOR_STEPS: Final = _generator_steps()


# -- beside a block ----------------------------------------------------------------------------


class OwnTasks:
    """Tasks beside a block, in no scope of the caller's: it may be left in another task.

    Under trio they are system tasks, each in a scope of its own. What they run lets no exception
    out but a cancellation of this task.
    """

    def __init__(self) -> None:
        self._running: dict[object, Callable[[], object]] = {}  # to how each is cancelled
        self._change = anyio.Event()
        self._call_soon = _caller()

    def __bool__(self) -> bool:
        return bool(self._running)

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if in_trio():
            import trio

            scope = trio.CancelScope()
            self._running[scope] = scope.cancel
            context = contextvars.copy_context()
            trio.lowlevel.spawn_system_task(self._run_in_trio, scope, run, context=context)
            return
        task = asyncio.get_running_loop().create_task(run())
        self._running[task] = task.cancel
        task.add_done_callback(self._is_done)

    async def _run_in_trio(self, scope: Any, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        import trio

        try:
            with scope:
                await trio.lowlevel.checkpoint_if_cancelled()
                await run()
        finally:
            self._is_done(scope)

    def _is_done(self, task: object) -> None:
        del self._running[task]
        self._change.set()

    def wake_soon(self) -> None:
        """Let the caller that waits for a change look again; called on any thread."""
        self._call_soon(lambda: self._change.set())

    async def changed(self) -> None:
        """Wait until one more task is done, or the caller is woken."""
        self._change = anyio.Event()
        await self._change.wait()

    async def cancel(self) -> None:
        """Cancel all and wait until they are done, however often the caller is cancelled.

        If interrupted: the cancellation is raised after the last of them is done.
        """
        cancellation: asyncio.CancelledError | None = None
        with anyio.CancelScope(shield=True):
            self._cancel_all()
            while self._running:
                try:
                    await self.changed()
                except asyncio.CancelledError as again:  # task.cancel() does not know the shield
                    cancellation = again
                    self._cancel_all()
        if cancellation is not None:
            raise cancellation

    def _cancel_all(self) -> None:
        for cancel in list(self._running.values()):
            cancel()


def is_cancelled() -> bool:
    """Return whether the current task was cancelled, so that a cancellation in it is its own."""
    if in_trio():
        import trio

        return trio.current_effective_deadline() == -math.inf
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def on_daemon_thread(function: Callable[[], T]) -> T:
    """Call a function that blocks. A cancelled caller does not wait for it, nor does the process.

    If interrupted: the function goes on, and what it returns is dropped.
    """
    done, call_soon = anyio.Event(), _caller()
    outcome: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.set_result(context.run(function))
        except BaseException as error:  # noqa: BLE001  (raised where it is awaited)
            outcome.set_exception(error)
        call_soon(done.set)

    threading.Thread(target=run, name="killick-tool", daemon=True).start()
    await done.wait()
    return outcome.result()


async def in_thread(work: Callable[[], T]) -> T:
    """Run something that blocks, to its end, whatever cancels the caller meanwhile."""
    wait = _wait_in_trio if in_trio() else _wait_in_asyncio
    outcome: T = await wait(lambda waiting: _start_thread(work, waiting))
    return outcome


def _start_thread(work: Callable[[], Any], waiting: WaitingCaller) -> Op[Any]:
    op: Op[Any] = Op(lambda engine: None, waiting)

    def run() -> None:
        try:
            op.value = work()
        except BaseException as error:  # noqa: BLE001  (raised where it is awaited)
            op.error = error
        finish([op])

    threading.Thread(target=run, name="killick-opening").start()
    return op
