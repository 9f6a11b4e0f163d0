"""The transcript: messages in order, the outcome of each tool, and where a turn broke off."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from killick.journal.assembly import is_whole_object, output_text
from killick.journal.closing import broke_off
from killick.journal.fold import Messages
from killick.journal.visibility import Compaction, Hidden, Hiding, History, in_view
from killick.model import entries as e
from killick.model.messages import Message, Part, Role, State, Text, ToolCall, ToolResult
from killick.model.sessions import moment

Deltas = Callable[[int], Sequence[e.Delta]]
_BEGINS = (e.MessageRecorded, e.MessageStarted, e.Compacted)
_TOOLS = (e.ToolStarted, e.ToolFinished, e.LateResult)  # they are shown with their calls
ToolState = Literal["not started", "denied", "running", "finished", "failed", "unknown", "cut off"]


class ShownTool(msgspec.Struct, frozen=True):
    """A tool call and what became of it. `output` is what it printed, where that was kept."""

    call_id: str
    name: str
    arguments: str
    state: ToolState
    result: ToolResult | None = None
    output: str | None = None
    settled: "ShownSettlement | None" = None


class ShownSettlement(msgspec.Struct, frozen=True):
    """A finding of a person or a check about a call whose outcome was unknown."""

    id: str
    outcome: str
    by: str
    result: str | None = None
    evidence: str | None = None

    @property
    def words(self) -> str:
        """Say in a few words what was found out, and by whom."""
        did = "did not run" if self.outcome == "did_not_run" else "ran"
        return f"{did}, as a {self.by} found out"


class Shown(msgspec.Struct, frozen=True):
    """One thing a person sees: a message with its tools, that a turn did not complete, or a fold.

    The parts of a compaction are its summary, `folded` is what it stands for. `id` is a message's.
    """

    kind: Literal["message", "ending", "compaction"]
    role: Role
    parts: tuple[Part, ...]
    state: State
    seq: int
    turn_id: str | None
    at_us: int
    tools: tuple[ShownTool, ...] = ()
    status: str | None = None
    reason: str | None = None
    folded: tuple["Shown", ...] = ()
    id: str | None = None
    cause: str | None = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def at(self) -> datetime:
        return moment(self.at_us)


class _Tool:
    """The journal's facts of one call."""

    def __init__(self) -> None:
        self.started: int | None = None
        self.output: str | None = None
        self.result: ToolResult | None = None
        self.hidden = False
        self.asked: str | None = None
        self.denied = self.left = False
        self.settled: e.Settled | None = None


class _Facts:
    """Everything a transcript needs beside the messages themselves."""

    def __init__(self, hidden: Hidden) -> None:
        self._hidden = hidden
        self.tools: dict[tuple[str, str], _Tool] = {}
        self.results: dict[tuple[str, str], ToolResult] = {}
        self.times: dict[int, int] = {}
        self.endings: list[tuple[e.Entry, e.TurnEnding]] = []
        self.unseen: set[str] = set()
        self.asked: dict[str, _Tool] = {}
        self.over = 0

    def take(self, entry: e.Entry) -> None:
        if isinstance(entry.body, _BEGINS):
            self.times[entry.seq] = entry.at_us
        match entry.body:
            case e.ToolStarted() as body:
                tool = self._tool(body.message_id, body.call_id)
                tool.started, tool.hidden = entry.seq, self._hidden.has_result(body)
                tool.settled, tool.left = None, False
            case e.ToolOutput() as body:
                tool = self._tool(body.message_id, body.call_id)
                tool.output, tool.left = body.output, True
            case e.LateResult(second=second) if second:
                pass  # the first is the result
            case e.Settled() as body:
                self._tool(body.message_id, body.call_id).settled = body
            case e.ToolFinished() | e.LateResult() as body:
                tool = self._tool(body.message_id, body.result.call_id)
                tool.result, tool.output = body.result, body.output or tool.output
                tool.hidden = self._hidden.has_result(body)
            case e.MessageRecorded() as body:
                for part in body.parts:
                    if isinstance(part, ToolResult):
                        self.results[body.turn_id, part.call_id] = part
            case e.LateText(call_id=str() as call_id) as body:
                tool = self._tool(body.message_id, call_id)
                tool.output = (tool.output or "") + output_text(body.deltas, after=tool.output)
            case e.ApprovalAsked() as body:
                tool = self.asked[body.id] = self._tool(body.message_id, body.call_id)
                tool.asked, tool.denied = body.id, False
            case e.ApprovalDecided(approved=False) as body if body.id in self.asked:
                tool = self.asked[body.id]
                tool.denied = tool.asked == body.id and tool.result is None
            case e.TurnStarted(starts="unseen") as body:
                self.unseen.add(body.turn_id)
                self._forget_break(body.continues)
            case e.TurnEnding() as body:
                self.over = entry.seq
                if self.endings and self.endings[-1][1].status == "completed":
                    self.endings.pop()  # only those of others are shown
                self.endings.append((entry, body))
            case e.Rewound():
                self.over = entry.seq
            case _:
                pass

    def _forget_break(self, turn_id: str | None) -> None:
        """Show two turns as one whose source went on as if nothing had been."""
        if self.endings and turn_id in self.unseen:
            ending = self.endings[-1][1]
            if ending.turn_id == turn_id and broke_off(ending):
                self.endings.pop()

    def _tool(self, message_id: str, call_id: str) -> _Tool:
        return self.tools.setdefault((message_id, call_id), _Tool())

    def show(self, message: Message, call: ToolCall, deltas: Deltas) -> ShownTool:
        tool = self.tools.get((message.id, call.id), _Tool())
        result = tool.result or self.results.get((message.turn_id or "", call.id))
        # A call of an ended turn may have been started in a later one, which may still run.
        over = tool.left or max(message.seq, tool.started or 0) < self.over
        output = tool.output
        if result is None and tool.started is not None and output is None:
            output = output_text(deltas(tool.started)) or None
        return ShownTool(
            call_id=call.id,
            name=call.name,
            arguments=call.arguments,
            state=_state(
                message, call, tool, result, over=over, seen=message.turn_id not in self.unseen
            ),
            result=None if tool.hidden else result,
            output=None if tool.hidden else output,
            settled=_settlement(tool.settled),
        )


