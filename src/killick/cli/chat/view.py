"""From a journal as it grows to what a person at a terminal is shown. Pure.

What is shown comes out of the journal alone: it is what is kept, wherever the turn runs.
"""

from typing import Final, Literal, NamedTuple

import msgspec

from killick.agent.approvals import Pending
from killick.journal import turn_state
from killick.journal.closing import WaitingCall
from killick.model import entries as e
from killick.model.messages import Message, Part, Text, ToolCall, ToolResult

Kind = Literal["prose", "prompt", "tool", "result", "note", "warning"]

RESULT_LINES: Final = 6
LINE_CHARS: Final = 200


class ViewedMessage(NamedTuple):
    """One piece of output. Prose is Markdown, everything else plain text."""

    kind: Kind
    text: str


class AnswerView:
    """The text of one message as it comes, given out in whole blocks of Markdown."""

    def __init__(self) -> None:
        self._parts: dict[int, str] = {}
        self._given = 0

    def add(self, part: int, text: str) -> None:
        self._parts[part] = self._parts.get(part, "") + text

    @property
    def text(self) -> str:
        return "\n\n".join(self._parts[part] for part in sorted(self._parts))

    @property
    def rest(self) -> str:
        """The text that has come and was not given out."""
        return self.text[self._given :]

    def blocks(self) -> str:
        """Return what has become whole since the last call: all up to the last blank line."""
        text = self.text
        end = whole_blocks(text)
        whole, self._given = text[self._given : end], max(self._given, end)
        return whole

    def all(self) -> str:
        """Return all that came since the last call."""
        text, self._given = self.rest, len(self.text)
        return text

    def finish(self, parts: tuple[Part, ...]) -> str:
        """The message is over: all of it that was not given out."""
        whole = "\n\n".join(part.text for part in parts if isinstance(part, Text))
        rest = whole[self._given :]
        self._given = len(whole)
        return rest


def whole_blocks(text: str) -> int:
    """Return where the last blank line outside of a code block ends; 0 without one."""
    end = length = 0
    fenced = False
    for line in text.splitlines(keepends=True):
        length += len(line)
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        if not fenced and not line.strip() and line.endswith("\n"):
            end = length
    return end


