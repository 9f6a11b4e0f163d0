"""The state of one turn, folded from its entries: what is open, its calls, its ending.

It is what a write must know. It holds no content, so a turn of ten thousand entries stays
small. Only entries that are in the journal, or in the transaction under way, may be applied.
"""

from collections.abc import Iterable

from killick.journal.assembly import is_whole_object
from killick.model import entries as e
from killick.model.messages import Message, Part, ToolCall, ToolResult


class CallState:
    """One tool call: made, perhaps asked about, perhaps started, perhaps answered."""

    __slots__ = (
        "answered", "asked", "call_id", "effect", "hosted", "key", "message_id", "name", "settled",
        "started_seq", "starts",
    )  # fmt: skip

    def __init__(self, message_id: str, call_id: str, name: str) -> None:
        self.message_id = message_id
        self.call_id = call_id
        self.name = name
        self.hosted = False  # run by the provider itself: no start is ever seen
        self.asked: str | None = None  # the newest question to a person about it
        self.started_seq: int | None = None  # of the newest start
        self.starts = 0
        self.effect = "once"
        self.key: str | None = None
        self.settled: e.Settled | None = None  # the newest, if it was not started again since
        self.answered = False

    @property
    def is_unsettled(self) -> bool:
        """True if its outcome is unknown: it was started and left neither result nor finding."""
        return self.starts > 0 and not self.answered and self.settled is None

    def start(self, seq: int, body: e.ToolStarted) -> None:
        """Take one more start. The effect and the key are those of the first."""
        if not self.starts:
            self.effect, self.key = body.effect, body.key
        self.started_seq, self.starts, self.settled = seq, body.number, None


