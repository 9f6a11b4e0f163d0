"""Sessions as they are printed: lines for a person, JSON for a program. Pure.

docs/command.md describes the JSON.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

from killick.cli.output import Column, OutputLine, Span, block, line, plain
from killick.journal.summary import Total
from killick.model import entries as e
from killick.model.entries import Usage
from killick.model.messages import File, Image, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from killick.model.sessions import SessionInfo, moment
from killick.views.context import Context
from killick.views.timeline import TimedModelCall, TimedTool, TimedTurn
from killick.views.transcript import Shown, ShownTool

# -- times -------------------------------------------------------------------------------------


def short_time(at: datetime, now: datetime) -> str:
    """A time as short as it can be understood: today the hour, this year the day."""
    at = at.astimezone(now.tzinfo)
    if at.date() == now.date():
        return at.strftime("%H:%M:%S")
    if at.year == now.year:
        return at.strftime("%d %b %H:%M")
    return at.strftime("%Y-%m-%d")


def duration_text(seconds: float | None) -> str:
    """A duration: `0.3 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


# -- one session, for a person -----------------------------------------------------------------

ToolName = Callable[[str, str], str]

_ENDINGS = {"completed": "green", "failed": "red", "interrupted": "yellow"}


def entry_words(body: e.Body, tool: ToolName) -> tuple[str, str]:
    """Return an entry in a few words, and their style; none for what only frames others."""
    match body:
        case e.TurnStarted():
            return "a turn begins", "bold"
        case e.TurnEnding():
            was = "was " if body.status == "interrupted" else ""
            reason = f": {body.reason}" if body.reason else ""
            return f"the turn {was}{body.status}{reason}", _ENDINGS[body.status]
        case e.MessageRecorded():
            return f"{body.role}:", "bold"
        case e.MessageStarted():
            return f"{body.role} begins", "bold"
        case e.MessageEnded(state=state):
            partial = state == "partial"
            return ("cut off here: a partial message", "yellow") if partial else ("", "")
        case e.ModelCallStarted():
            return f"model {body.model or 'call'}, attempt {body.attempt}", "dim"
        case e.ModelCallEnded():
            return (f"the model call failed: {body.error}", "red") if body.error else ("", "")
        case _:
            return _other_words(body, tool)


def _other_words(body: e.Body, tool: ToolName) -> tuple[str, str]:
    match body:
        case e.ToolCalled():
            return "", ""
        case e.ToolStarted():
            return f"{tool(body.message_id, body.call_id)} runs", "cyan"
        case e.ToolOutput():
            return f"{tool(body.message_id, body.call_id)} was left without a result", "yellow"
        case e.ToolFinished() | e.LateResult():
            name = tool(body.message_id, body.result.call_id)
            late = ", late" if isinstance(body, e.LateResult) else ""
            done = "failed" if body.result.is_error else "finished"
            return f"{name} {done}{late}", "red" if body.result.is_error else "green"
        case e.Settled():
            name = tool(body.message_id, body.call_id)
            did = "did not run" if body.outcome == "did_not_run" else "ran"
            return f"{name} {did}, as a {body.by} found out", "yellow"
        case e.StopAsked():
            return f"stop was asked for: {body.reason}", "yellow"
        case e.Compacted():
            return f"{body.first} to {body.through} are folded into a summary", "magenta"
        case e.Rewound():
            return f"rewound to {body.through}", "magenta"
        case e.Renamed():
            return f"renamed to {body.title!r}", "magenta"
        case _:
            return e.kind_of(body).replace("_", " "), "dim"


RESULT_LINES: Final = 12
"""How much of a tool's result is shown, unless everything is asked for."""

_ROLES: Final = {"user": "bold green", "assistant": "bold blue", "system": "bold magenta"}
_STATES: Final = {
    "finished": "green",
    "running": "cyan",
    "failed": "red",
    "unknown": "yellow",
    "not started": "yellow",
    "cut off": "yellow",
    "denied": "yellow",
}


def heading(info: SessionInfo) -> list[OutputLine]:
    """Return the lines that stand above a session's transcript."""
    facts = [status(info), info.type, *info.models, *(f"#{tag}" for tag in info.tags)]
    if info.project is not None:
        facts.append(info.project.root)
    if info.fork is not None:
        facts.append(f"forked from {info.fork.session_id} at {info.fork.at}")
    return [line(info.title or "(no title)", "bold"), line(info.id, "cyan"), _dim(facts)]


def conversation(shown: Sequence[Shown], now: datetime, *, unfold: bool) -> Iterator[OutputLine]:
    """The whole transcript. `unfold` opens compactions and shows tools' results whole."""
    for item in shown:
        yield OutputLine()
        match item.kind:
            case "ending":
                yield _ending(item, now)
            case "compaction":
                yield from _compaction(item, now, unfold=unfold)
            case _:
                yield from _message(item, now, unfold=unfold)


def _dim(facts: Sequence[str]) -> OutputLine:
    return line(" · ".join(facts), "dim")


def _message(shown: Shown, now: datetime, *, unfold: bool) -> Iterator[OutputLine]:
    yield OutputLine(
        (
            Span(shown.role, _ROLES.get(shown.role, "bold")),
            Span(f"  #{shown.seq}  {short_time(shown.at, now)}", "dim"),
        )
    )
    for part in shown.parts:
        yield from _part(part)
    for tool in shown.tools:
        yield from _tool(tool, unfold=unfold)
    if shown.state == "partial":
        yield line("[cut off here: a partial message]", "yellow", indent=2)
    elif shown.state == "streaming":
        yield line("[still streaming]", "cyan", indent=2)


def _part(part: Part) -> list[OutputLine]:
    match part:
        case Text():
            return block(part.text, indent=2)
        case Reasoning():
            return block(f"(thinking) {part.text}", "dim italic", indent=2) if part.text else []
        case Image():
            return [line(f"[image {part.media_type}: {part.alt or part.blob}]", "dim", indent=2)]
        case File():
            return [line(f"[file {part.media_type}: {part.name or part.blob}]", "dim", indent=2)]
        case Opaque():
            return [line(f"[{len(part.data):,} bytes of {part.provider}'s]", "dim", indent=2)]
        case _:
            return []


def _tool(tool: ShownTool, *, unfold: bool) -> Iterator[OutputLine]:
    yield OutputLine(
        (
            Span("> ", "dim"),
            Span(tool.name, "bold"),
            Span(f" {tool.arguments}" if tool.arguments.strip() else ""),
            Span(f"  [{tool.state}]", _STATES[tool.state]),
        ),
        2,
    )
    if tool.settled is not None:
        details = filter(None, (tool.settled.result, tool.settled.evidence))
        yield line(": ".join([f"it {tool.settled.words}", *details]), "yellow", indent=6)
    lines = [*_result(tool)]
    kept = lines if unfold else lines[:RESULT_LINES]
    yield from kept
    if len(kept) < len(lines):
        left = counted(len(lines) - len(kept), "lines")
        yield line(f"[{left} more; --all shows them]", "dim", indent=6)


def _result(tool: ShownTool) -> Iterator[OutputLine]:
    content = "" if tool.result is None else _content(tool.result)
    if tool.output and tool.output != content:
        yield from block(tool.output, "dim", indent=6)
    if content:
        yield from block(content, indent=6)


def _content(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n".join(item.text for part in result.content for item in _part_lines(part))


def _part_lines(part: Part) -> list[OutputLine]:
    return [OutputLine(item.spans) for item in _part(part)]


def _ending(shown: Shown, now: datetime) -> OutputLine:
    style = "red" if shown.status == "failed" else "yellow"
    return line(
        f"-- {shown.status} at {short_time(shown.at, now)}: {shown.reason} --  #{shown.seq}", style
    )


def _compaction(shown: Shown, now: datetime, *, unfold: bool) -> Iterator[OutputLine]:
    number = sum(item.kind == "message" for item in shown.folded)
    at = short_time(shown.at, now)
    hint = "" if unfold else "; --all unfolds"
    yield line(
        f"-- {counted(number, 'messages')} folded into a summary at {at}{hint} --", "magenta"
    )
    yield from block(shown.text, "italic", indent=2)
    if unfold:
        yield from conversation(shown.folded, now, unfold=True)
        yield OutputLine()
        yield line("-- end of what is folded --", "magenta")


_SHORTEST: Final = 16
"""`ses_` and a time to the millisecond: rarely shared by two sessions."""

SESSION_COLUMNS: Final = (
    Column("ID", style="cyan"),
    Column("CHANGED", least=60),
    Column("STATUS", least=50),
    Column("TITLE", flexible=True),
    Column("TYPE", least=110),
    Column("MODEL", least=90, most=24),
    Column("TAGS", least=130, most=24),
    Column("PROJECT", least=150, most=40),
)


def session_rows(
    infos: Sequence[SessionInfo], openings: Mapping[str, str], now: datetime, *, short: bool
) -> list[tuple[str, ...]]:
    """One row for each session; ids shortened for people, whole for programs.

    A session without a title is known by how it begins.
    """
    length = _unique_length([info.id for info in infos]) if short else None
    return [
        (
            info.id[:length],
            short_time(info.updated_at, now) if short else info.updated_at.isoformat(),
            status(info),
            info.title or openings.get(info.id) or "(no title)",
            info.type,
            ", ".join(info.models),
            ", ".join(info.tags),
            info.project.root if info.project is not None else "",
        )
        for info in infos
    ]


def status(info: SessionInfo) -> str:
    """Return the newest turn's status, and the marks of the session."""
    marks = [
        name
        for name, on in (
            ("archived", info.archived),
            ("pinned", info.pinned),
            ("deleted", info.deleted_at is not None),
        )
        if on
    ]
    begun = "empty" if info.fork is None else "forked"  # it has the turns of another, and none yet
    return ", ".join([info.status or begun, *marks])


def _unique_length(ids: Sequence[str]) -> int:
    """Return how many characters of each id tell these apart."""
    ordered = sorted(ids)
    needed = _SHORTEST
    for first, other in pairwise(ordered):
        common = next(
            (n for n, (a, b) in enumerate(zip(first, other, strict=False)) if a != b), len(first)
        )
        needed = max(needed, common + 1)
    return needed


def usage_columns(by: str) -> tuple[Column, ...]:
    return (
        Column(by.upper(), flexible=True),
        Column("CALLS", right=True, least=50),
        Column("INPUT", right=True),
        Column("OUTPUT", right=True),
        Column("CACHED", right=True, least=70),
        Column("REASONING", right=True, least=80),
        Column("COST", right=True, least=60),
    )


def usage_rows(usage: Sequence[Total], whole: Total) -> list[tuple[str, ...]]:
    rows = [_usage_row(total.name or "(not said)", total) for total in usage]
    return [*rows, _usage_row("total", whole)]


def _usage_row(name: str, total: Total) -> tuple[str, ...]:
    figures = (total.calls, total.input, total.output, total.cached, total.reasoning)
    return (name, *(f"{figure:,}" for figure in figures), money(total.cost))


def money(cost: float | None) -> str:
    return "" if cost is None else f"{cost:.4f}"


def counted(number: int, name: str) -> str:
    """`1 session`, `2 sessions`: the names come in the plural."""
    singular = "entry" if name == "entries" else name.removesuffix("s")
    return f"{number:,} {singular if number == 1 else name}"


Names = Mapping[tuple[str, str], str]
"""What tools are called, by message and call."""

_STATUS = {"completed": "green", "running": "cyan", "failed": "red", "interrupted": "yellow"}


def timing(turns: Sequence[TimedTurn], names: Names, now: datetime) -> Iterator[OutputLine]:
    for number, turn in enumerate(turns, 1):
        yield OutputLine()
        yield from _turn(number, turn, names, now)


def _turn(number: int, turn: TimedTurn, names: Names, now: datetime) -> Iterator[OutputLine]:
    reason = f" ({turn.reason})" if turn.reason else ""
    yield OutputLine(
        (
            Span(f"turn {number}", "bold"),
            Span(f"  {turn.status}{reason}", _STATUS.get(turn.status, "")),
            Span(f"  {short_time(moment(turn.started_at_us), now)}", "dim"),
            Span(f"  {duration_text(turn.seconds)}"),
            Span(_tokens(turn.usage), "dim"),
        )
    )
    events = [(call.started_at_us, _call(call)) for call in turn.model_calls]
    events += [(tool.started_at_us, _tool_span(tool, names)) for tool in turn.tools]
    for _, item in sorted(events, key=lambda event: event[0]):
        yield item


def _call(call: TimedModelCall) -> OutputLine:
    name = "/".join(name_part for name_part in (call.provider, call.model) if name_part) or "model"
    attempt = f"  attempt {call.attempt}" if call.attempt > 1 or call.retry_of else ""
    end = call.error or call.finish_reason or ""
    return OutputLine(
        (
            Span("model  ", "dim"),
            Span(f"{name}{attempt}  {duration_text(call.seconds)}"),
            Span(f"  {end}" if end else "", "red" if call.error else "dim"),
            Span(_tokens(call.usage), "dim"),
        ),
        2,
    )


def _tool_span(tool: TimedTool, names: Names) -> OutputLine:
    name = names.get((tool.message_id, tool.call_id), tool.call_id)
    if tool.is_error is None:
        return line(f"tool   {name}  no result", "yellow", indent=2)
    return OutputLine(
        (
            Span("tool   ", "dim"),
            Span(f"{name}  {duration_text(tool.seconds)}"),
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


class _Stream(NamedTuple):
    """A part of a message, or a tool's output, that deltas belong to."""

    seq: int
    part: int


class FollowRenderer:
    """Turns what a follower is given into words. Pure: it remembers only what it has said."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._names: dict[tuple[str, str], str] = {}
        self._open: _Stream | None = None
        self._ends_line = True
        self._streamed: set[str] = set()
        """Messages and calls whose text was shown as deltas."""

    def render(self, item: e.Entry | e.FollowedDelta) -> list[Span]:
        spans = list(self._entry(item) if isinstance(item, e.Entry) else self._delta(item))
        if spans:
            self._ends_line = spans[-1].text.endswith("\n")
        return spans

    def _delta(self, item: e.FollowedDelta) -> Iterator[Span]:
        delta = item.delta
        self._streamed.add(_name(item.message_id, item.call_id))
        if isinstance(delta.head, ToolCall):
            self._names[item.message_id, delta.head.id] = delta.head.name
        stream = _Stream(item.seq, item.part)
        if stream != self._open:
            self._open = stream
            yield from self._break()
            yield Span(self._opening(item), "dim")
        if delta.text:
            yield Span(delta.text, "dim italic" if delta.type == "reasoning" else "")

    def _opening(self, item: e.FollowedDelta) -> str:
        delta = item.delta
        if item.call_id is not None:
            return f"#{item.seq} {self._tool(item.message_id, item.call_id)} prints: "
        if delta.type == "arguments":
            name = delta.head.name if isinstance(delta.head, ToolCall) else "tool"
            return f"#{item.seq} calls {name} "
        return f"#{item.seq} thinks: " if delta.type == "reasoning" else f"#{item.seq} says: "

    def _entry(self, entry: e.Entry) -> Iterator[Span]:
        self._learn(entry.body)
        self._open = None
        yield from self._break()
        words, style = entry_words(entry.body, self._tool)
        whole = self._whole(entry.body)
        if isinstance(entry.body, e.MessageEnded):
            yield from whole  # that it was cut off is said where it was
        if words:
            yield Span(f"{short_time(entry.at, self._now)} #{entry.seq} ", "dim")
            yield Span(words + "\n", style)
        yield from whole

    def _whole(self, body: e.Body) -> Iterator[Span]:
        """Return the text that did not come as deltas."""
        match body:
            case e.MessageRecorded() | e.MessageEnded():
                if body.id not in self._streamed:
                    yield from _said(body.parts)
            case e.ToolFinished() | e.LateResult():
                content = body.result.content
                streamed = _name(body.message_id, body.result.call_id) in self._streamed
                if isinstance(content, str) and content and not (streamed and body.output is None):
                    yield Span(_ended(content))
            case _:
                pass

    def _learn(self, body: e.Body) -> None:
        match body:
            case e.MessageRecorded() | e.MessageEnded():
                for part in body.parts:
                    if isinstance(part, ToolCall):
                        self._names[body.id, part.id] = part.name
            case e.ToolCalled():
                self._names[body.message_id, body.call_id] = body.name
            case _:
                pass

    def _tool(self, message_id: str, call_id: str) -> str:
        return self._names.get((message_id, call_id), call_id)

    def _break(self) -> Iterator[Span]:
        if not self._ends_line:
            self._ends_line = True
            yield Span("\n")


def _name(message_id: str, call_id: str | None) -> str:
    return message_id if call_id is None else f"{message_id}/{call_id}"


def _said(parts: Sequence[Part]) -> Iterator[Span]:
    for part in parts:
        match part:
            case Text():
                yield Span(_ended(part.text))
            case Reasoning() if part.text:
                yield Span(_ended(part.text), "dim italic")
            case ToolCall():
                yield Span(_ended(f"calls {part.name} {part.arguments}"), "dim")
            case _:
                pass


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


# -- for a program -----------------------------------------------------------------------------

Shape = dict[str, Any]


def time_shape(at: datetime | None) -> str | None:
    """ISO 8601, in UTC, to the microsecond."""
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def session_shape(info: SessionInfo) -> Shape:
    about = info.about
    return {
        "id": info.id,
        "title": about.title,
        "titled_by": about.titled_by,
        "type": about.type,
        "status": about.status,
        "project": plain(about.project),
        "tags": list(about.tags),
        "models": list(about.models),
        "archived": about.archived,
        "pinned": about.pinned,
        "deleted_at": time_shape(info.deleted_at),
        "created_at": time_shape(info.created_at),
        "updated_at": time_shape(info.updated_at),
        "fork": plain(about.fork),
        "parent": plain(about.parent),
        "extra": plain(about.extra),
    }


def shown_shape(shown: Shown) -> Shape:
    return {
        "kind": shown.kind,
        "seq": shown.seq,
        "at": time_shape(shown.at),
        "role": shown.role,
        "state": shown.state,
        "turn_id": shown.turn_id,
        "text": shown.text,
        "parts": plain(shown.parts),
        "tools": plain(shown.tools),
        "status": shown.status,
        "reason": shown.reason,
        "cause": shown.cause,
        "folded": [shown_shape(item) for item in shown.folded],
    }


def turn_shape(turn: TimedTurn) -> Shape:
    return {
        "id": turn.id,
        "status": turn.status,
        "reason": turn.reason,
        "cause": turn.cause,
        "started_at": time_shape(moment(turn.started_at_us)),
        "seconds": turn.seconds,
        "usage": plain(turn.usage),
        "model_calls": [_timed(plain(call)) for call in turn.model_calls],
        "tools": [_timed(plain(tool)) for tool in turn.tools],
    }


def _timed(fields: Shape) -> Shape:
    at = time_shape(moment(fields.pop("started_at_us")))
    return {**fields, "started_at": at}


def context_shape(context: Context) -> Shape:
    return {
        "format": context.format,
        "system": context.system,
        "messages": context.messages,
        "repairs": plain(context.repairs),
        "origins": [list(seqs) for seqs in context.origins],
    }


def followed_shape(item: e.Entry | e.FollowedDelta) -> Shape:
    if isinstance(item, e.Entry):
        return {"kind": item.kind, "seq": item.seq, "at": time_shape(item.at), **_body(item.body)}
    return {
        "kind": "delta",
        "seq": item.seq,
        "turn_id": item.turn_id,
        "message_id": item.message_id,
        "call_id": item.call_id,
        "part": item.part,
        "offset": item.offset,
        "type": item.delta.type,
        "text": item.text,
    }


def _body(body: e.Body) -> Shape:
    fields: Shape = plain(body)
    return {"body": fields}
