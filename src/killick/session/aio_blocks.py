"""Running the tools that a model calls, for the asynchronous face."""

import inspect
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import anyio

from killick.errors import ToolNotApproved, TurnEnded, TurnStopped
from killick.model import entries as e
from killick.model.causes import Cause
from killick.model.effects import Effect
from killick.model.messages import Json, Message, Role, ToolCall, ToolResult
from killick.session.batch import BatchCore, SessionT
from killick.session.core.session import Content
from killick.session.core.stream import Deltas, ModelCall, StreamCore
from killick.session.core.tool import ToolCore
from killick.session.core.turn import TurnCore
from killick.session.drive.drive_async import (
    OwnTasks,
    StopScope,
    is_cancelled,
    on_daemon_thread,
    settle,
)
from killick.session.drive.exit_guard import is_cancellation, leaves_awaiting, says_nothing
from killick.session.drive.steps import Flow, Write
from killick.session.sync_blocks import (
    Calling,
    Checks,
    Effects,
    ToolJob,
    ToolOutcome,
    ToolPlan,
    Tools,
    TurnFacts,
    bind,
    failure,
    outcome,
    raise_failures,
    settlement,
    too_late,
)
from killick.stores.engine.state import Receipt


class AsyncToolRun:
    """Tools that run beside a reply. Use it as a block; leaving it waits for all of them.

    Each runs in a task of its own, a plain function on a thread. When an exception leaves the
    block, the tasks are cancelled, and their outcome is unknown; threads cannot be, and what they
    return then is not kept. The process does not wait for a thread when it ends.
    """

    def __init__(
        self, turn: "AsyncTurn", reply: Calling | None, plan: ToolPlan, *, in_order: bool
    ) -> None:
        self._turn = turn
        self._reply = reply
        self._plan = plan
        self._in_order = in_order
        self._tasks = OwnTasks()
        self._left = self._waited = False
        self._last: anyio.Event | None = None
        self._failures: list[BaseException] = []
        self.results: dict[str, ToolResult] = {}
        """The results so far, by the ids of their calls."""

    async def __aenter__(self) -> Self:
        core = self._turn._core
        for job in await settle(core.runtime, self._plan.jobs(core)):
            self._begin(job)
        if self._reply is not None:
            self._reply.on_call(self._start)
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                await self._wait()
                self._waited = True
        finally:
            self._left = True
            await self._tasks.cancel()
        if error is None:
            raise_failures(self._failures)

    async def _wait(self) -> None:
        """Wait until all are done. Raises TurnStopped once the turn is asked to stop."""
        core = self._turn._core
        before = core.on_stop

        def stop() -> None:
            if before is not None:
                before()
            self._tasks.wake_soon()

        core.on_stop = stop
        try:
            while self._tasks:
                core.check_open()
                await self._tasks.changed()
        finally:
            core.on_stop = before

    def _start(self, call: ToolCall) -> None:
        if self._waited:
            raise too_late(call)
        self._begin(ToolJob(call))

    def _begin(self, job: ToolJob) -> None:
        if self._left:
            return
        before, done = self._last, anyio.Event()
        self._last = done
        self._tasks.start(partial(self._run, job, before if self._in_order else None, done))

    async def _run(self, job: ToolJob, before: anyio.Event | None, done: anyio.Event) -> None:
        try:
            if before is not None:
                await before.wait()
            if job.needs_check and await self._ran(job):
                return
            effect = self._plan.effect(job.call)
            async with self._turn.tool(job.call.id, of=job.of, effect=effect) as tool:
                await self._perform(job.call, tool)
        except (TurnStopped, TurnEnded):
            pass  # the turn's own block says so
        except ToolNotApproved as refused:
            if not refused.denied:  # a denial is an answer, and the model is told of it
                self._failures.append(refused)
        except BaseException as error:
            if is_cancellation(error) and is_cancelled():
                raise
            self._failures.append(error)  # raised where the block is left
        finally:
            done.set()

    async def _ran(self, job: ToolJob) -> bool:
        """Ask the outside about a call of unknown outcome, and settle what it says."""
        core, checks = self._turn._core, self._plan.check
        if job.call.name not in checks or job.of is None:
            return False
        key = await settle(core.runtime, core.session.key_of(job.of, job.call.id))
        settled = settlement(await _value_of(checks[job.call.name], bind(job.call, checks, key)))
        if settled is None:
            return False
        outcome, result = settled
        flow = core.session.settle(
            job.of, job.call.id, outcome, result=result, by="check", evidence=None, replaces=None
        )
        await settle(core.runtime, flow)
        return outcome == "ran"

    async def _perform(self, call: ToolCall, tool: "AsyncTool") -> None:
        printed: list[str] = []
        try:
            result = await self._call(call, tool, printed)
        except BaseException as error:
            if not _is_failure(error):
                raise
            result = failure(error)  # the model is told, and can do better
        await tool.finish(result.content, is_error=result.is_error, structured=result.structured)
        self.results[call.id] = result.result(call.id, printed)

    async def _call(self, call: ToolCall, tool: "AsyncTool", printed: list[str]) -> ToolOutcome:
        function = self._plan.tools.get(call.name)
        bound = bind(call, self._plan.tools, tool.key)
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            value: Any = bound()
        else:
            value = await on_daemon_thread(bound)
        if inspect.isasyncgen(value):
            async for piece in value:
                tool.output(str(piece))
                printed.append(str(piece))
            return ToolOutcome(None)
        if inspect.isgenerator(value):
            return outcome(await _print_all(value, tool, printed))
        return outcome(await value if inspect.isawaitable(value) else value)