class TurnState:
    """The state of one turn after the entries applied so far."""

    __slots__ = (
        "_calls",
        "_newest",
        "_started_late",
        "_starts",
        "continues",
        "ended",
        "fence",
        "holder",
        "id",
        "left",
        "limited",
        "limits",
        "line",
        "messages",
        "model_calls",
        "open_messages",
        "seq",
        "stop",
        "tools",
        "waiting",
    )

    def __init__(self, seq: int, started: e.TurnStarted) -> None:
        self.id = started.turn_id
        self.seq = seq
        self.fence = started.fence
        self.holder = started.holder
        self.continues = started.continues
        self.limits = started.limits
        self.line = set() if started.continues is None else {started.continues}
        """The turns that it goes on with, as far as is known: that one, the one before it …"""
        self._starts = started.starts
        self.ended: e.TurnEnding | None = None
        self.stop: e.StopAsked | None = None
        self.limited = False  # its last model call was refused by a limit
        self.open_messages: dict[str, int] = {}
        self.messages: dict[str, int] = {}
        self.model_calls: dict[str, e.ModelCallStarted] = {}
        self.left: set[tuple[str, str]] = set()
        self.waiting: set[str] = set()
        self._calls: dict[tuple[str, str], CallState] = {}
        self._newest: dict[str, CallState] = {}
        self.tools: dict[int, CallState] = {}  # by the seq of their start
        self._started_late: set[tuple[str, str]] = set()  # calls of earlier turns, in this one

    def find_call(self, call_id: str, message_id: str | None = None) -> CallState | None:
        """Return the call with this id; the newest of several, since providers repeat ids."""
        if message_id is None:
            return self._newest.get(call_id)
        return self._calls.get((message_id, call_id))

    def calls_of(self, call_id: str) -> list[CallState]:
        """Return the calls with this id, the newest first."""
        return [call for key, call in reversed(self._calls.items()) if key[1] == call_id]

    def stream_at(self, seq: int) -> tuple[str, str | None]:
        """Return the message, and the call of a tool's output, whose stream began at this seq."""
        call = self.tools.get(seq)
        if call is not None:
            return call.message_id, call.call_id
        return next(message_id for message_id, at in self.messages.items() if at == seq), None

    def has_ended(self, seq: int) -> bool:
        """Tell whether a message that began here has ended, or a tool was left without a result."""
        if seq in self.open_messages.values():
            return False
        tool = self.tools.get(seq)
        if tool is not None:
            return (tool.message_id, tool.call_id) in self.left
        return seq in self.messages.values()

    def is_proven_unstarted(self, call: CallState) -> bool:
        """True if no start was recorded, by a recorder that sees starts."""
        return not call.starts and self._starts == "seen" and not call.hosted

    def open_tools(self) -> Iterable[CallState]:
        """Yield calls that were started and have neither a result nor a recorded leaving."""
        for key, call in self._calls.items():
            if call.started_seq is not None and not call.answered and key not in self.left:
                yield call

    def unanswered(self) -> list[CallState]:
        """Return the calls without a result, in order."""
        return [call for call in self._calls.values() if not call.answered]

    @property
    def has_unknown(self) -> bool:
        """True if a call was started and its outcome is not known, one of an earlier turn's too."""
        unsettled = any(call.is_unsettled for call in self._calls.values())
        return unsettled or bool(self._started_late)

    @property
    def is_answered(self) -> bool:
        """True if every call that was made has its result."""
        return all(call.answered for call in self._calls.values())

    def apply(self, seq: int, body: e.Body) -> None:
        """Take the turn's next entry. Entries that do not concern this turn change nothing."""
        match body:
            case e.MessageRecorded(turn_id=self.id):
                self.messages[body.id] = seq
                self._take_parts(body.id, body.parts, complete=True)
            case e.MessageStarted(turn_id=self.id):
                self.messages[body.id] = self.open_messages[body.id] = seq
            case e.MessageEnded(turn_id=self.id):
                self.open_messages.pop(body.id, None)
                self._take_parts(body.id, body.parts, complete=body.state == "complete")
            case e.ToolCalled(turn_id=self.id):
                self._make(body.message_id, body.call_id, body.name)
            case e.ToolStarted(turn_id=self.id):
                self.tools[seq] = call = self._calls[body.message_id, body.call_id]
                call.start(seq, body)
            case e.ToolStarted() if self.ended is None:
                self._started_late.add((body.message_id, body.call_id))
            case e.LateResult() if body.turn_id != self.id:
                self._started_late.discard((body.message_id, body.result.call_id))
            case e.Settled() if body.turn_id != self.id:
                self._started_late.discard((body.message_id, body.call_id))
            case e.ToolOutput(turn_id=self.id):
                self.left.add((body.message_id, body.call_id))
            case e.ToolFinished(turn_id=self.id) | e.LateResult(turn_id=self.id):
                self._calls[body.message_id, body.result.call_id].answered = True
            case e.Settled(turn_id=self.id):
                settled = self._calls.get((body.message_id, body.call_id))
                if settled is not None and settled.starts == body.number:
                    settled.settled = body
            case e.ModelCallStarted(turn_id=self.id):
                self.model_calls[body.id], self.limited = body, False
            case e.LimitHit(turn_id=self.id):
                self.limited = True
            case e.ModelCallEnded(turn_id=self.id):
                self.model_calls.pop(body.id, None)
            case e.ApprovalAsked(turn_id=self.id):
                self.waiting.add(body.id)
                asked_about = self._calls.get((body.message_id, body.call_id))
                if asked_about is not None:
                    asked_about.asked = body.id
            case e.ApprovalDecided(turn_id=self.id):
                self.waiting.discard(body.id)
            case e.StopAsked(turn_id=self.id):
                self.stop = self.stop or body
            case e.TurnEnding(turn_id=self.id):
                self.ended = body
                self.open_messages.clear()
                self.model_calls.clear()
            case _:
                pass

    def _take_parts(self, message_id: str, parts: tuple[Part, ...], *, complete: bool) -> None:
        for part in parts:
            if isinstance(part, ToolCall):
                if complete or is_whole_object(part.arguments):
                    made = self._make(message_id, part.id, part.name)
                    made.hosted = part.tool_type == "hosted"
            elif isinstance(part, ToolResult):
                call = self.find_call(part.call_id)
                if call is not None:
                    call.answered = True

    def _make(self, message_id: str, call_id: str, name: str) -> CallState:
        call = self._calls.get((message_id, call_id))
        if call is None:
            call = CallState(message_id, call_id, name)
            self._calls[message_id, call_id] = self._newest[call_id] = call
        return call


def fold_turn(entries: Iterable[e.Entry]) -> TurnState | None:
    """Fold the first turn that starts in these entries, as far as they go."""
    turn: TurnState | None = None
    for entry in entries:
        if turn is not None:
            turn.apply(entry.seq, entry.body)
        elif isinstance(entry.body, e.TurnStarted):
            turn = TurnState(entry.seq, entry.body)
    return turn


def waiting(entries: Iterable[e.Entry]) -> dict[str, Message]:
    """Return the prompts that wait after these entries, by their ids, in order."""
    prompts: dict[str, Message] = {}
    for entry in entries:
        take(prompts, entry)
    return prompts


def take(prompts: dict[str, Message], entry: e.Entry) -> None:
    """Add or remove the prompt that one more entry queues, takes or withdraws."""
    match entry.body:
        case e.PromptWaiting() as body:
            prompts[body.id] = Message(
                body.role, body.parts, body.id, turn_id=body.steers, seq=entry.seq
            )
        case e.PromptTaken() | e.PromptWithdrawn() as body:
            prompts.pop(body.id, None)
        case _:
            pass