def _settlement(body: e.Settled | None) -> ShownSettlement | None:
    if body is None:
        return None
    return ShownSettlement(body.id, body.outcome, body.by, body.result, body.evidence)


def transcript(
    entries: Iterable[e.Entry], deltas: Deltas, history: History | None = None
) -> list[Shown]:
    """Return the conversation as it was shown, broken turns included."""
    entries = entries if history else list(entries)
    history = history or History(entries)
    hidden = history.hides("person")
    fold, facts, hiding = Messages(), _Facts(hidden), Hiding(hidden, "")
    for entry in in_view(history, entries):
        seen = hiding.see(entry)
        if seen is not None:
            facts.take(seen)
            if entry.seq not in hidden.places and not isinstance(entry.body, _TOOLS):
                fold.take(seen)
    shown = [_message(each, facts, deltas) for each in fold.finish(deltas) if each.role != "tool"]
    shown += [_ending(entry, body) for entry, body in facts.endings if body.status != "completed"]
    shown.sort(key=lambda item: item.seq)
    for compaction in history.compactions:
        shown = _fold(shown, compaction, facts)
    return shown


def _ending(entry: e.Entry, body: e.TurnEnding) -> Shown:
    return Shown(
        kind="ending",
        role="system",
        parts=(),
        state="complete",
        seq=entry.seq,
        turn_id=body.turn_id,
        at_us=entry.at_us,
        status=body.status,
        reason=body.reason,
        cause=body.cause,
    )


def _fold(shown: Sequence[Shown], compaction: Compaction, facts: _Facts) -> list[Shown]:
    """Put what a summary stands for behind it, in the place where its range begins."""
    inside = tuple(item for item in shown if _is_inside(item, compaction))
    outside = [item for item in shown if not _is_inside(item, compaction)]
    index = sum(item.seq < compaction.body.first for item in outside)
    folded = Shown(
        kind="compaction",
        role="system",
        parts=(Text(compaction.body.summary),),
        state="complete",
        seq=compaction.body.first,
        turn_id=None,
        at_us=facts.times.get(compaction.seq, 0),
        folded=inside,
    )
    outside.insert(index, folded)
    return outside


def _is_inside(item: Shown, compaction: Compaction) -> bool:
    """An earlier fold goes with its range, also when the message where it begins is kept."""
    if item.kind == "compaction":
        return compaction.body.first <= item.seq <= compaction.body.through
    return compaction.replaces(item.seq)


def _message(message: Message, facts: _Facts, deltas: Deltas) -> Shown:
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    return Shown(
        kind="message",
        role=message.role,
        parts=tuple(part for part in message.parts if not isinstance(part, ToolCall)),
        state=message.state,
        seq=message.seq,
        turn_id=message.turn_id,
        at_us=facts.times.get(message.seq, 0),
        tools=tuple(facts.show(message, call, deltas) for call in calls),
        id=message.id,
    )


def _state(
    message: Message,
    call: ToolCall,
    tool: _Tool,
    result: ToolResult | None,
    *,
    over: bool,
    seen: bool,
) -> ToolState:
    if tool.denied and tool.started is None:
        return "denied"
    if result is not None:
        return "failed" if result.is_error else "finished"
    if tool.started is not None:
        return "unknown" if over else "running"
    if message.state == "partial" and not is_whole_object(call.arguments):
        return "cut off"
    # Of a tool that the provider runs itself, no start is ever seen.
    return "not started" if seen and call.tool_type != "hosted" else "unknown"