async def _value_of(function: Any, bound: Callable[[], Any]) -> Any:
    """Call a check: a coroutine function here, any other on a thread; await what it returns."""
    asynchronous = inspect.iscoroutinefunction(function)
    value = bound() if asynchronous else await on_daemon_thread(bound)
    return await value if inspect.isawaitable(value) else value


def _is_failure(error: BaseException) -> bool:
    """Return whether the tool failed; so it did if something that it waited for was cancelled."""
    if is_cancellation(error):
        return not is_cancelled()
    return isinstance(error, Exception) and not says_nothing(error)


async def _print_all(pieces: Iterator[Any], tool: "AsyncTool", printed: list[str]) -> Any:
    """Record what a plain generator yields, each step on a thread; return its result."""

    def step() -> tuple[bool, Any]:
        try:
            return False, next(pieces)
        except StopIteration as done:
            return True, done.value

    while True:
        over, value = await on_daemon_thread(step)
        if over:
            return value
        tool.output(str(value))
        printed.append(str(value))


T = TypeVar("T")
C = TypeVar("C", StreamCore, ToolCore)


class AsyncTurn(TurnFacts):
    """One prompt and everything until its one ending. Use it as a block."""

    def __init__(self, core: TurnCore) -> None:
        super().__init__(core)
        self._scope: StopScope | None = None

    async def begin(self) -> Self:
        """Begin the turn, as entering its block does; `end` ends it, also from another task.

        For programs whose beginning and end are two callbacks. A stop raises TurnStopped at the
        next call on the turn; only a block is cancelled by it. Dropping this object ends the turn
        as abandoned. If interrupted: a turn that was begun all the same is ended first.
        """
        await self._run(self._entering())
        return self

    def _entering(self, also: Sequence[Message] = ()) -> Flow[None]:
        self._core.held_by(self)  # an `async with` statement holds it already
        return self._core.enter(also)

    async def __aenter__(self) -> Self:
        await self.begin()
        if not self._core.over:
            self._scope = StopScope()
            self._scope.enter()
            self._core.on_stop = self._scope.fire
            if self._core.stop_asked is not None:
                self._scope.fire()
        return self

    @leaves_awaiting
    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        scope = self._scope
        if scope is None:
            await self._run(self._core.leave(error))
            return
        try:
            stopped_here = scope.leave(error)
        except RuntimeError:
            # trio found its scopes left in another order than entered, by a caller by hand.
            await self._run(self._core.leave(error))
            raise
        if stopped_here:
            stopped = self._core.turn_stopped()
            await self._run(self._core.leave(stopped))
            raise stopped from error
        try:
            await self._run(self._core.leave(error))
        except BaseException as late:
            # The stop came while the ending was being written: the ending has won.
            if not scope.absorb(late):
                raise

    async def end(self, error: BaseException | None = None, cause: Cause | None = None) -> None:
        """End the turn as leaving its block does; leaving the block then does nothing more.

        `cause` stands in place of the one that follows from `error`; with neither the turn is
        completed. A stop that was asked for keeps its own. Raises UsageError for an unknown cause.

        If interrupted: the ending is written all the same; only the wait for it is given up.
        """
        await self._run(self._core.leave(error, cause))

    async def record(self, message: Message, *, provider: str | None = None) -> Receipt:
        """Record a whole message, durable on return.

        `provider` names the one that gave it: signed reasoning goes back to that one only.
        If interrupted: it is recorded or it is not; with an `id` of yours, recording it again
        changes nothing.
        """
        return await self._run(self._core.record(message, provider))

    async def record_all(self, messages: Sequence[Message]) -> list[Receipt]:
        """Record whole messages in one commit, durable on return: all of them or none.

        If interrupted: they are recorded or they are not; with ids of yours, recording them again
        changes nothing.
        """
        return await self._run(self._core.record_all(messages))

    def stream(
        self,
        *,
        provider: str | None = None,
        model: str | None = None,
        settings: dict[str, Any] | None = None,
        system: str | None = None,
        tools: Json = None,
        attempt: int = 1,
        retry_of: str | None = None,
        role: Role = "assistant",
        request: dict[str, Any] | None = None,
    ) -> "AsyncStream":
        """Make a stream, a block: one model call and its answer as it comes.

        `system` and `tools`, what the model was asked with, are stored once, as blobs. Of the
        `request` a hash is recorded, so that `killick verify` can show what was sent.
        """
        call = ModelCall(
            provider=provider,
            model=model,
            settings=settings,
            system=system,
            tools=tools,
            attempt=attempt,
            retry_of=retry_of,
            role=role,
            request=request,
        )
        return AsyncStream(StreamCore(self._core, call))

    def tool(
        self,
        call_id: str,
        *,
        of: str | None = None,
        effect: Effect = "once",
        key: str | None = None,
    ) -> "AsyncTool":
        """Make a run of a tool call, a block: its start is durable before the block runs.

        `of` is the turn that made the call, if this turn continues it: a call that was never
        started there can be started here, and its result belongs to that call. One that was
        started can be started again if its `effect` is "none" or "idempotent", or if it was
        settled that it did not run; else OutcomeUnsettled is raised. `key` is for the outside:
        `call.key` is that, or one that is the same for each start.
        """
        return AsyncTool(ToolCore(self._core, call_id, of, effect, key))

    def run_tools(
        self,
        reply: Calling | None,
        tools: Tools,
        *,
        in_order: bool = False,
        effects: Effects | None = None,
        unfinished: str | None = None,
        check: Checks | None = None,
    ) -> "AsyncToolRun":
        """Run the tools that a reply calls, as a block: each is started as soon as it is whole.

        All at once, or with `in_order` one after another. `tools` are functions by name, which
        take the call's arguments, and `idempotency_key` if they name it; what a generator yields is
        output. Leaving the block waits. A call that a person denied is not run; one that still
        waits raises ToolNotApproved there. `effects` are those of tools by name, once if not named.

        With `unfinished`, a turn that this one continues, its calls without a result are run
        first, of which no model was told yet: those that were never started, those whose effect
        allows a repeat. `check` has functions by name that ask the outside about the others;
        what they say is settled, and without an answer OutcomeUnsettled is raised. Then `reply`
        may be None.

        If interrupted: no further tool is started; a result that is not there yet is unknown.
        """
        plan = ToolPlan(tools, effects, unfinished, check)
        return AsyncToolRun(self, reply, plan, in_order=in_order)

    async def put_blob(self, data: bytes) -> str:
        """Keep the bytes of an image or a file that came in this turn; the name for its part.

        If interrupted: the blob is stored or it is not; unused ones are collected later.
        """
        return await self._run(self._core.put_blob(data))

    async def steering(self) -> list[Message]:
        """Take what was said to this turn with `session.steer` since it was last asked.

        Call it before each model call: the messages stand in the context from here on.

        If interrupted: each is taken and in the journal, or waits.
        """
        return await self._run(self._core.steering())

    async def ask_approval(self, call_id: str, arguments: str) -> e.ApprovalAsked:
        """Record that a call waits for a person. If interrupted: it is recorded or it is not."""
        return await self._run(self._core.ask_approval(call_id, arguments))

    def _run(self, flow: Flow[T] | Write[T]) -> Coroutine[Any, Any, T]:
        return settle(self._core.runtime, flow)


