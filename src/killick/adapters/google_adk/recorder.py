"""The recorder: a plugin around the ADK's models and tools, which finds its turn by context.

A plugin is made once for a runner, a turn for each run; `recording` says which turn the runs inside
of its block belong to. A model that is asked inside of a tool is that of an agent that the tool
runs: it is recorded into a session of its own.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from google.adk.flows.llm_flows.functions import generate_client_function_call_id
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool

from killick.adapters.google_adk.contents import (
    ResponseApplier,
    history,
    is_failure,
    last_prompt,
    request_facts,
    told,
)
from killick.adapters.run_scopes import RunContext, RunningTool, RunScope
from killick.model.messages import Message, ToolCall
from killick.session.aio_blocks import AsyncStream, AsyncTurn
from killick.session.sync_blocks import plain


class _Scope(RunScope):
    """One session that is recorded into; agents may run in it side by side."""

    def __init__(self, turn: AsyncTurn, *, of: str | None = None) -> None:
        super().__init__(turn, of=of)
        self.replies: dict[str, tuple[AsyncStream, ResponseApplier]] = {}
        self.waiting: set[str] = set()
        self.unknown: set[str] = set()
        self.failed: dict[str, tuple[int, str]] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self._known_as: dict[tuple[str, str], str] = {}
        self._ending: dict[str, set[str]] = {}

    async def begin(self, key: str) -> tuple[AsyncStream, ResponseApplier]:
        """Begin the next request of an agent; after one that failed it is a retry."""
        attempt, first = self.failed.get(key, (0, None))
        reply = self.turn.stream(**self.facts[key], attempt=attempt + 1, retry_of=first)
        await reply.begin()
        self.replies[key] = (reply, ResponseApplier(self.turn, reply))
        return self.replies[key]

    def name_calls(self, key: str, response: Any) -> dict[str, str]:
        """Return the ids under which an answer's calls are recorded, by those that they have.

        Agents side by side may use the same id at once, which a turn takes only one after another.
        """
        names: dict[str, str] = {}
        for call in _calls(response):
            if not call.id:  # the ADK would mint one after this callback
                call.id = generate_client_function_call_id()
            ending = any(call.id in ids for ids in self._ending.values())
            taken = ending or call.id in self.tools.calls
            names[call.id] = f"{call.id}_{self.replies[key][0].id[-8:]}" if taken else call.id
            self._known_as[key, call.id] = names[call.id]
        self._ending[key] = set(names.values())
        return names

    def own(self, key: str, call_id: str) -> str:
        """Return the id under which a call of an agent's is recorded."""
        return self._known_as.get((key, call_id), call_id)

    async def end_of(self, key: str) -> None:
        """End the answer of an agent, and remember its calls."""
        self.failed.pop(key, None)
        reply, _ = self.replies.pop(key)
        await self.end(reply)
        self._ending.pop(key, None)


_context: RunContext[_Scope] = RunContext("adk", _Scope)


def recorded_session() -> str | None:
    """Return the id of the session that the runs of this context are recorded into."""
    scope = _context.outermost
    return None if scope is None else scope.tools.session.id


def _scope() -> _Scope | None:
    """Return where this is recorded."""
    return _context.known(_context.inside.get())


