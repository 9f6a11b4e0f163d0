"""The recorder: pydantic-ai's own hooks around models and tools.

A model is wrapped where it is asked, so that every request is one model call of the journal, also
one that is repeated. A tool is wrapped where it is executed, in the task it runs in, so that
siblings are recorded apart from each other.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from pydantic_ai import RunContext, ToolDefinition, ToolDenied
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import ValidatedToolArgs, WrapToolExecuteHandler
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    SkipToolExecution,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_ai.messages import (
    AgentStreamEvent,
    BinaryContent,
    FileUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    SystemPromptPart,
    TextContent,
    ToolCallPart,
    ToolResultEvent,
    ToolReturn,
    ToolReturnPart,
    UserContent,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved

from killick.adapters.pydantic_ai.parts import PartApplier
from killick.adapters.shared_store import open_child
from killick.journal.codec import to_bytes
from killick.journal.kinds import digest
from killick.model import entries as e
from killick.model.effects import Effect, effect_of_hints
from killick.model.messages import File, Image, Json, Message, Prompt, Text, ToolCall, ToolResult
from killick.session.aio import AsyncSession
from killick.session.aio_blocks import AsyncStream, AsyncTool, AsyncTurn
from killick.session.core.session import Content
from killick.session.sync_blocks import plain

_REPORTED = (ToolRetryError, ToolFailedError, ToolFailed, ModelRetry)
"""How a tool tells the model that it did not work."""

_DEFERRED = (ApprovalRequired, CallDeferred, SkipToolExecution)


class Recorder(AbstractCapability[Any]):
    """Records one run of an agent into one turn. Give it in `capabilities`, one for each run.

    A run that streams is recorded as it comes, another answer by answer; with `streaming=True`
    `agent.run` asks its models for streams.

    If interrupted: what came is in the journal. A message that was cut off is partial, a tool that
    ran has its result or an unknown outcome; the turn's block gives the turn its ending.
    """

    def __init__(self, turn: AsyncTurn, *, streaming: bool = False) -> None:
        self.turn = turn
        self.arguments: dict[str, str] = {}
        """What the model wrote for each call, by its id: exactly as recorded."""
        self.tools: dict[str, AsyncTool] = {}
        """The tools that run now; `output` of one is recorded as it is printed."""
        self._streaming = streaming
        self._answered: set[str] = set()
        self._deferred: set[str] = set()
        self._asked: dict[int, tuple[int, str]] = {}

    @property
    def has_wrap_run_event_stream(self) -> bool:
        # What makes `agent.run()` stream; `on_event` is given the results of tools all the same.
        return self._streaming

    @property
    def has_on_event(self) -> bool:
        return self._streaming

    def get_wrapper_model(self, model: Model) -> Model | None:
        return _RecordedModel(model, self)

    @asynccontextmanager
    async def subagent(
        self, call_id: str | None, prompt: Prompt, *, title: str | None = None
    ) -> "AsyncIterator[Recorder]":
        """Record the run of an agent inside of a tool, in a session of its own.

        A block in the tool, with the id of its call, `ctx.tool_call_id`; it gives the recorder for
        the inner run.

        If interrupted: what came is in that session, whose turn has its ending.
        """
        session = await open_child(self.turn, call_id or "", title=title)
        async with session.turn(prompt) as turn:
            yield Recorder(turn, streaming=self._streaming)

    # -- model calls ---------------------------------------------------------------------------

    def model_call(
        self,
        model: Model,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        step: int,
    ) -> AsyncStream:
        """Return one request as a block; another in the same step of a run is a retry."""
        attempt, before = self._asked.get(step, (0, None))
        stream = self.turn.stream(
            provider=model.system,
            model=model.model_name,
            settings=_settings(settings),
            system=_system(messages) or None,
            tools=_tools(parameters),
            attempt=attempt + 1,
            retry_of=before,
        )
        self._asked[step] = (attempt + 1, stream.model_call_id)
        return stream

    def remember_calls(self, reply: AsyncStream) -> None:
        """Remember the calls of an answer that is over."""
        for call in reply.tool_calls:
            self.arguments[call.id] = call.arguments
            self._answered.discard(call.id)  # a provider may use an id again

    # -- tools ---------------------------------------------------------------------------------

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Run a tool: its start is durable before it, its result before the agent gets it."""
        call_id = call.tool_call_id
        tool = self.tools.get(call_id)  # a call that was deferred while it ran goes on
        if tool is None:
            tool = self.turn.tool(call_id, effect=_effect(tool_def))
            await tool.__aenter__()
            self.tools[call_id] = tool
        self._deferred.discard(call_id)
        try:
            value = await handler(args)
        except _DEFERRED:
            self._deferred.add(call_id)
            raise
        except _REPORTED as failure:
            await self._finish(call, tool, failure)
            raise
        except BaseException as error:
            del self.tools[call_id]
            self._answered.add(call_id)
            await tool.__aexit__(type(error), error, error.__traceback__)
            raise
        await self._finish(call, tool, value)
        return value

    async def _finish(self, call: ToolCallPart, tool: AsyncTool, value: Any) -> None:
        try:
            result = _result(call, value)
            try:
                content = await self._with_files(result.content, _shown(value))
            except BaseException:  # what it said is known, and the outcome must be
                await tool.finish(
                    result.content, is_error=result.is_error, structured=result.structured
                )
                raise
            await tool.finish(content, is_error=result.is_error, structured=result.structured)
        finally:
            self.tools.pop(call.tool_call_id, None)
        self._answered.add(call.tool_call_id)

    async def _with_files(self, content: Content, shown: list[UserContent]) -> Content:
        """Return a result with the images and files beside its words."""
        parts: list[Text | Image | File] = (
            [Text(content)] if isinstance(content, str) and content else []
        )
        for item in shown:
            match item:
                case BinaryContent():
                    kind = Image if item.media_type.startswith("image/") else File
                    parts.append(kind(await self.turn.put_blob(item.data), item.media_type))
                case FileUrl():
                    parts.append(Text(item.url))
                case TextContent():
                    parts.append(Text(item.content))
                case str() if item:
                    parts.append(Text(item))
                case _:
                    pass  # a mark for a cache, or a file that only the provider has
        return parts if shown and parts else content

    async def on_event(self, ctx: RunContext[Any], *, event: AgentStreamEvent) -> None:
        """Record a result of no tool: bad arguments, an unknown tool, a refusal, a final answer."""
        await super().on_event(ctx, event=event)
        if not isinstance(event, ToolResultEvent) or event.tool_call_id in self._answered:
            return
        part, tool = event.part, self.tools.get(event.tool_call_id)
        if tool is not None and event.tool_call_id not in self._deferred:
            return  # it is still running; what it is said to have returned is made up
        self._answered.add(event.tool_call_id)
        if tool is not None:  # it had asked to wait, and was answered from elsewhere: by a refusal
            del self.tools[event.tool_call_id]
            await tool.finish(_text_of(part), is_error=_is_error(part))
            return
        result = ToolResult(part.tool_call_id, _text_of(part), is_error=_is_error(part))
        await self.turn.record(Message(role="tool", parts=(result,)))


