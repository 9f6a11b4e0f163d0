"""The recorder: pydantic-ai's own hooks around models and tools.

A model is wrapped where it is asked, so that every request is one model call of the journal, also
one that is repeated. A tool is wrapped where it is executed, in the task it runs in, so that
siblings are recorded apart from each other.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import RunContext, ToolDefinition
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

from killick.adapters.pydantic_ai.parts import PartApplier
from killick.model.messages import File, Image, Json, Message, Text, ToolResult
from killick.session.aio_blocks import AsyncStream, AsyncTool, AsyncTurn
from killick.session.core.session import Content
from killick.session.sync_blocks import plain

_TOLD = (ToolRetryError, ToolFailedError, ToolFailed, ModelRetry)
"""How a tool tells the model that it did not work."""

_DEFERRED = (ApprovalRequired, CallDeferred, SkipToolExecution)


class Recorder(AbstractCapability[Any]):
    """Records one run of an agent into one turn. Give it in `capabilities`, one for each run.

    With `streaming=False` an answer is recorded when it is whole, for models that cannot stream.

    If interrupted: what came is in the journal. A message that was cut off is partial, a tool that
    ran has its result or an unknown outcome; the turn's block gives the turn its ending.
    """

    def __init__(self, turn: AsyncTurn, *, streaming: bool = True) -> None:
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
        # What makes `agent.run()` stream, so that there are deltas to record.
        return self._streaming

    @property
    def has_on_event(self) -> bool:
        return self._streaming

    def get_wrapper_model(self, model: Model) -> Model | None:
        return _RecordedModel(model, self)

    # -- model calls ---------------------------------------------------------------------------

    def model_call(
        self,
        model: Model,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        step: int,
    ) -> AsyncStream:
        """One request to a model, as a block; one more in the same step of a run repeats it."""
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

    def called(self, reply: AsyncStream) -> None:
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
        """The start is durable before the tool runs, the result before anybody is shown it."""
        call_id = call.tool_call_id
        tool = self.tools.get(call_id)  # a call that was deferred while it ran goes on
        if tool is None:
            tool = self.turn.tool(call_id)
            await tool.__aenter__()
            self.tools[call_id] = tool
        self._deferred.discard(call_id)
        try:
            value = await handler(args)
        except _DEFERRED:
            self._deferred.add(call_id)
            raise
        except _TOLD as told:
            await self._finish(call, tool, told)
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
            found = _result(call, value)
            try:
                content = await self._with_files(found.content, _shown(value))
            except BaseException:  # what it said is known, and the outcome must be
                await tool.finish(
                    found.content, is_error=found.is_error, structured=found.structured
                )
                raise
            await tool.finish(content, is_error=found.is_error, structured=found.structured)
        finally:
            self.tools.pop(call.tool_call_id, None)
        self._answered.add(call.tool_call_id)

    async def _with_files(self, told: Content, shown: list[UserContent]) -> Content:
        """A result with the images and files that a model is shown beside its words."""
        parts: list[Text | Image | File] = [Text(told)] if isinstance(told, str) and told else []
        for one in shown:
            match one:
                case BinaryContent():
                    kind = Image if one.media_type.startswith("image/") else File
                    parts.append(kind(await self.turn.put_blob(one.data), one.media_type))
                case FileUrl():
                    parts.append(Text(one.url))
                case TextContent():
                    parts.append(Text(one.content))
                case str() if one:
                    parts.append(Text(one))
                case _:
                    pass  # a mark for a cache, or a file that only the provider has
        return parts if shown and parts else told

    async def on_event(self, ctx: RunContext[Any], *, event: AgentStreamEvent) -> None:
        """A result that no tool gave: bad arguments, an unknown tool, a refusal, a final answer."""
        await super().on_event(ctx, event=event)
        if not isinstance(event, ToolResultEvent) or event.tool_call_id in self._answered:
            return
        part, tool = event.part, self.tools.get(event.tool_call_id)
        if tool is not None and event.tool_call_id not in self._deferred:
            return  # it is still running; what it is said to have returned is made up
        self._answered.add(event.tool_call_id)
        if tool is not None:  # it had asked to wait, and was answered from elsewhere: by a refusal
            del self.tools[event.tool_call_id]
            await tool.finish(_told(part), is_error=_is_error(part))
            return
        result = ToolResult(part.tool_call_id, _told(part), is_error=_is_error(part))
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
        # Nobody says which step this is; a request that is repeated is as long as it was.
        step = -len(messages)
        call = self._recorder.model_call(
            self.wrapped, messages, model_settings, model_request_parameters, step
        )
        async with call as reply:
            response = await self.wrapped.request(
                messages, model_settings, model_request_parameters
            )
            taking = PartApplier(reply, self.wrapped.system)
            taking.whole(response)
            taking.end(response, ended=True)
        self._recorder.called(reply)
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
        self._recorder.called(reply)


class _Tee:
    """Every event of a response is recorded before whoever iterates the response is given it.

    It takes the place of the one method that pydantic-ai asks a response for its events with, so
    that deadlines, cancelling and the other things around it stay as they are.
    """

    def __init__(self, response: StreamedResponse, taking: PartApplier) -> None:
        self._response = response
        self._taking = taking
        self._events = response._get_event_iterator
        self._began = self._ended = False
        response._get_event_iterator = self._recorded  # type: ignore[method-assign]

    async def _recorded(self) -> AsyncIterator[ModelResponseStreamEvent]:
        self._began = True
        async for event in self._events():
            self._taking.take(event)
            yield event
        self._ended = True

    def end(self) -> None:
        response = self._response.get()
        if not self._began and response.state == "complete":  # it was never a stream
            self._taking.whole(response)
            self._ended = True
        self._taking.end(response, ended=self._ended)


def _result(call: ToolCallPart, value: Any) -> ToolResult:
    """A tool's result as the model is told it."""
    if isinstance(value, ToolRetryError):
        told = value.tool_retry
        text = _told(told) if isinstance(told, ToolReturnPart) else str(value)
        return ToolResult(call.tool_call_id, text, is_error=True)
    if isinstance(value, ToolFailed | ModelRetry):
        return ToolResult(call.tool_call_id, value.message, is_error=True)
    if isinstance(value, ToolFailedError):
        return ToolResult(call.tool_call_id, _told(value.tool_failed), is_error=True)
    content = value.return_value if isinstance(value, ToolReturn) else value
    part: ToolReturnPart[Any] = (
        content
        if isinstance(content, ToolReturnPart)
        else ToolReturnPart(call.tool_name, content, call.tool_call_id)
    )
    structured = None if isinstance(content, str | ToolReturnPart) else plain(content)
    text = _told(part)
    return ToolResult(call.tool_call_id, text, is_error=_is_error(part), structured=structured)