class Recorder(BasePlugin):
    """Records runs into turns: a plugin of a runner, and `recording` around each run.

    Nothing is streamed that the run does not stream itself; with `StreamingMode.SSE` every chunk is
    recorded as it comes.

    If interrupted: what came is in the journal. A message that was cut off is partial, a tool that
    ran has its result or an unknown outcome; the turn's block gives the turn its ending.
    """

    def __init__(self, name: str = "killick") -> None:
        super().__init__(name)

    @contextmanager
    def recording(self, turn: AsyncTurn, *, of: str | None = None) -> Iterator[None]:
        """Record the runs of this block into a turn; `of` is the turn that it continues.

        If interrupted: it writes nothing itself.
        """
        with _context.recording(turn, of=of):
            yield

    # -- models ----------------------------------------------------------------------------------

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        contents = llm_request.contents
        scope = await _context.scope(_context.inside.get(), lambda: last_prompt(contents))
        if scope is None:
            return
        key = _agent_key(callback_context)
        if key in scope.replies:  # a callback of the agent's answered in the model's place
            await scope.end_of(key)
        scope.facts[key] = request_facts(llm_request)
        await scope.begin(key)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        scope = _scope()
        key = _agent_key(callback_context)
        if scope is None or key not in scope.facts:
            return
        _, applier = scope.replies.get(key) or await scope.begin(key)
        if llm_response.partial:
            await applier.add(llm_response)
            return
        await applier.end(llm_response, scope.name_calls(key, llm_response))
        await scope.end_of(key)

    async def on_model_error_callback(
        self, *, callback_context: Any, llm_request: Any, error: Exception
    ) -> None:
        scope = _scope()
        key = _agent_key(callback_context)
        if scope is not None and key in scope.replies:
            reply, _ = scope.replies.pop(key)
            attempt, first = scope.failed.get(key, (0, reply.model_call_id))
            scope.failed[key] = (attempt + 1, first)
            await reply.end(error)

    # -- tools -----------------------------------------------------------------------------------

    async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> None:
        scope = _scope()
        if scope is None or not tool_context.function_call_id:
            return
        call_id = scope.own(_agent_key(tool_context), tool_context.function_call_id)
        made = scope.tools.calls.find_to_start(call_id, tool.name, tool_args)
        if made is None and scope.of is None:
            # No model of this run made it: a callback of the agent's, or an earlier run, did.
            call = ToolCall(call_id, tool.name, json.dumps(plain(tool_args or {})))
            await scope.turn.record(Message(role="assistant", parts=(call,)))
            scope.tools.calls.add([call])
        if type(tool) is BaseTool:
            scope.unknown.add(call_id)  # a tool that is not there: nothing starts
            return
        if not await _may_run(scope, call_id, tool, tool_args, tool_context):
            return
        own = await scope.tools.start(call_id, tool.name, tool_args)
        key, given = _agent_key(tool_context), tool_context.function_call_id
        _context.inside.set(RunningTool(scope, own, key, given))

    async def after_tool_callback(
        self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any
    ) -> None:
        scope, call_id = _around(tool_context)
        if scope is None or call_id in scope.waiting:
            return
        if (tool.is_long_running or getattr(tool, "_defers_response", False)) and not result:
            return  # its response comes later, from elsewhere
        _context.inside.set(None)
        await scope.end_child(call_id)
        text, structured = told(result)
        await scope.tools.finish(call_id, text, is_error=is_failure(result), structured=structured)

    async def on_tool_error_callback(
        self, *, tool: Any, tool_args: Any, tool_context: Any, error: BaseException
    ) -> None:
        scope, call_id = _around(tool_context)
        if scope is not None and call_id not in scope.unknown:
            _context.inside.set(None)
            await scope.end_child(call_id, error)
            await scope.tools.leave(call_id, error)

    # -- what no callback tells ------------------------------------------------------------------

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> None:
        """Record the response of a call that was answered from elsewhere."""
        scope = _context.outermost
        if scope is None or scope.of is None or _context.inside.get() is not None:
            return
        for part in user_message.parts or ():
            answer = part.function_response
            if answer is not None and answer.id and answer.name != CONFIRMATION:
                text, structured = told(answer.response)
                await scope.tools.session.finish_tool(
                    scope.of, answer.id, text, structured=structured
                )

    async def on_event_callback(self, *, invocation_context: Any, event: Any) -> None:
        """Record what a model is told of calls that no tool ran for."""
        scope = None if event.partial else _scope()
        if scope is None:
            return
        for answer in event.get_function_responses():
            author = f"{event.invocation_id}/{event.branch}/{event.author}"
            call_id = scope.own(author, answer.id or "")
            if call_id in scope.tools.calls and call_id not in scope.waiting:
                text, _ = told(answer.response)
                failed = call_id in scope.unknown or is_failure(answer.response)
                await scope.tools.answer(call_id, text, is_error=failed)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """End a turn that waits for a person, as interrupted: it is not complete."""
        scope = _context.outermost
        if scope is not None and scope.waiting and _context.inside.get() is None:
            await scope.turn.end(cause="terminated")


CONFIRMATION = "adk_request_confirmation"
"""The function that the ADK has a person respond to."""


async def _may_run(
    scope: _Scope, call_id: str, tool: Any, tool_args: Any, tool_context: Any
) -> bool:
    """Return whether a person need not be asked, or said yes; what is asked and said is recorded.

    If interrupted: what was asked is asked once.
    """
    if await tool.check_require_confirmation(tool_args, tool_context) is not True:
        return True
    confirmation = tool_context.tool_confirmation
    if confirmation is None:
        scope.waiting.add(call_id)
        await scope.ask([call_id])
        return False
    # Who ran this answered the ADK, not `session.decide_approval`.
    await scope.decide(call_id, approved=bool(confirmation.confirmed))
    return bool(confirmation.confirmed)


def _around(tool_context: Any) -> tuple[_Scope | None, str]:
    """Return the scope that this call was started in, and its id."""
    key, given = _agent_key(tool_context), tool_context.function_call_id or ""
    around = _context.inside.get()
    scope = _context.outermost
    if around is not None:
        if (around.agent, around.given) == (key, given):
            return around.scope, around.call_id
        scope = around.scope.children.get(around.call_id)  # inside of another tool: its agent's
    return scope, given if scope is None else scope.own(key, given)


def _calls(response: Any) -> list[Any]:
    parts = (response.content and response.content.parts) or ()
    return [part.function_call for part in parts if part.function_call is not None]


def _agent_key(callback_context: Any) -> str:
    """Return which agent of a run asks: those that run side by side have branches."""
    context = callback_context._invocation_context
    return f"{context.invocation_id}/{context.branch}/{callback_context.agent_name}"


class JournalContext(BasePlugin):
    """Gives the model the journal's view of the conversation; the ADK's session stays as it is.

    A plugin beside `Recorder`. What the session's events lost, left without a response or cannot
    know is in the journal. An agent that a tool runs keeps the contents that the ADK gives it.
    """

    def __init__(self, name: str = "killick_view") -> None:
        super().__init__(name)

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        scope = _context.outermost
        if scope is not None and _context.inside.get() is None:
            llm_request.contents = await history(scope.tools.session)