class _RecordedModel(WrapperModel):
    """A model that records what it is asked and what it answers."""

    def __init__(self, wrapped: Model, recorder: Recorder) -> None:
        super().__init__(wrapped)
        self._recorder = recorder

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        # The step is not known here; a repeated request is as long as the first.
        step = -len(messages)
        call = self._recorder.model_call(
            self.wrapped, messages, model_settings, model_request_parameters, step
        )
        async with call as reply:
            response = await self.wrapped.request(
                messages, model_settings, model_request_parameters
            )
            applier = PartApplier(reply, self.wrapped.system)
            applier.whole(response)
            applier.end(response, ended=True)
        self._recorder.remember_calls(reply)
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        step = run_context.run_step if run_context is not None else -1
        call = self._recorder.model_call(
            self.wrapped, messages, model_settings, model_request_parameters, step
        )
        async with call as reply:
            async with self.wrapped.request_stream(
                messages, model_settings, model_request_parameters, run_context
            ) as response:
                tee = _Tee(response, PartApplier(reply, self.wrapped.system))
                yield response
            tee.end()
        self._recorder.remember_calls(reply)


class _Tee:
    """Records every event of a response before the agent gets it.

    It takes the place of the one method that pydantic-ai asks a response for its events with, so
    that deadlines, cancelling and the other things around it stay as they are.
    """

    def __init__(self, response: StreamedResponse, applier: PartApplier) -> None:
        self._response = response
        self._applier = applier
        self._events = response._get_event_iterator
        self._began = self._ended = False
        response._get_event_iterator = self._recorded  # type: ignore[method-assign]

    async def _recorded(self) -> AsyncIterator[ModelResponseStreamEvent]:
        self._began = True
        async for event in self._events():
            self._applier.write_event(event)
            yield event
        self._ended = True

    def end(self) -> None:
        response = self._response.get()
        if not self._began and response.state == "complete":  # it was never a stream
            self._applier.whole(response)
            self._ended = True
        self._applier.end(response, ended=self._ended)


