"""The recorder: LangChain's callbacks around models and tools, on both faces.

A callback's exception is raised into the run, and the asynchronous ones run where the run does, so
that a tool does not begin before its start is durable. `BlockingRecorder` is `Recorder` over the
objects of the synchronous face.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Self
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler

from killick.adapters.awaited import awaited, run_now
from killick.adapters.langchain.chunks import (
    ChunkApplier,
    call_facts,
    last_prompt,
    outcome,
    system_text,
    tool_messages,
    waits,
)
from killick.adapters.langchain.run_tree import RunTree
from killick.adapters.shared_store import open_child
from killick.adapters.tool_journal import ToolJournal
from killick.session.aio_blocks import AsyncStream, AsyncTurn
from killick.session.sync_blocks import Turn


def requests(interrupts: Any) -> Iterator[dict[str, Any]]:
    """Yield the calls that a run waits for, as LangChain's middleware asks about them."""
    for interrupt in interrupts:
        value = getattr(interrupt, "value", None)
        asked = value.get("action_requests") if isinstance(value, dict) else None
        for request in asked or ():
            if isinstance(request, dict) and "name" in request:
                yield request


class _Scope:
    """One session that is recorded into: the run's own, or that of an agent inside of a tool."""

    def __init__(self, turn: AsyncTurn, *, of: str | None = None) -> None:
        self.turn = turn
        self.tools = ToolJournal(turn, of=of)
        self.failed: tuple[int, str] | None = None

    def stream(self, facts: dict[str, Any]) -> AsyncStream:
        """Return the next request as a block; after one that failed it is a retry."""
        attempt, first = self.failed or (0, None)
        self.failed = None
        reply = self.turn.stream(**facts, attempt=attempt + 1, retry_of=first)
        self.attempt = (attempt + 1, first or reply.model_call_id)
        return reply