class View:
    """The state of a session that is being followed."""

    def __init__(self) -> None:
        self.turn_id: str | None = None
        self.holder: str | None = None
        self.activity = ""
        self.output = ""
        self.queued: dict[str, Message] = {}
        self.waiting = WaitingCall()
        self.input_tokens = self.output_tokens = 0
        self.said: list[str] = []
        """What was typed here and will come back as a prompt; it is on the screen already."""
        self._answers: dict[str, AnswerView] = {}
        self._calls: dict[tuple[str, str], ToolCall] = {}
        self._chars = 0

    @property
    def running(self) -> bool:
        return self.turn_id is not None

    @property
    def pending(self) -> dict[str, Pending]:
        """The calls that wait for the person, as far as they can be shown."""
        return {
            asked.id: Pending(asked, call)
            for asked in self.waiting.asked.values()
            if (call := self._calls.get((asked.message_id, asked.call_id))) is not None
        }

    @property
    def tail(self) -> str:
        """The text that streams and is not on the screen yet."""
        return "".join(answer.rest for answer in self._answers.values()) or self.output

    @property
    def tokens(self) -> str:
        """Tokens sent and answered so far; what still streams is estimated."""
        answered = self.output_tokens + self._chars // 4
        return f"{self.input_tokens:,} in, {answered:,} out"

    def take(self, item: e.Entry | e.FollowedDelta) -> list[ViewedMessage]:
        """Take one more entry or delta; return what it adds to the screen."""
        if isinstance(item, e.FollowedDelta):
            return self._delta(item)
        return self._entry(item)

    # -- deltas --------------------------------------------------------------------------------

    def _delta(self, item: e.FollowedDelta) -> list[ViewedMessage]:
        delta = item.delta
        if item.call_id is not None:
            self.output = (self.output + delta.text)[-4 * LINE_CHARS :]
            return []
        self._chars += len(delta.text)
        if delta.type == "reasoning":
            self.activity = "thinking"
        elif delta.type == "arguments":
            self.activity = "calling a tool"
        elif delta.type == "text":
            self.activity = "answering"
            answer = self._answers.setdefault(item.message_id, AnswerView())
            answer.add(item.part, delta.text)
            return _prose(answer.blocks())
        return []

    # -- entries -------------------------------------------------------------------------------

    def _entry(self, entry: e.Entry) -> list[ViewedMessage]:
        self.waiting.take(entry.body)
        turn_state.take(self.queued, entry)
        match entry.body:
            case e.TurnStarted() as body:
                self.turn_id, self.holder = body.turn_id, body.holder
                self.activity = "waiting for the model"
            case e.ModelCallStarted():
                self.activity = "waiting for the model"
            case e.ModelCallEnded(usage=usage):
                self._chars = 0
                if usage is not None:
                    self.input_tokens += usage.input
                    self.output_tokens += usage.output
            case e.MessageRecorded() as body:
                return self._recorded(body)
            case e.MessageEnded() as body:
                return self._ended(body)
            case e.TurnEnding() as body:
                return self._turn_ended(body)
            case e.ToolStarted() | e.ToolFinished() | e.LateResult() | e.ApprovalAsked():
                return self._tool(entry.body)
            case _:
                return self._about(entry.body)
        return []

    def _recorded(self, body: e.MessageRecorded) -> list[ViewedMessage]:
        self._learn(body.id, body.parts)
        text = Message(body.role, body.parts).text
        if body.role == "user":
            if text in self.said:
                self.said.remove(text)
                return []
            return [ViewedMessage("prompt", text)]
        results = [part for part in body.parts if isinstance(part, ToolResult)]
        return [*_prose(text), *(shown for result in results for shown in _result(result))]

    def _ended(self, body: e.MessageEnded) -> list[ViewedMessage]:
        self._learn(body.id, body.parts)
        answer = self._answers.pop(body.id, None) or AnswerView()
        shown = _prose(answer.finish(body.parts))
        if body.state == "partial" and any(isinstance(part, Text) for part in body.parts):
            shown.append(ViewedMessage("note", "(cut off here)"))
        return shown

    def _turn_ended(self, body: e.TurnEnding) -> list[ViewedMessage]:
        self.turn_id, self.activity, self.output, self._chars = None, "", "", 0
        self._answers.clear()
        if body.status == "completed":
            return []
        if body.status == "failed":
            return [ViewedMessage("warning", f"The turn failed: {body.reason}. What came is kept.")]
        return [ViewedMessage("warning", f"Stopped ({body.reason}). What came is kept.")]

    def _tool(self, body: e.Body) -> list[ViewedMessage]:
        match body:
            case e.ToolStarted():
                call = self._calls.get((body.message_id, body.call_id))
                self.output = ""
                self.activity = f"running {call.name}" if call else "running a tool"
                return [ViewedMessage("tool", call_text(call))] if call else []
            case e.ToolFinished() | e.LateResult():
                self.output, self.activity = "", "waiting for the model"
                return _result(body.result)
            case e.ApprovalAsked():
                call = self._calls.get((body.message_id, body.call_id))
                if call is not None:
                    self.activity = "waiting for you"
                    # A person who decides must see all of it.
                    if whole_text(call) != call_text(call):
                        return [ViewedMessage("tool", whole_text(call))]
            case _:
                pass
        return []

    def _about(self, body: e.Body) -> list[ViewedMessage]:
        match body:
            case e.ToolCalled():
                known = ToolCall(body.call_id, body.name)
                self._calls.setdefault((body.message_id, body.call_id), known)
            case e.Renamed(title=str() as title):
                return [ViewedMessage("note", f"Title: {title}")]
            case e.Compacted():
                return [
                    ViewedMessage("note", f"What was said before is summarised: {body.summary}")
                ]
            case e.Rewound():
                return [ViewedMessage("note", "Rewound: what came after is out of view.")]
            case _:
                pass
        return []

    def _learn(self, message_id: str, parts: tuple[Part, ...]) -> None:
        calls = (part for part in parts if isinstance(part, ToolCall))
        self._calls.update({(message_id, part.id): part for part in calls})


def call_text(call: ToolCall) -> str:
    """A call in one line."""
    text = f"{call.name} {' '.join(call.arguments.split())}"
    return text if len(text) <= LINE_CHARS else text[: LINE_CHARS - 1] + "…"


def whole_text(call: ToolCall) -> str:
    """A call as a person who decides on it must see it: all of it, as the model wrote it."""
    return f"{call.name} {call.arguments}"


def _prose(text: str) -> list[ViewedMessage]:
    return [ViewedMessage("prose", text)] if text.strip() else []


def _result(result: ToolResult) -> list[ViewedMessage]:
    """The beginning of what a tool returned: a person wants to see that it did, and what."""
    content = _in_words(result.content) if isinstance(result.content, str) else "(data)"
    lines = [line[:LINE_CHARS] for line in content.splitlines() if line.strip()]
    shown = lines[:RESULT_LINES]
    if len(lines) > RESULT_LINES:
        shown.append(f"… {len(lines) - RESULT_LINES} more lines")
    return [
        ViewedMessage("warning" if result.is_error else "result", "\n".join(shown) or "(nothing)")
    ]


def _in_words(content: str) -> str:
    """Return what a tool returned; a list of what is wrong with its arguments as lines of words."""
    if not content.startswith('[{"type":'):
        return content
    try:
        wrong = msgspec.json.decode(content, type=list[_WrongArgument])
    except msgspec.MsgspecError:
        return content
    return "\n".join(f"{'.'.join(map(str, bad.loc)) or 'arguments'}: {bad.msg}" for bad in wrong)


class _WrongArgument(msgspec.Struct):
    """One complaint of pydantic's about the arguments of a call."""

    loc: list[str | int]
    msg: str