def _shown(value: Any) -> list[UserContent]:
    """What a model is shown beside a result's words: files in it, and what a tool adds to it."""
    if isinstance(value, BaseException):
        return []
    content = value.return_value if isinstance(value, ToolReturn) else value
    part: ToolReturnPart[Any] = (
        content if isinstance(content, ToolReturnPart) else ToolReturnPart("", content, "")
    )
    added = (value.content if isinstance(value, ToolReturn) else None) or ()
    return [*part.files, *([added] if isinstance(added, str) else added)]


def _told(part: ToolReturnPart[Any]) -> str:
    """The words alone: whether it is an error is recorded beside them, and said when it is sent."""
    return part.model_response_str(wrap_if_error=False)


def _is_error(part: ToolReturnPart[Any]) -> bool:
    return part.outcome != "success"


def _settings(settings: ModelSettings | None) -> dict[str, Any]:
    """What JSON can hold of the settings; headers and the like may hold secrets."""
    given = {key: value for key, value in (settings or {}).items() if not key.startswith("extra_")}
    return {key: found for key, value in given.items() if (found := plain(value)) is not None}


def _system(messages: list[ModelMessage]) -> str:
    """The instructions of a request: those of its newest message, and its system prompts."""
    texts = [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, SystemPromptPart)
    ]
    newest = next((one for one in reversed(messages) if isinstance(one, ModelRequest)), None)
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