class Recorder(AsyncCallbackHandler):
    """Records one run of an agent or graph into one turn. Give it in `callbacks`.

    Nothing is streamed that the agent does not stream itself, unless `streaming` asks for it: then
    `ainvoke` asks models for streams, and text is recorded as it comes. `of` is the turn that this
    one continues.

    If interrupted: what came is in the journal. A message that was cut off is partial, a tool that
    ran has its result or an unknown outcome; the turn's block gives the turn its ending.
    """

    raise_error = True
    run_inline = True

    def __new__(cls, turn: AsyncTurn, *, streaming: bool = False, of: str | None = None) -> Self:
        return super().__new__(_StreamingRecorder if streaming and cls is Recorder else cls)

    def __init__(self, turn: AsyncTurn, *, streaming: bool = False, of: str | None = None) -> None:
        super().__init__()
        self._root = _Scope(turn, of=of)
        self._tree = RunTree()
        self._children: dict[UUID, _Scope] = {}
        self._replies: dict[UUID, tuple[_Scope, AsyncStream, ChunkApplier]] = {}

    async def _scope(self, tool_run: UUID | None, messages: Any = ()) -> _Scope:
        """Return where a run inside of this tool is recorded; the tool's agent may be new."""
        if tool_run is None:
            return self._root
        if tool_run not in self._children:
            outer = await self._scope(self._tree.parent_of(tool_run))
            call_id = self._tree.call_of(tool_run) or ""
            session = await open_child(outer.turn, call_id)
            turn = await session.turn(last_prompt(messages)).begin()
            self._children[tool_run] = _Scope(turn)
        return self._children[tool_run]

    # -- models ----------------------------------------------------------------------------------

    async def on_chat_model_start(
        self,
        serialized: Any,
        messages: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        given = messages[0] if messages else []
        scope = await self._scope(self._tree.tool_around(parent_run_id), given)
        await self._catch_up(scope, given)
        facts = call_facts(kwargs.get("invocation_params") or {}, metadata or {})
        reply = scope.stream({**facts, "system": system_text(given)})
        await reply.begin()
        self._replies[run_id] = (scope, reply, ChunkApplier(reply))

    async def on_llm_new_token(
        self, token: Any, *, chunk: Any = None, run_id: UUID, **kwargs: Any
    ) -> None:
        recorded = self._replies.get(run_id)
        if recorded is not None and chunk is not None:
            recorded[2].add(chunk.message)

    async def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        recorded = self._replies.pop(run_id, None)
        if recorded is None:
            return
        scope, reply, applier = recorded
        applier.end(response.generations[0][0].message)
        await reply.end()
        scope.tools.calls.add(reply.tool_calls)

    async def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        recorded = self._replies.pop(run_id, None)
        if recorded is not None:
            scope, reply, _ = recorded
            scope.failed = scope.attempt
            await reply.end(error)

    # -- tools -----------------------------------------------------------------------------------

    async def on_tool_start(
        self,
        serialized: Any,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: Any = None,
        tool_call_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        scope = await self._known_scope(parent_run_id)
        name = (serialized or {}).get("name") or kwargs.get("name") or ""
        if scope is None or (not tool_call_id and scope.tools.calls.find("", name, inputs) is None):
            self._tree.begin(run_id, parent_run_id)  # a function of the program's, no model's call
            return
        own = await scope.tools.start(tool_call_id or "", name, inputs)
        self._tree.begin_tool(run_id, parent_run_id, own)

    async def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        call_id = self._tree.call_of(run_id)
        if call_id is not None:
            await self._end_child(run_id, None)
            scope = await self._scope(self._tree.parent_of(run_id))
            made = outcome(output, None)
            await scope.tools.finish(
                call_id, made.text, is_error=made.is_error, structured=made.structured
            )
        self._tree.end(run_id)

    async def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        call_id = self._tree.call_of(run_id)
        if call_id is not None and not waits(error):
            await self._end_child(run_id, error)
            scope = await self._scope(self._tree.parent_of(run_id))
            await scope.tools.leave(call_id, error)
        self._tree.end(run_id)

    async def _known_scope(self, run_id: UUID | None) -> _Scope | None:
        """Return where a tool is recorded; None inside of a tool whose agent asked no model."""
        around = self._tree.tool_around(run_id)
        if around is not None and around not in self._children:
            return None
        return await self._scope(around)

    async def _end_child(self, tool_run: UUID, error: BaseException | None) -> None:
        child = self._children.pop(tool_run, None)
        if child is not None:
            await child.turn.end(error)

    async def _catch_up(self, scope: _Scope, value: Any) -> None:
        """Record results that no callback told of: an unknown tool, a refusal."""
        for message in tool_messages(value):
            if message.tool_call_id in scope.tools.calls:
                made = outcome(message, message.tool_call_id)
                await scope.tools.answer(message.tool_call_id, made.text, is_error=made.is_error)

    # -- chains ----------------------------------------------------------------------------------

    async def on_chain_start(
        self,
        serialized: Any,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        self._tree.begin(run_id, parent_run_id)

    async def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        scope = await self._known_scope(run_id)
        if scope is not None:
            await self._catch_up(scope, outputs)
        self._tree.end(run_id)

    async def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._tree.end(run_id)

    # -- approvals -------------------------------------------------------------------------------

    async def pause(self, result: Any) -> bool:
        """Record that a run waits for a person; False if it does not wait.

        Call it with what `ainvoke` returned, in the turn's block. The turn is then over, as
        interrupted, and waits on. LangGraph's checkpoint has the run: resume it with `Command`, in
        a turn that continues this one, with `Recorder(turn, of=…)`.

        If interrupted: call it again; what was asked is asked once.
        """
        interrupts = result.get("__interrupt__") if isinstance(result, dict) else None
        if not interrupts:
            return False
        scope = self._root
        asked = {question.call_id for question in await scope.tools.session.approvals()}
        for request in requests(interrupts):
            call_id = scope.tools.calls.find("", request["name"], request.get("args"))
            if call_id is not None and call_id not in asked:
                scope.tools.calls.begin(call_id)
                arguments = next(call.arguments for call in scope.tools.calls if call.id == call_id)
                await scope.turn.ask_approval(call_id, arguments)
        await scope.turn.end(cause="terminated")
        return True


class BlockingRecorder(BaseCallbackHandler):
    """Records one run of an agent or graph into one turn, blocking. Give it in `callbacks`.

    Nothing is streamed that the agent does not stream itself, unless `streaming` asks for it: then
    `invoke` asks models for streams, and text is recorded as it comes. `of` is the turn that this
    one continues.

    If interrupted: what came is in the journal. A message that was cut off is partial, a tool that
    ran has its result or an unknown outcome; the turn's block gives the turn its ending.
    """

    raise_error = True
    run_inline = True

    def __new__(cls, turn: Turn, *, streaming: bool = False, of: str | None = None) -> Self:
        return super().__new__(
            _BlockingStreamingRecorder if streaming and cls is BlockingRecorder else cls
        )

    def __init__(self, turn: Turn, *, streaming: bool = False, of: str | None = None) -> None:
        super().__init__()
        self._recorder = Recorder(awaited(turn), of=of)

    def on_chat_model_start(self, *given: Any, **named: Any) -> None:
        run_now(self._recorder.on_chat_model_start(*given, **named))

    def on_llm_new_token(self, *given: Any, **named: Any) -> None:
        run_now(self._recorder.on_llm_new_token(*given, **named))

    def on_llm_end(self, *given: Any, **named: Any) -> None:
        run_now(self._recorder.on_llm_end(*given, **named))

    def on_llm_error(self, *given: Any, **named: Any) -> None:
        run_now(self._recorder.on_llm_error(*given, **named))

    def on_tool_start(self, *given: Any, **named: Any) -> None:
        run_now(self._recorder.on_tool_start(*given, **named))

    def on_tool_end(self, *given: Any, **named: Any) -> None:
        run_now(self._recorder.on_tool_end(*given, **named))

    def on_tool_error(self, *given: Any, **named: Any) -> None:
        run_now(self._recorder.on_tool_error(*given, **named))

    def on_chain_start(self, *given: Any, **named: Any) -> None:
        run_now(self._recorder.on_chain_start(*given, **named))

    def on_chain_end(self, *given: Any, **named: Any) -> None:
        run_now(self._recorder.on_chain_end(*given, **named))

    def on_chain_error(self, *given: Any, **named: Any) -> None:
        run_now(self._recorder.on_chain_error(*given, **named))

    def pause(self, result: Any) -> bool:
        """Record that a run waits for a person; False if it does not wait.

        Call it with what `invoke` returned, in the turn's block. The turn is then over, as
        interrupted, and waits on. LangGraph's checkpoint has the run: resume it with `Command`, in
        a turn that continues this one, with `BlockingRecorder(turn, of=…)`.

        If interrupted: call it again; what was asked is asked once.
        """
        return run_now(self._recorder.pause(result))


class _WantsStreams:
    """Has the methods by which LangChain knows a handler that wants streams."""

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        return output


class _StreamingRecorder(_WantsStreams, Recorder):
    pass


class _BlockingStreamingRecorder(_WantsStreams, BlockingRecorder):
    pass