class AsyncBlock(Generic[C]):
    """Enters and leaves a stream or a tool."""

    _core: C

    async def __aenter__(self) -> Self:
        return await self.begin()

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.end(error)

    async def begin(self) -> Self:
        """Do what entering the block does; durable on return.

        If interrupted: it has begun or it has not; the turn's end closes it.
        """
        await settle(self._core.turn.runtime, self._core.enter())
        return self

    async def end(self, error: BaseException | None = None, cause: Cause | None = None) -> None:
        """Do what leaving the block does, by this exception or without; again, it does nothing.

        `cause` stands in place of the one that follows from `error`: with one, an answer is partial
        and a tool is left without a result, or with `failed` has an error as its result.

        If interrupted: what came is written all the same; only the wait for it is given up.
        """
        await settle(self._core.turn.runtime, self._core.leave(error, cause))


class AsyncStream(Deltas, AsyncBlock[StreamCore]):
    """A model's answer as it comes. Use it as a block."""

    def __init__(self, core: StreamCore) -> None:
        self._core = core


class AsyncTool(AsyncBlock[ToolCore]):
    """A tool that runs. Use it as a block, and finish it."""

    def __init__(self, core: ToolCore) -> None:
        self._core = core

    @property
    def key(self) -> str:
        """The key for the outside: the one given, or one that is the same for each start."""
        return self._core.key

    def output(self, text: str) -> None:
        """A piece of what the tool prints; does not wait."""
        self._core.output(text)

    async def finish(
        self, content: Content | None = None, *, is_error: bool = False, structured: Json = None
    ) -> Receipt:
        """Record the result, durable on return; without content, what was printed is the result.

        If interrupted: it is recorded or it is not; the same content again changes nothing.
        """
        flow = self._core.finish(content, is_error=is_error, structured=structured)
        return await settle(self._core.turn.runtime, flow)


class AsyncWriteBatch(BatchCore[SessionT, AsyncTurn]):
    """Writes that are made in one commit, in the order in which they were given.

    Each does what the method of its name does on its own.
    """

    async def write(self) -> None:
        """Write all of it; durable on return. The batch is empty then, and can be used again.

        A write that a rule refuses is refused alone, and its error is raised when the others are
        done. Where the store fails, nothing is written.

        If interrupted: all of it is written or nothing; a turn that was begun is ended first.
        """
        await settle(self._store.runtime(), self._taken())
