"""What is entered and left around work, for the asynchronous face.

The same names as in `killick.session.blocks`, awaited where they wait.
"""

from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from killick.errors import TurnStopped
from killick.model import entries as e
from killick.model.messages import Message
from killick.model.parts import Json
from killick.session.blocks import Deltas, TurnFacts
from killick.session.core import Content
from killick.session.leaving import leaves_awaiting
from killick.session.options import CallSettings, model_call
from killick.session.running import Calling, Tools
from killick.session.running_aio import AsyncToolRun
from killick.session.settling import StopScope, settle
from killick.session.steps import Flow, Write
from killick.session.streams import StreamCore, ToolCore
from killick.session.turns import TurnCore
from killick.stores.standing import Receipt

T = TypeVar("T")
C = TypeVar("C", StreamCore, ToolCore)


class AsyncTurn(TurnFacts):
    """One prompt and everything until its one ending. Use it as a block."""

    def __init__(self, core: TurnCore) -> None:
        super().__init__(core)
        self._scope: StopScope | None = None

    async def __aenter__(self) -> Self:
        self._core.held_by(self)  # an `async with` statement holds it already
        await self._run(self._core.enter())
        if not self._core.over:
            self._scope = StopScope()
            self._scope.enter()
            self._core.on_stop = self._scope.fire
            if self._core.stop_reason is not None:
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
            # trio found its scopes left in another order than entered: a generator was closed.
            await self._run(self._core.leave(error))
            raise
        if stopped_here:
            reason = self._core.stop_reason or "stopped"
            stopped = TurnStopped(f"the turn was asked to stop: {reason}", reason=reason)
            await self._run(self._core.leave(stopped))
            raise stopped from error
        try:
            await self._run(self._core.leave(error))
        except BaseException as late:
            # The stop came while the ending was being written: the ending has won.
            if not scope.absorb(late):
                raise

    async def record(self, message: Message) -> Receipt:
        """Record a whole message, durable on return.

        If interrupted: it is recorded or it is not; with an `id` of yours, recording it again
        changes nothing.
        """
        return await self._run(self._core.record(message))

    def stream(self, **settings: Unpack[CallSettings]) -> "AsyncStream":
        """One model call and its answer as it comes, as a block."""
        return AsyncStream(StreamCore(self._core, model_call(settings)))

    def tool(self, call_id: str, *, of: str | None = None) -> "AsyncTool":
        """A run of the tool the model called, as a block: started before the block runs.

        `of` is the turn that made the call, if this turn continues it: a call that was never
        started there can be started here, and its result belongs to that call.
        """
        return AsyncTool(ToolCore(self._core, call_id, of))

    def run_tools(self, reply: Calling, tools: Tools, *, in_order: bool = False) -> "AsyncToolRun":
        """Run the tools that a reply calls, as a block: each is started as soon as it is whole.

        All at once, or with `in_order` one after another. `tools` are functions by name, which
        take the call's arguments; what a generator yields is output. Leaving the block waits.

        If interrupted: no further tool is started; a result that is not there yet is unknown.
        """
        return AsyncToolRun(self, reply, tools, in_order=in_order)

    async def put_blob(self, data: bytes) -> str:
        """Keep the bytes of an image or a file that came in this turn; the name for its part.

        If interrupted: the blob is stored or it is not; unused ones are collected later.
        """
        return await self._run(self._core.put_blob(data))

    async def ask_approval(self, call_id: str, arguments: str) -> e.ApprovalAsked:
        """Record that a call waits for a person. If interrupted: it is recorded or it is not."""
        return await self._run(self._core.ask_approval(call_id, arguments))

    def _run(self, flow: Flow[T] | Write[T]) -> Coroutine[Any, Any, T]:
        return settle(self._core.runtime, flow)


class AsyncBlock(Generic[C]):
    """What is entered and left around work: a stream, or a tool."""

    _core: C

    async def __aenter__(self) -> Self:
        await settle(self._core.turn.runtime, self._core.enter())
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await settle(self._core.turn.runtime, self._core.leave(error))


class AsyncStream(Deltas, AsyncBlock[StreamCore]):
    """A model's answer as it comes. Use it as a block."""

    def __init__(self, core: StreamCore) -> None:
        self._core = core


class AsyncTool(AsyncBlock[ToolCore]):
    """A tool that runs. Use it as a block, and finish it."""

    def __init__(self, core: ToolCore) -> None:
        self._core = core

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