def _result(call: ToolCallPart, value: Any) -> ToolResult:
    """Return a tool's result as the model gets it."""
    if isinstance(value, ToolRetryError):
        retry = value.tool_retry
        text = _text_of(retry) if isinstance(retry, ToolReturnPart) else str(value)
        return ToolResult(call.tool_call_id, text, is_error=True)
    if isinstance(value, ToolFailed | ModelRetry):
        return ToolResult(call.tool_call_id, value.message, is_error=True)
    if isinstance(value, ToolFailedError):
        return ToolResult(call.tool_call_id, _text_of(value.tool_failed), is_error=True)
    content = value.return_value if isinstance(value, ToolReturn) else value
    part: ToolReturnPart[Any] = (
        content
        if isinstance(content, ToolReturnPart)
        else ToolReturnPart(call.tool_name, content, call.tool_call_id)
    )
    structured = None if isinstance(content, str | ToolReturnPart) else plain(content)
    text = _text_of(part)
    return ToolResult(call.tool_call_id, text, is_error=_is_error(part), structured=structured)


def _shown(value: Any) -> list[UserContent]:
    """Return the files in a result, and the content that its tool adds."""
    if isinstance(value, BaseException):
        return []
    content = value.return_value if isinstance(value, ToolReturn) else value
    part: ToolReturnPart[Any] = (
        content if isinstance(content, ToolReturnPart) else ToolReturnPart("", content, "")
    )
    added = (value.content if isinstance(value, ToolReturn) else None) or ()
    return [*part.files, *([added] if isinstance(added, str) else added)]


def _text_of(part: ToolReturnPart[Any]) -> str:
    """Return the words alone; that it is an error is recorded beside them."""
    return part.model_response_str(wrap_if_error=False)


def _is_error(part: ToolReturnPart[Any]) -> bool:
    return part.outcome != "success"


def _effect(tool_def: ToolDefinition) -> Effect:
    """Return the effect that an MCP server's hints about a tool speak of; once without them."""
    hints = (tool_def.metadata or {}).get("annotations")
    return effect_of_hints(hints if isinstance(hints, Mapping) else None)


def _settings(settings: ModelSettings | None) -> dict[str, Any]:
    """Return the settings that JSON can hold, without headers, which may hold secrets."""
    given = {key: value for key, value in (settings or {}).items() if not key.startswith("extra_")}
    return {key: kept for key, value in given.items() if (kept := plain(value)) is not None}


