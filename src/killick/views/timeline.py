"""The timeline: turns with their durations, model calls, attempts, tools and tokens."""

from collections.abc import Iterable, Mapping

import msgspec

from killick.model import entries as e
from killick.model.messages import ToolCall


class TimedTool(msgspec.Struct, frozen=True):
    """A run of a tool. `seconds` is None while it has no result."""

    message_id: str
    call_id: str
    started_at_us: int
    seconds: float | None = None
    is_error: bool | None = None
    name: str | None = None


class TimedWait(msgspec.Struct, frozen=True):
    """A call that waited for a person. `seconds` is None while it is not decided."""

    id: str
    call_id: str
    asked_at_us: int
    seconds: float | None = None
    approved: bool | None = None


class TimedModelCall(msgspec.Struct, frozen=True):
    """One request to a model. `seconds` is None while it has not ended.

    `first_seconds` is how long its answer let wait; None where no piece came, or its process died.
    """

    id: str
    attempt: int
    provider: str | None
    model: str | None
    started_at_us: int
    retry_of: str | None = None
    seconds: float | None = None
    finish_reason: str | None = None
    usage: e.Usage | None = None
    error: str | None = None
    first_seconds: float | None = None


class TimedTurn(msgspec.Struct):
    """One turn. `seconds` is None while it runs.

    `last_at_us` is when the last entry was written before those of its newest moment: of a turn
    whose process died, the silence between the two.
    """

    id: str
    started_at_us: int
    status: str = "running"
    reason: str | None = None
    cause: str | None = None
    seconds: float | None = None
    model_calls: list[TimedModelCall] = []
    tools: list[TimedTool] = []
    waits: list[TimedWait] = []
    last_at_us: int | None = None
    ended_seq: int | None = None

    @property
    def usage(self) -> e.Usage:
        """Tokens of all its model calls, interrupted and retried ones included."""
        known = [call.usage for call in self.model_calls if call.usage is not None]
        costs = [usage.cost for usage in known if usage.cost is not None]
        return e.Usage(
            input=sum(usage.input for usage in known),
            output=sum(usage.output for usage in known),
            cached=sum(usage.cached for usage in known),
            reasoning=sum(usage.reasoning for usage in known),
            cost=sum(costs) if costs else None,
        )


def timeline(entries: Iterable[e.Entry]) -> list[TimedTurn]:
    """All turns in the order in which they started."""
    turns: dict[str, TimedTurn] = {}
    names: dict[tuple[str, str], str] = {}
    newest: dict[str, int] = {}
    for entry in entries:
        body = entry.body
        if isinstance(body, e.TurnStarted):
            turns[body.turn_id] = TimedTurn(body.turn_id, entry.at_us)
            continue
        if isinstance(body, e.MessageRecorded | e.MessageEnded):
            calls = (part for part in body.parts if isinstance(part, ToolCall))
            names.update(((body.id, call.id), call.name) for call in calls)
        elif isinstance(body, e.ToolCalled):
            names[body.message_id, body.call_id] = body.name
        turn = turns.get(getattr(body, "turn_id", None) or "")
        if turn is not None:
            # A recovery writes its entries and the ending at one moment: the one before counts.
            if turn.status == "running" and entry.at_us != newest.get(turn.id):
                turn.last_at_us = newest.get(turn.id, turn.started_at_us)
                newest[turn.id] = entry.at_us
            _take(turn, entry, names)
    return list(turns.values())


def _take(turn: TimedTurn, entry: e.Entry, names: Mapping[tuple[str, str], str]) -> None:
    at_us, body = entry.at_us, entry.body
    match body:
        case e.ModelCallStarted():
            began = body.id, body.attempt, body.provider, body.model, at_us, body.retry_of
            turn.model_calls.append(TimedModelCall(*began))
        case e.ModelCallEnded():
            turn.model_calls = [
                _end_call(call, at_us, body) if call.id == body.id else call
                for call in turn.model_calls
            ]
        case e.ToolStarted():
            name = names.get((body.message_id, body.call_id))
            turn.tools.append(TimedTool(body.message_id, body.call_id, at_us, name=name))
        case e.ApprovalAsked():
            turn.waits.append(TimedWait(body.id, body.call_id, at_us))
        case e.ApprovalDecided():
            turn.waits = [
                _decide(wait, at_us, body) if wait.id == body.id else wait for wait in turn.waits
            ]
        case e.ToolFinished() | e.LateResult():
            # The newest start that is open: one that gave nothing is not ended by a repeat's end.
            for index in reversed(range(len(turn.tools))):
                if _is_of(body, turn.tools[index]) and turn.tools[index].seconds is None:
                    turn.tools[index] = _end_tool(turn.tools[index], at_us, body)
                    break
        case e.TurnEnding():
            turn.status, turn.reason, turn.cause = body.status, body.reason, body.cause
            turn.ended_seq = entry.seq
            turn.seconds = _seconds(turn.started_at_us, at_us)
        case _:
            pass


def _end_call(call: TimedModelCall, at_us: int, body: e.ModelCallEnded) -> TimedModelCall:
    first = body.first_at_us
    return msgspec.structs.replace(
        call,
        seconds=_seconds(call.started_at_us, at_us),
        finish_reason=body.finish_reason,
        usage=body.usage,
        error=body.error,
        first_seconds=None if first is None else _seconds(call.started_at_us, first),
    )


def _decide(wait: TimedWait, at_us: int, body: e.ApprovalDecided) -> TimedWait:
    seconds = _seconds(wait.asked_at_us, at_us)
    return msgspec.structs.replace(wait, seconds=seconds, approved=body.approved)


def _is_of(body: e.ToolFinished | e.LateResult, tool: TimedTool) -> bool:
    return (body.message_id, body.result.call_id) == (tool.message_id, tool.call_id)


def _end_tool(tool: TimedTool, at_us: int, body: e.ToolFinished | e.LateResult) -> TimedTool:
    return msgspec.structs.replace(
        tool, seconds=_seconds(tool.started_at_us, at_us), is_error=body.result.is_error
    )


def _seconds(since_us: int, until_us: int) -> float:
    # The clock may have been set back meanwhile; a duration is never negative.
    return max(0, until_us - since_us) / 1_000_000
