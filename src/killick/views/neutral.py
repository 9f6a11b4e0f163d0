"""From a journal to the repaired list of messages that every provider's context is made of.

Rule 1: entries are taken in order, and nothing that a model was sent is changed afterwards. A model
        call freezes what came before it; what becomes true later of something frozen is told as
        text, in its own place.
Rule 2: every call has exactly one result, directly behind the message that made it. A missing one
        is made up from what the journal knows: not started, denied, running, or unknown.
Rule 3: a call that was cut off in its arguments is no call. It is told as text.
Rule 4: nothing is dropped or made up without a repair that says so.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from killick.journal.assembly import assemble, is_whole_object
from killick.journal.closing import broke_off, keeps_waiting
from killick.journal.redaction import MASK, unsigned
from killick.model import entries as e
from killick.model.messages import File, Image, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from killick.views import phrases
from killick.views.call_ids import CallIds
from killick.views.hosted import hosted

Role = Literal["user", "assistant", "tool", "system"]
Partial = Literal["note", "plain", "omit"]
Errors = Literal["type", "text"]

_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")


class Repair(msgspec.Struct, frozen=True):
    """A change that was made to an entry on its way into the context, and why."""

    seq: int
    action: str
    reason: str


class Neutral(msgspec.Struct, frozen=True):
    """One message of the context before it has a provider's shape.

    `seqs` are the entries it comes from; it is `synthetic` when Killick made it up. `provider` gave
    the answer, and alone may be given its signatures and opaque data back. An answer that is
    `cut_off` may lack the other half of something. `made_up` are the calls whose results
    were made up, or are told with a sentence that says what became of the call.
    """

    role: Role
    parts: tuple[Part, ...]
    seqs: tuple[int, ...]
    synthetic: bool = False
    provider: str | None = None
    cut_off: bool = False
    model: str | None = None
    made_up: frozenset[str] = frozenset()


CallState = Literal[
    "not run", "denied", "running", "unknown", "settled ran", "settled not run", "finished"
]

_REPAIRED: Final[dict[CallState, str]] = {
    "not run": "it did not run",
    "denied": "it was denied",
    "running": "it is still running",
    "unknown": "its outcome is unknown",
    "settled ran": "it was settled that it ran",
    "settled not run": "it was settled that it did not run",
}
"""The same in the repairs as in the text that a model is sent."""


class Known(msgspec.Struct, frozen=True):
    """The journal's knowledge of a call after the entries taken so far.

    `detail` is the reason of a denial, or what the tool has printed by then.
    """

    state: CallState
    detail: str = ""
    started: bool = False
    settled: e.Settled | None = None


class Gone:
    """The calls and messages that are not shown, though something may still come for them."""

    def __init__(self) -> None:
        self.tools: dict[tuple[str, str], str] = {}
        self.rewound: set[str] = set()
        self.endings: set[str] = set()

    def take(self, entry: e.Entry, *, rewound: bool) -> None:
        match entry.body:
            case e.MessageRecorded() | e.MessageEnded() as body:
                calls = [part for part in body.parts if isinstance(part, ToolCall)]
                self.tools.update({(body.id, call.id): call.name for call in calls})
            case e.ToolCalled() as body:
                self.tools[body.message_id, body.call_id] = body.name
            case e.TurnEnding() as body:
                self.endings.add(body.turn_id)
            case _:
                pass
        message_id = begun(entry.body)
        if rewound and message_id is not None:
            self.rewound.add(message_id)


def begun(body: e.Body) -> str | None:
    """Return the id of the message that begins with this entry, if one does."""
    return body.id if isinstance(body, e.MessageRecorded | e.MessageStarted) else None


class _Call:
    """A tool call on its way to its one result."""

    def __init__(self, call: ToolCall, unique_id: str) -> None:
        self.call = call
        self.unique_id = unique_id
        self.seen = True  # by a recorder that sees starts
        self.started = self.left = False
        self.asked: str | None = None
        self.denied: str | None = None
        self.denial_told = False
        self.output = ""
        self.settled: e.Settled | None = None
        self.result: ToolResult | None = None
        self.sent: ToolResult | None = None
        self.sent_made_up = self.sent_as_denied = False
        self.told: Known | None = None
        self.note: tuple[_Saying, Known, Repair] | None = None  # what a model will be told of it
        self.seqs: list[int] = []

    @property
    def known(self) -> Known:
        if self.result is not None:
            return Known("finished")
        if self.settled is not None:
            did = self.settled.outcome == "did_not_run"
            state: CallState = "settled not run" if did else "settled ran"
            return Known(state, self.output, self.started, self.settled)
        if self.started:
            return Known("unknown" if self.left else "running", self.output, started=True)
        if self.denied is not None:
            return Known("denied", self.denied)
        # Of a tool that the provider runs itself, no start is ever seen.
        proven = self.seen and self.call.tool_type != "hosted"
        return Known("not run" if proven else "unknown", self.output)

    @property
    def is_denied(self) -> bool:
        """True if the result that is sent says that the call was denied."""
        return self.refusal is not None if self.sent is None else self.sent_as_denied

    @property
    def is_made_up(self) -> bool:
        return self.result is None if self.sent is None else self.sent_made_up

    @property
    def refusal(self) -> str | None:
        """The reason of a denial that is told with the result, which does not say it."""
        if self.result is None or self.started or self.denial_told:
            return None
        return self.denied

    def answer(self) -> ToolResult:
        """Return what the model was told before, the result, or what is known."""
        if self.sent is not None:
            return self.sent
        if self.result is not None:
            content = self.result.content
            if self.refusal is not None:
                text = phrases.denied_result(self.refusal, text_of(self.result))
                content = (Text(text), *media_of(self.result)) if media_of(self.result) else text
            return msgspec.structs.replace(self.result, call_id=self.unique_id, content=content)
        known = self.known
        if known.settled is not None:
            text = phrases.settled(known.settled, known.detail)
        else:
            text = phrases.outcome(known.state, known.detail, started=known.started)
        return ToolResult(self.unique_id, text, is_error=known.state != "settled ran")


class _Saying:
    """A message under construction, with the calls it makes."""

    __slots__ = (
        "begins", "calls", "cut_off", "freezes", "frozen", "message_id", "model_call_id",
        "partial", "parts", "provider", "raw", "role", "seen", "seqs", "synthetic",
    )  # fmt: skip

    def __init__(self, role: Role, seq: int) -> None:
        self.role = role
        self.begins = seq
        self.seqs = [seq]
        self.raw: tuple[Part, ...] = ()
        self.parts: list[Part] = []
        self.calls: tuple[_Call, ...] = ()
        self.synthetic = False
        self.frozen = False
        self.freezes = 0
        self.partial = False
        self.cut_off = False
        self.seen = True
        self.provider: str | None = None
        self.model_call_id: str | None = None
        self.message_id = ""


class _Open:
    """A streamed message that has started and not ended: where it will stand."""

    def __init__(self, seq: int, freezes: int, body: e.MessageStarted) -> None:
        self.seq = seq
        self.freezes = freezes
        self.body = body


UNREAD: Final = Neutral("user", (Text(""),), ())
"""Stands for entries that were not read."""


class Builder:
    """Takes a journal's entries in order; `finish` gives what would be sent now.

    `unpaired` says that a result had no call among the entries that were taken.
    """

    def __init__(self, gone: Gone, partial: Partial, errors: Errors, *, by_place: bool) -> None:
        self._partial = partial
        self._errors = errors
        self._gone = gone
        self.ids = CallIds(by_place=by_place)
        self.unpaired = False
        self._sayings: list[_Saying] = []
        self._open: dict[str, _Open] = {}
        self._asked: dict[str, _Call | None] = {}
        self._waiting: set[str] = set()
        self._unseen: set[str] = set()
        self._calls: dict[tuple[str, str], _Call] = {}
        self._newest: dict[str, _Call] = {}
        self._messages: dict[str, _Saying] = {}
        self._providers: dict[str, str | None] = {}
        self._running: list[_Call] = []
        self._noted: list[_Call] = []
        self._models: dict[str | None, str | None] = {}
        self._cut: _Saying | None = None
        self._endings: dict[str, tuple[_Saying, e.TurnEnding, bool]] = {}
        self._cut_calls: list[str] = []
        self._broke: dict[str, _Saying] = {}
        self._freezes = 0
        self._frozen = 0
        self.repairs: list[Repair] = []
        self.system: str | None = None

    def take(self, entry: e.Entry) -> None:
        seq, body = entry.seq, entry.body
        match body:
            case e.MessageRecorded():
                self._record(seq, body)
            case e.MessageStarted():
                self._open[body.id] = _Open(seq, self._freezes, body)
            case e.MessageEnded():
                self._end_message(seq, body)
            case e.ToolCalled():
                call = ToolCall(body.call_id, body.name)
                self._make_call(body.message_id, call)
            case e.ToolStarted() | e.ToolOutput():
                self._take_tool(seq, body)
            case e.LateResult(second=second) if second:
                self._repair(seq, "left out", "another start of the call has given its result")
            case e.ToolFinished() | e.LateResult():
                place_of_call = (body.message_id, body.result.call_id)
                call_state = self._calls.get(place_of_call)
                self._answer(seq, call_state, body.result, self._gone.tools.get(place_of_call))
            case e.Settled():
                self._take_settled(seq, body)
            case e.LateText():
                self._take_late_text(seq, body)
            case e.Compacted():
                self._summarise(seq, body)
            case e.Rewound():
                self._end_everything(seq)
            case e.ModelCallStarted():
                self._start_model_call(body)
            case e.ApprovalAsked() | e.ApprovalDecided():
                self._take_approval(seq, body)
            case e.TurnStarted():
                self._start_turn(seq, body)
            case e.TurnEnding():
                self._end_turn(seq, body)
            case _:
                pass

    def skip(self) -> None:
        """Leave a place for entries that were not read."""
        unread = _Saying(UNREAD.role, 0)
        unread.seqs, unread.parts = [], list(UNREAD.parts)
        self._sayings.append(unread)

    def finish(self) -> Iterator[Neutral]:
        """Return the list as of the entries taken so far; no more can be taken afterwards."""
        self._settle_cut(0)
        for saying in self._sayings:
            for call in saying.calls:
                if call.result is None:
                    known = _REPAIRED[call.known.state]
                    self._repair(saying.seqs[0], "made up a result", f"{call.call.id!r}: {known}")
        return (message for saying in self._sayings for message in self._neutral(saying))

    # -- messages ------------------------------------------------------------------------------

    def _record(self, seq: int, body: e.MessageRecorded) -> None:
        self._settle_cut(seq)
        saying = _Saying(body.role, seq)
        saying.message_id, saying.model_call_id = body.id, body.model_call_id
        saying.provider = body.provider or self._provider(body.model_call_id)
        saying.seen = body.turn_id not in self._unseen
        results = [part for part in body.parts if isinstance(part, ToolResult)]
        saying.raw = tuple(part for part in body.parts if not isinstance(part, ToolResult))
        if body.role == "tool":
            saying.role = "user"
        self._fill(saying)
        self._messages[body.id] = saying
        if saying.parts or saying.calls:
            self._sayings.append(saying)
        elif not results:
            self._repair(seq, "left out", "the message is empty")
        for result in results:
            call = self._newest.get(result.call_id)
            self.unpaired = self.unpaired or call is None
            self._answer(seq, call, result)

    def _end_message(self, seq: int, body: e.MessageEnded) -> None:
        opened = self._open.pop(body.id, None)
        if opened is None:
            return
        self._settle_cut(seq)
        saying = _Saying(opened.body.role, opened.seq)
        saying.seqs.append(seq)
        saying.message_id, saying.model_call_id = body.id, opened.body.model_call_id
        saying.provider = self._provider(opened.body.model_call_id)
        saying.seen = body.turn_id not in self._unseen
        saying.freezes = self._freezes
        saying.partial = saying.cut_off = body.state == "partial"
        saying.raw = body.parts
        self._fill(saying)
        self._messages[body.id] = saying
        if saying.partial:
            self._cut = saying
        if not saying.parts and not saying.calls:
            return
        if opened.freezes == self._freezes:
            self._insert(saying)
        else:
            self._sayings.append(saying)  # something was sent meanwhile, without it

    def _insert(self, saying: _Saying) -> None:
        """Put a message where it started; nothing has been sent since."""
        index = len(self._sayings)
        while index > self._frozen and self._sayings[index - 1].begins > saying.begins:
            index -= 1
        self._sayings.insert(index, saying)

    def _fill(self, saying: _Saying) -> None:
        """Take the parts of a message that can be sent; calls that are whole become calls."""
        saying.parts, saying.calls = [], ()
        for part in saying.raw:
            if isinstance(part, ToolCall) and saying.role != "assistant":
                self._repair(saying.seqs[0], "left out", f"a {saying.role} message makes no calls")
            elif isinstance(part, ToolCall):
                self._fill_call(saying, part)
            elif isinstance(part, Text) and not part.text.strip():
                continue
            elif isinstance(part, Reasoning) and MASK in part.text:
                saying.parts.append(unsigned(part))
                self._repair(saying.seqs[0], "left out", "the signature of masked reasoning")
            elif not (saying.partial and self._partial == "omit" and isinstance(part, Text)):
                saying.parts.append(part)

    def _fill_call(self, saying: _Saying, part: ToolCall) -> None:
        call = self._calls.get((saying.message_id, part.id))
        if saying.cut_off and call is None and not is_whole_object(part.arguments):
            self._cut_calls.append(phrases.cut_call(_safe_name(part.name), seen=saying.seen))
            self._repair(saying.seqs[0], "told as text", f"call {part.id!r} was cut off")
            return
        if call is None or any(call is made for made in saying.calls):
            call = self._make_call(saying.message_id, part)
        call.call, call.seen = part, saying.seen
        saying.calls = (*saying.calls, call)
        saying.parts.append(
            msgspec.structs.replace(part, id=call.unique_id, name=_safe_name(part.name))
        )

    def _take_late_text(self, seq: int, body: e.LateText) -> None:
        if body.call_id is not None:
            call = self._calls.get((body.message_id, body.call_id))
            if call is not None:
                call.output += "".join(delta.text for delta in body.deltas)
                self._renew(seq, call)
            return
        if body.message_id in self._gone.rewound:
            return
        saying = self._messages.get(body.message_id)
        empty_before = saying is not None and not saying.parts and not saying.calls
        late = empty_before and saying is not None and saying.freezes != self._freezes
        if saying is None or saying.frozen or late:
            self._tell_late(seq, body)
            return
        saying.raw = assemble(body.deltas, onto=saying.raw)
        saying.partial = saying.partial and not body.whole
        saying.seqs.append(seq)
        self._fill_again(saying)
        if empty_before and saying.parts:
            self._insert(saying)

    def _tell_late(self, seq: int, body: e.LateText) -> None:
        """Tell as text what came of an answer that a model was sent without it."""
        spoken = [delta.text for delta in body.deltas if delta.type == "text"]
        called = [delta.head for delta in body.deltas if isinstance(delta.head, ToolCall)]
        seen = body.turn_id not in self._unseen
        calls = [phrases.late_call(_safe_name(call.name), seen=seen) for call in called]
        brought = [delta.head for delta in body.deltas if isinstance(delta.head, Opaque)]
        runs = [run for part in brought if (run := hosted(part, brought)) is not None]
        self._say(seq, "\n".join([phrases.late_text("".join(spoken), calls), *runs]))
        self._repair(seq, "told as text", "a model was sent the answer without it")

    def _fill_again(self, saying: _Saying) -> None:
        """Fill a message that was filled before: a call that was cut off may be whole now."""
        first = saying.seqs[0]
        self.repairs = [repair for repair in self.repairs if repair.seq != first]
        waiting, self._cut_calls = self._cut_calls, []
        self._fill(saying)
        cut = self._cut_calls
        self._cut_calls = cut if self._cut is saying else waiting
        if saying.message_id in self._endings:
            note, body, waits = self._endings[saying.message_id]
            text = phrases.ended(body, cut, waits=waits, errors=self._errors)
            note.raw = (Text(text),)
            note.parts = list(note.raw)

    # -- calls -----------------------------------------------------------------------------------

    def _make_call(self, message_id: str, part: ToolCall) -> _Call:
        call = _Call(part, self.ids.unique(message_id, part.id))
        # Of two calls of one id in an answer a start or a result means the first.
        self._newest[part.id] = self._calls.setdefault((message_id, part.id), call)
        return call

    def _take_tool(self, seq: int, body: e.ToolStarted | e.ToolOutput) -> None:
        call = self._calls.get((body.message_id, body.call_id))
        if call is None:
            return  # its message is not in view
        call.started = True
        if isinstance(body, e.ToolOutput):
            call.output, call.left = body.output, True
        else:  # by the turn that runs, which may be a later one than that which made the call
            call.left, call.settled = False, None
            self._running.append(call)
        self._renew(seq, call)

    def _take_settled(self, seq: int, body: e.Settled) -> None:
        """Take what was found out about a call: it is told as such, and is no result."""
        made_by = (body.message_id, body.call_id)
        call = self._calls.get(made_by)
        if call is not None:
            call.settled = body
            self._renew(seq, call)
        elif made_by in self._gone.tools:
            name = _safe_name(self._gone.tools[made_by])
            self._say(seq, phrases.gone_settled(body, name))
            self._repair(seq, "told as text", "the call that was settled is not shown")

    def _take_approval(self, seq: int, body: e.ApprovalAsked | e.ApprovalDecided) -> None:
        if isinstance(body, e.ApprovalAsked):
            self._waiting.add(body.id)
            call = self._asked[body.id] = self._calls.get((body.message_id, body.call_id))
            if call is not None and call.result is None:
                call.asked, call.denied, call.denial_told = body.id, None, False
        else:
            self._waiting.discard(body.id)
            call = self._asked.get(body.id)
            asked = call is not None and call.asked == body.id and call.result is None
            if call is not None and asked and not body.approved:
                call.denied = body.reason or ""  # what has a result by then, a denial did not stop
        if call is not None:
            self._renew(seq, call)

    def _renew(self, seq: int, call: _Call) -> None:
        """Tell what has become true of a call since a model was sent something else of it."""
        if call.sent is None or call.told is None:
            return  # what is told of it is made when it is sent
        known = call.known
        if call.note is not None:
            saying, noted, repair = call.note
            if known == noted:
                return
            self._sayings.remove(saying)
            self.repairs.remove(repair)
            call.note = None
        if known == call.told:
            return
        name = _safe_name(call.call.name)
        if call.result is None:
            if known.settled is not None:
                text = phrases.settled_since(known.settled, name, call.unique_id, known.detail)
            else:
                text = phrases.since(
                    name, call.unique_id, known.state, known.detail, started=known.started
                )
            self._say(seq, text)
            self._repair(
                seq,
                "told as text",
                f"{call.call.id!r}: {_REPAIRED[known.state]}, and a model was told something else",
            )
        else:
            result, words = call.result, text_of(call.result)
            text = phrases.late_result(name, call.unique_id, words, is_error=result.is_error)
            if call.refusal is not None:
                text = phrases.denied_result_since(name, call.unique_id, call.refusal, words)
            self._say(seq, text, *media_of(result))
            self._repair(seq, "told as text", "a model was told before that it had no result")
        call.note = self._sayings[-1], known, self.repairs[-1]
        self._noted.append(call)

    def _answer(
        self, seq: int, call: _Call | None, result: ToolResult, gone: str | None = None
    ) -> None:
        if call is None:
            name, words = gone and _safe_name(gone), text_of(result)
            text = phrases.orphan_result(result.call_id, name, words, is_error=result.is_error)
            self._say(seq, text, *media_of(result))
            self._repair(seq, "told as text", "the result has no call")
        elif call.result is not None:
            self._repair(seq, "left out", f"call {call.call.id!r} has a result already")
        else:
            was_told = call.told is not None and call.told.settled == call.settled
            call.result = result
            if call.sent is None:
                call.seqs.append(seq)
            self._renew(seq, call)
            if call.settled is not None and not was_told:
                name = _safe_name(call.call.name)
                self._say(seq, phrases.had_settled(call.settled, name, call.unique_id))

    # -- turns and model calls -------------------------------------------------------------------

    def _start_model_call(self, body: e.ModelCallStarted) -> None:
        self._providers[body.id], self._models[body.id] = body.provider, body.model
        self._settle_cut(0)
        for saying in self._sayings[self._frozen :]:
            saying.frozen = True
            for call in saying.calls:
                call.sent_made_up, call.sent_as_denied = call.is_made_up, call.is_denied
                call.sent, call.told = call.answer(), call.known
                call.denial_told = call.told.state == "denied"
        for call in self._noted:
            call.told, call.note = call.known, None
            call.denial_told = call.told.state == "denied"
        self._noted.clear()
        self._frozen = len(self._sayings)
        self._freezes += 1
        self.system = body.system or self.system

    def _start_turn(self, seq: int, body: e.TurnStarted) -> None:
        self._waiting.clear()
        self._stop_tools(seq)  # those of a turn whose ending is not in view
        if body.starts == "unseen":
            self._unseen.add(body.turn_id)
            self._forget_break(body.continues)

    def _forget_break(self, turn_id: str | None) -> None:
        """Take back that a turn broke off, when its source went on with it as if nothing were."""
        broke = self._broke.pop(turn_id or "", None)
        if broke is not None and not broke.frozen and self._sayings[-1:] == [broke]:
            self._sayings.pop()

    def _end_turn(self, seq: int, body: e.TurnEnding) -> None:
        self._stop_tools(seq)
        if body.turn_id in self._gone.endings:
            return  # a summary stands for it
        for opened in [each for each in self._open.values() if each.body.turn_id == body.turn_id]:
            del self._open[opened.body.id]
        if body.status == "completed" or body.cause == "forked":
            self._settle_cut(seq)
        answer, self._cut = self._cut, None
        cut, self._cut_calls = self._cut_calls, []
        if body.status != "completed" and body.cause != "forked":
            waits = bool(self._waiting) and keeps_waiting(body)
            self._say(seq, phrases.ended(body, cut, waits=waits, errors=self._errors))
            if answer is not None:
                self._endings[answer.message_id] = (self._sayings[-1], body, waits)
            if body.turn_id in self._unseen and broke_off(body):
                self._broke[body.turn_id] = self._sayings[-1]

    def _end_everything(self, seq: int) -> None:
        """End what is in view before a rewind, though its ending may not be in view."""
        self._settle_cut(0)
        self._open.clear()
        self._stop_tools(seq)

    def _stop_tools(self, seq: int) -> None:
        """No tool runs on behind the end of the turn that started it, as far as is known."""
        running, self._running = self._running, []
        for call in running:
            call.left = True
            self._renew(seq, call)

    def _summarise(self, seq: int, body: e.Compacted) -> None:
        self._say(seq, phrases.summary(body.summary))
        self._sayings[-1].begins = body.first

    def _settle_cut(self, seq: int) -> None:
        """Say that an answer broke off whose turn goes on, before what comes next."""
        if self._cut is None:
            return
        cut, self._cut = self._cut, None
        names, self._cut_calls = self._cut_calls, []
        if self._partial == "note" or names:
            self._say(seq or cut.seqs[-1], phrases.cut_off(names))

    def _provider(self, model_call_id: str | None) -> str | None:
        """Return the provider that answered; of a model call that is not in view, none."""
        return None if model_call_id is None else self._providers.get(model_call_id, "")

    # -- small things ----------------------------------------------------------------------------

    def _say(self, seq: int, text: str, *parts: Part) -> None:
        note = _Saying("user", seq)
        note.raw, note.synthetic = (Text(text), *parts), True
        note.parts = list(note.raw)
        self._sayings.append(note)

    def _neutral(self, saying: _Saying) -> Iterable[Neutral]:
        if saying.parts:
            yield Neutral(
                saying.role,
                tuple(saying.parts),
                tuple(saying.seqs),
                saying.synthetic,
                saying.provider,
                saying.cut_off,
                self._models.get(saying.model_call_id),
            )
        if saying.calls:
            results = tuple(call.answer() for call in saying.calls)
            seqs = tuple(seq for call in saying.calls for seq in call.seqs)
            made_up = frozenset(call.unique_id for call in saying.calls if call.is_made_up)
            denied = frozenset(call.unique_id for call in saying.calls if call.is_denied)
            yield Neutral(
                "tool",
                results,
                seqs or tuple(saying.seqs),
                synthetic=len(made_up) == len(results),
                made_up=made_up | denied,
            )

    def _repair(self, seq: int, action: str, reason: str) -> None:
        self.repairs.append(Repair(seq, action, reason))


def build(
    entries: Iterable[e.Entry],
    *,
    partial: Partial = "note",
    errors: Errors = "type",
    gone: Gone | None = None,
) -> Builder:
    """Take all entries of a journal; `gone` hears of those that are not among them."""
    builder = Builder(gone or Gone(), partial, errors, by_place=False)
    for entry in entries:
        builder.take(entry)
    return builder


def _safe_name(name: str) -> str:
    return _UNSAFE.sub("_", name)[:64] or "tool"


def text_of(result: ToolResult) -> str:
    """Return a result's text; without any, its structured content, or that it is images alone."""
    text = result.content
    if not isinstance(text, str):
        text = "\n".join(part.text for part in text if isinstance(part, Text))
    if text.strip():
        return text
    if result.structured is not None:
        return json.dumps(result.structured, ensure_ascii=False)
    return phrases.no_text() if media_of(result) else ""


def media_of(result: ToolResult) -> Sequence[Image | File]:
    if isinstance(result.content, str):
        return ()
    return [part for part in result.content if isinstance(part, Image | File)]