def _system(messages: list[ModelMessage]) -> str:
    """Return the instructions of a request: system prompts and those of its newest message."""
    texts = [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, SystemPromptPart)
    ]
    newest = next(
        (message for message in reversed(messages) if isinstance(message, ModelRequest)), None
    )
    if newest is not None and newest.instructions:
        texts.append(newest.instructions)
    return "\n\n".join(texts)


def _tools(parameters: ModelRequestParameters) -> Json:
    defined = [*parameters.function_tools, *parameters.output_tools]
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": plain(tool.parameters_json_schema),
        }
        for tool in defined
    ] or None


# -- approvals: the question is an entry, and so is the answer -------------------------------------

REFUSED = "The user refused this call."


class Approvals(AbstractCapability[Any]):
    """Asks about the calls of tools that are made with `requires_approval=True`, and waits.

    Tools that are named in `allowed` run without asking.

    If interrupted: what was asked for stays asked for; a decision can still be made, and `granted`
    gives the calls that it allows.
    """

    def __init__(
        self, session: AsyncSession, recorder: Recorder, *, allowed: Collection[str] = ()
    ) -> None:
        self._session = session
        self._recorder = recorder
        self._allowed = allowed

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Ask about each call, all at once, and wait until all are decided."""
        recorder, after = self._recorder, self._session.head
        results = DeferredToolResults()
        waiting: dict[str, str] = {}
        for call in requests.approvals:
            call_id = call.tool_call_id
            if call.tool_name in self._allowed:
                results.approvals[call_id] = ToolApproved()
                continue
            made = recorder.arguments.get(call_id, "")
            asked = await recorder.turn.ask_approval(call_id, made)
            waiting[asked.id] = call_id
        if not waiting:
            return results if results.approvals else None
        async for followed in self._session.follow(after=after):
            if not isinstance(followed, e.Entry) or not isinstance(
                followed.body, e.ApprovalDecided
            ):
                continue
            decided = followed.body
            if decided.id in waiting:
                results.approvals[waiting.pop(decided.id)] = (
                    ToolApproved() if decided.approved else ToolDenied(decided.reason or REFUSED)
                )
            if not waiting:
                break
        return results


class Granted(msgspec.Struct, frozen=True):
    """A call that was approved, and that its turn did not live to run."""

    turn_id: str
    call: ToolCall

    def arguments(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(self.call.arguments or "{}")
        return made


async def granted(session: AsyncSession, turn_id: str) -> list[Granted]:
    """Return the approved calls of an ended turn that were never started.

    A call is among them only if what was approved is what was asked for: the hash of the arguments
    that are recorded is that of the decision.
    """
    return find_granted(await session.entries(), turn_id)


def find_granted(entries: list[e.Entry], turn_id: str) -> list[Granted]:
    """Return the same from a journal's entries. Pure."""
    asked: dict[str, e.ApprovalAsked] = {}
    approved: list[str] = []
    calls: dict[tuple[str, str], ToolCall] = {}
    touched: set[tuple[str, str]] = set()
    for entry in entries:
        match entry.body:
            case e.ApprovalAsked(turn_id=asker) as body if asker == turn_id:
                asked[body.id] = body
            case e.ApprovalDecided(id=name, approved=True) as body if name in asked:
                if body.arguments_hash == asked[name].arguments_hash:
                    approved.append(name)
            case e.MessageRecorded() | e.MessageEnded() as body:
                parts = (part for part in body.parts if isinstance(part, ToolCall))
                calls.update({(body.id, part.id): part for part in parts})
            case e.ToolStarted() as body:
                touched.add((body.message_id, body.call_id))
            case e.ToolFinished() | e.LateResult() as body:
                touched.add((body.message_id, body.result.call_id))
            case _:
                pass
    grants = []
    for name in approved:
        question = asked[name]
        position = (question.message_id, question.call_id)
        call = calls.get(position)
        if call is None or position in touched:
            continue
        if digest(to_bytes(call.arguments)) == question.arguments_hash:
            grants.append(Granted(turn_id, call))
    return grants
