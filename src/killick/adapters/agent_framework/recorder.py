"""The recorder: middleware around models and tools, which finds its turn by context.

Middleware is given to an agent, or to a run; `recording` says which turn the runs inside of its
block belong to. A model that is asked inside of a tool is that of an agent that the tool runs: it
is recorded into a session of its own, if that agent has a recorder too.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agent_framework import (
    ChatContext,
    ChatMiddleware,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    MiddlewareFailure,
    MiddlewareTermination,
)
from agent_framework.exceptions import UserInputRequiredException

from killick.adapters.agent_framework.contents import (
    ContentApplier,
    data_of,
    last_prompt,
    request_facts,
    results_in,
    text_of,
    usage_of,
)
from killick.adapters.run_scopes import RunContext, RunningTool, RunScope
from killick.errors import KillickError
from killick.model.messages import Message, ToolCall
from killick.session.aio_blocks import AsyncStream, AsyncTurn

Next = Callable[[], Awaitable[None]]


class _Scope(RunScope):
    """One session that is recorded into."""

    def __init__(self, turn: AsyncTurn, *, of: str | None = None) -> None:
        super().__init__(turn, of=of)
        self._decided: set[str] = set()

    async def catch_up(self, results: list[Content]) -> None:
        """Record what a model is told of calls that no tool ran for: an unknown tool, a refusal."""
        for result in results:
            call_id = str(result.call_id)
            own = self.tools.calls.find(call_id)
            if own is not None:
                text, _ = text_of(result.items or result.result or "")
                failed = result.exception is not None
                await self.tools.answer(own, text, is_error=failed)
            elif self.of is not None and call_id not in self._decided:
                self._decided.add(call_id)
                await self.decide(call_id, approved=False)  # it would have been started

    async def start(self, context: FunctionInvocationContext) -> str:
        """Record that a tool starts, durably; returns the id under which its call is recorded."""
        call_id, name = str(context.metadata.get("call_id") or ""), context.function.name
        if context.metadata.get("approval_response") is not None:
            self._decided.add(call_id)
            await self.decide(call_id, approved=True)
        made = self.tools.calls.find(call_id, name, context.arguments)
        if made is None and self.of is None:
            made = self.tools.calls.find(call_id, name)  # middleware may have changed arguments
        if made is None and self.of is None:  # no model of this run made it
            arguments, _ = text_of(dict(context.arguments))
            call = ToolCall(call_id, name, arguments)
            await self.turn.record(Message(role="assistant", parts=(call,)))
            self.tools.calls.add([call])
        return await self.tools.start(made or call_id, name, context.arguments)

    async def finish_value(self, call_id: str, value: Any) -> None:
        """Record what a tool returned."""
        text, structured = text_of(value)
        contents = value if isinstance(value, list) else ()
        held = (data_of(content) for content in contents if isinstance(content, Content))
        media = [data for data in held if data is not None]
        await self.finish(call_id, text, media=media, structured=structured)


_context: RunContext[_Scope] = RunContext("agent_framework", _Scope)
recorded_turn = _context.recorded_turn


class Recorder:
    """Records runs into turns: `middleware` for an agent or a run, and `recording` around each run.

    Nothing is streamed that the run does not stream itself; with `stream=True` every update is
    recorded as it comes. Give it behind middleware of your own: what that changes is then recorded
    as the model was asked and as it answered.

    If interrupted: what came is in the journal. A message that was cut off is partial, a tool that
    ran has its result or an unknown outcome; the turn's block gives the turn its ending.
    """

    def __init__(self) -> None:
        self.middleware: list[ChatMiddleware | FunctionMiddleware] = [_Models(), _Tools()]
        """What to give as `middleware`, to an agent or to a run."""

    @contextmanager
    def recording(self, turn: AsyncTurn, *, of: str | None = None) -> Iterator[None]:
        """Record the runs of this block into a turn; `of` is the turn that it continues.

        If interrupted: it writes nothing itself.
        """
        with _context.recording(turn, of=of):
            yield

    async def pause(self, response: Any) -> bool:
        """Record that a run waits for a person; False if it does not wait.

        Call it with the response of a run, in the block of `recording`. The turn is then over, as
        interrupted, and waits on. Run with the approval's response, in a turn that continues this
        one: `recording(turn, of=…)`.

        If interrupted: call it again; what was asked is asked once.
        """
        scope = _context.outermost
        requests = [
            request.function_call
            for request in getattr(response, "user_input_requests", None) or ()
            if request.type == "function_approval_request" and request.function_call is not None
        ]
        if scope is None or not requests:
            return False
        calls = scope.tools.calls
        waiting = [calls.find(str(c.call_id or ""), c.name, c.arguments) for c in requests]
        await scope.ask(call_id for call_id in waiting if call_id is not None)
        await scope.turn.end(cause="terminated")
        return True


class _Models(ChatMiddleware):
    """Records what models are asked and what they answer."""

    async def process(self, context: ChatContext, call_next: Next) -> None:
        scope = await _context.scope(_context.inside.get(), lambda: last_prompt(context.messages))
        if scope is None:
            await call_next()
            return
        await scope.catch_up(results_in(context.messages))
        reply = await scope.stream(request_facts(context)).begin()
        applier = ContentApplier(reply)
        if context.stream:
            _record_updates(context, scope, reply, applier)
        try:
            await call_next()
        except BaseException as error:
            await scope.end(reply, error)
            raise
        response: Any = context.result
        if context.stream and response is not None:
            return
        for message in response.messages if response is not None else ():
            applier.add(message.contents)
        if response is not None:
            applier.end(response.finish_reason, response.response_id)
            reply.finish(usage=usage_of(response))
        await scope.end(reply, None)


def _record_updates(
    context: ChatContext, scope: _Scope, reply: AsyncStream, applier: ContentApplier
) -> None:
    """Have each update of a stream recorded before the run gets it, and its end."""
    facts: dict[str, Any] = {"finish_reason": None, "response_id": None}

    def on_update(update: Any) -> Any:
        applier.add(update.contents)
        facts["finish_reason"] = update.finish_reason or facts["finish_reason"]
        facts["response_id"] = update.response_id or facts["response_id"]
        return update

    async def on_end() -> None:
        error = getattr(context.result, "_stream_error", None)
        if error is None:
            applier.end(**facts)
        await scope.end(reply, error)

    context.stream_transform_hooks.append(on_update)
    context.stream_cleanup_hooks.append(on_end)


class _Tools(FunctionMiddleware):
    """Records starts and results of tools.

    The framework makes a result of any exception here but its own `MiddlewareFailure`, so a store
    that fails is raised as that.
    """

    async def process(self, context: FunctionInvocationContext, call_next: Next) -> None:
        scope = _context.known(_context.inside.get())
        if scope is None:
            await call_next()
            return
        try:
            call_id = await scope.start(context)
            inside = _context.inside.set(RunningTool(scope, call_id))
        except KillickError as error:
            raise MiddlewareFailure(f"the store failed: {error}") from error
        try:
            await call_next()
        except (UserInputRequiredException, MiddlewareTermination):
            raise  # it waits, or ends the run without a result
        except KillickError as error:
            raise MiddlewareFailure(f"the store failed: {error}") from error
        except BaseException as error:
            await _left(scope, call_id, error)
            raise
        finally:
            _context.inside.reset(inside)
        try:
            await scope.end_child(call_id)
            await scope.finish_value(call_id, context.result)
        except KillickError as error:
            raise MiddlewareFailure(f"the store failed: {error}") from error


async def _left(scope: _Scope, call_id: str, error: BaseException) -> None:
    try:
        await scope.end_child(call_id, error)
        await scope.tools.leave(call_id, error)
    except KillickError as failure:
        raise MiddlewareFailure(f"the store failed: {failure}") from failure
