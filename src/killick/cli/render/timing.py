"""A timeline as lines: turns with their durations, model calls, attempts, tools and tokens."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from killick.cli.moments import lasting, told
from killick.cli.printing import Line, Span, line
from killick.cli.render.tables import money
from killick.model.entries import Usage
from killick.model.sessions import moment
from killick.views.timeline import TimedModelCall, TimedTool, TimedTurn

Names = Mapping[tuple[str, str], str]
"""What tools are called, by message and call."""

_STATUS = {"completed": "green", "running": "cyan", "failed": "red", "interrupted": "yellow"}


def timing(turns: Sequence[TimedTurn], names: Names, now: datetime) -> Iterator[Line]:
    for number, turn in enumerate(turns, 1):
        yield Line()
        yield from _turn(number, turn, names, now)


def _turn(number: int, turn: TimedTurn, names: Names, now: datetime) -> Iterator[Line]:
    reason = f" ({turn.reason})" if turn.reason else ""
    yield Line(
        (
            Span(f"turn {number}", "bold"),
            Span(f"  {turn.status}{reason}", _STATUS.get(turn.status, "")),
            Span(f"  {told(moment(turn.started_at_us), now)}", "dim"),
            Span(f"  {lasting(turn.seconds)}"),
            Span(_tokens(turn.usage), "dim"),
        )
    )
    events = [(call.started_at_us, _call(call)) for call in turn.model_calls]
    events += [(tool.started_at_us, _tool(tool, names)) for tool in turn.tools]
    for _, one in sorted(events, key=lambda event: event[0]):
        yield one


def _call(call: TimedModelCall) -> Line:
    name = "/".join(one for one in (call.provider, call.model) if one) or "model"
    attempt = f"  attempt {call.attempt}" if call.attempt > 1 or call.retry_of else ""
    end = call.error or call.finish_reason or ""
    return Line(
        (
            Span("model  ", "dim"),
            Span(f"{name}{attempt}  {lasting(call.seconds)}"),
            Span(f"  {end}" if end else "", "red" if call.error else "dim"),
            Span(_tokens(call.usage), "dim"),
        ),
        2,
    )


def _tool(tool: TimedTool, names: Names) -> Line:
    name = names.get((tool.message_id, tool.call_id), tool.call_id)
    if tool.is_error is None:
        return line(f"tool   {name}  no result", "yellow", indent=2)
    return Line(
        (
            Span("tool   ", "dim"),
            Span(f"{name}  {lasting(tool.seconds)}"),
            Span("  failed" if tool.is_error else "", "red"),
        ),
        2,
    )


def _tokens(usage: Usage | None) -> str:
    if usage is None or not (usage.input or usage.output):
        return ""
    more = [
        f"{n:,} {what}"
        for n, what in ((usage.cached, "cached"), (usage.reasoning, "reasoning"))
        if n
    ]
    cost = [f"cost {money(usage.cost)}"] if usage.cost is not None else []
    return "  " + ", ".join([f"{usage.input:,} in", f"{usage.output:,} out", *more, *cost])
