"""The recorder: a plugin around Strands' models and tools, which finds its turn by context.

A plugin is given to agents, a turn to a run; `recording` says which turn the runs inside of its
block belong to. A model that is asked inside of a tool is that of an agent that the tool runs: it
is recorded into a session of its own, if that agent has a recorder too.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from strands.hooks import AfterToolCallEvent, HookOrder
from strands.middleware import ExecuteToolStage, InvokeModelStage
from strands.plugins import Plugin

from killick.adapters.run_scopes import RunContext, RunningTool, RunScope
from killick.adapters.strands.contents import (
    PieceApplier,
    last_prompt,
    request_facts,
    shown,
    told,
)
from killick.errors import KillickError
from killick.model.messages import Message, ToolCall
from killick.session.aio_blocks import AsyncTurn


class _Scope(RunScope):
    """One session that is recorded into."""

    failure: KillickError | None = None
    """Why the store failed: Strands makes a tool's result of an exception around a tool."""

    async def start(self, tool_use: Any) -> str:
        """Record that a tool starts, durably; returns the id under which its call is recorded."""
        given, name, arguments = _of(tool_use)
        own = self.tools.calls.find_to_start(given, name, arguments)
        if own is None and self.of is not None:
            await self.decide(given, approved=True)
        elif own is None:  # no model of this run made it
            text, _ = told({"content": [{"json": arguments}]})
            call = ToolCall(given, name, text)
            await self.turn.record(Message(role="assistant", parts=(call,)))
            self.tools.calls.add([call])
        return await self.tools.start(own or given, name, arguments)

    async def finish_result(self, call_id: str, result: Any) -> None:
        """Record what a tool returned."""
        text, structured = told(result)
        failed = result.get("status") == "error"
        await self.finish(
            call_id, text, media=shown(result), is_error=failed, structured=structured
        )


_context: RunContext[_Scope] = RunContext("strands", _Scope)
recorded_turn = _context.recorded_turn


def _around(agent: Any) -> RunningTool[_Scope] | None:
    """Return the tool that this agent runs inside of; its own, which is over, is not."""
    around = _context.inside.get()
    while around is not None and around.agent is agent:
        around = around.outer
    return around


class Recorder(Plugin):
    """Records runs into turns: a plugin of agents, and `recording` around each run.

    For `invoke_async` and `stream_async`.

    If interrupted: what came is in the journal. A message that was cut off is partial, a tool that
    ran has its result or an unknown outcome; the turn's block gives the turn its ending.
    """

    @property
    def name(self) -> str:
        return "killick"

    def init_agent(self, agent: Any) -> None:
        """Put the recorder around an agent's models and tools; Strands calls it."""
        agent.add_middleware(InvokeModelStage, _record_model)
        agent.add_middleware(ExecuteToolStage, _record_tool)
        # After other hooks, which may change a result or have the tool run again.
        agent.hooks.add_callback(AfterToolCallEvent, _after_tool, order=HookOrder.SDK_LAST)

    @contextmanager
    def recording(self, turn: AsyncTurn, *, of: str | None = None) -> Iterator[None]:
        """Record the runs of this block into a turn; `of` is the turn that it continues.

        If interrupted: it writes nothing itself.
        """
        with _context.recording(turn, of=of):
            yield

    async def pause(self, result: Any) -> bool:
        """Record that a run waits for a person; False if it does not wait.

        Call it with the result of a run, in the block of `recording`. The turn is then over, as
        interrupted, and waits on. Run with the interrupts' responses, in a turn that continues this
        one: `recording(turn, of=…)`.

        If interrupted: call it again; what was asked is asked once.
        """
        scope = _context.outermost
        if scope is None or result.stop_reason != "interrupt":
            return False
        about = [interrupt.id for interrupt in result.interrupts or ()]
        waiting = [call.id for call in scope.tools.calls if any(f":{call.id}:" in i for i in about)]
        await scope.ask(i for i in waiting if not scope.tools.calls.is_running(i))
        await scope.turn.end(cause="terminated")
        return True


async def _record_model(context: Any, next_fn: Any) -> AsyncIterator[Any]:
    """Record what a model is asked and what it answers."""
    scope = await _context.scope(
        _around(context.agent),
        lambda: last_prompt(context.messages),
        title=getattr(context.agent, "name", None),
    )
    if scope is None:
        async for event in next_fn(context):
            yield event
        return
    if scope.failure is not None:
        raise scope.failure
    reply = await scope.stream(request_facts(context)).begin()
    applier = PieceApplier(reply)
    stop: Any = None
    try:
        async for event in next_fn(context):
            if "event" in event:
                applier.add(event["event"])
            elif "stop" in event:
                stop = event["stop"]
                applier.end(stop)
                await scope.end(reply)
            yield event
    except BaseException as error:
        if stop is None:
            await reply.end(error)
        raise


async def _record_tool(context: Any, next_fn: Any) -> AsyncIterator[Any]:
    """Record that a tool starts, before it runs."""
    scope = _context.known(_around(context.agent))
    if scope is not None and context.tool is not None and not _is_again(context):
        try:
            own = await scope.start(context.tool_use)
        except KillickError as failure:
            scope.failure = failure
            raise
        given = _of(context.tool_use)[0]
        _context.inside.set(RunningTool(scope, own, context.agent, given, _context.inside.get()))
    async for event in next_fn(context):
        yield event


def _is_again(context: Any) -> bool:
    """Return whether this call runs already: a hook asked for it to run once more."""
    around = _context.inside.get()
    return around is not None and _is_of(around, context.agent, context.tool_use)


def _is_of(around: RunningTool[_Scope], agent: Any, tool_use: Any) -> bool:
    return around.agent is agent and around.given == _of(tool_use)[0]


async def _after_tool(event: AfterToolCallEvent[Any]) -> None:
    """Record a tool's result, or what the model is told of a call that no tool ran for."""
    around = _context.inside.get()
    scope = _context.known(_around(event.agent))
    if around is not None and _is_of(around, event.agent, event.tool_use):
        scope = around.scope
    else:
        around = None
    if scope is None:
        return
    if scope.failure is not None:
        raise scope.failure
    if event.retry and around is not None:
        return  # it runs again
    try:
        if around is not None:
            _context.inside.set(around.outer)
            await scope.end_child(around.call_id)
            await scope.finish_result(around.call_id, event.result)
        else:
            await _answer(scope, event)
    except KillickError as failure:
        scope.failure = failure
        raise


async def _answer(scope: _Scope, event: AfterToolCallEvent[Any]) -> None:
    given, name, arguments = _of(event.tool_use)
    own = scope.tools.calls.find(given, name, arguments)
    if own is not None:
        text, _ = told(event.result)
        await scope.tools.answer(own, text, is_error=event.result.get("status") == "error")
    elif scope.of is not None and event.cancel_message is not None:
        await scope.decide(given, approved=False)


def _of(tool_use: Any) -> tuple[str, str, Any]:
    return str(tool_use.get("toolUseId") or ""), str(tool_use["name"]), tool_use.get("input")
