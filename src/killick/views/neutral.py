"""From a journal to the repaired list of messages that every provider's context is made of.

Rule 1: entries are taken in order, and nothing that a model was sent is changed afterwards. A model
        call freezes what came before it; what arrives later for something frozen is told as text,
        in its own place.
Rule 2: every call has exactly one result, directly behind the message that made it. A missing one
        is made up from what the journal knows: not started, or started with an unknown outcome.
Rule 3: a call that was cut off in its arguments is no call. It is told as text.
Rule 4: nothing is dropped or made up without a repair that says so.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

from killick.journal.assembly import assemble, is_whole_object
from killick.journal.closing import keeps_waiting
from killick.model import entries as e
from killick.model.messages import File, Image, Part, Text, ToolCall, ToolResult
from killick.views import phrases

Role = Literal["user", "assistant", "tool", "system"]
Partial = Literal["note", "plain", "omit"]

_SAFE_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}\Z")
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
    `cut_off` may lack the other half of something.
    """

    role: Role
    parts: tuple[Part, ...]
    seqs: tuple[int, ...]
    synthetic: bool = False
    provider: str | None = None
    cut_off: bool = False


class _Call:
    """A tool call on its way to its one result."""

    def __init__(self, call: ToolCall, unique_id: str) -> None:
        self.call = call
        self.unique_id = unique_id
        self.started = False
        self.ended_turn = False
        self.output = ""
        self.result: ToolResult | None = None
        self.sent: ToolResult | None = None
        self.seqs: list[int] = []

    def answer(self) -> ToolResult:
        """Return what the model was told before, the result, or what is known."""
        if self.sent is not None:
            return self.sent
        if self.result is not None:
            return msgspec.structs.replace(self.result, call_id=self.unique_id)
        if not self.started and self.call.tool_type != "hosted":  # those the provider runs itself
            return ToolResult(self.unique_id, phrases.did_not_run(), is_error=True)
        text = phrases.unknown(self.output, running=not self.ended_turn)
        return ToolResult(self.unique_id, text, is_error=True)


class _Saying:
    """A message under construction, with the calls it makes."""

    __slots__ = (
        "begins", "calls", "cut_off", "frozen", "message_id", "model_call_id", "partial", "parts",
        "provider", "raw", "role", "seqs", "synthetic",
    )  # fmt: skip

    def __init__(self, role: Role, seq: int) -> None:
        self.role = role
        self.begins = seq
        self.seqs = [seq]
        self.raw: tuple[Part, ...] = ()
        self.parts: list[Part] = []
        self.calls: list[_Call] = []
        self.synthetic = False
        self.frozen = False
        self.partial = False
        self.cut_off = False
        self.provider: str | None = None
        self.model_call_id: str | None = None
        self.message_id = ""


class _Open:
    """A streamed message that has started and not ended: where it will stand."""

    def __init__(self, seq: int, freezes: int, body: e.MessageStarted) -> None:
        self.seq = seq
        self.freezes = freezes
        self.body = body


class Builder:
    """Takes a journal's entries in order; `finish` gives what would be sent now."""

    def __init__(self, *, partial: Partial = "note") -> None:
        self._partial = partial
        self._sayings: list[_Saying] = []
        self._open: dict[str, _Open] = {}
        self._asked: set[str] = set()
        self._calls: dict[tuple[str, str], _Call] = {}
        self._newest: dict[str, _Call] = {}
        self._ids: dict[str, int] = {}
        self._messages: dict[str, _Saying] = {}
        self._providers: dict[str, str | None] = {}
        self._turn_calls: list[_Call] = []
        self._cut: _Saying | None = None
        self._cut_calls: list[str] = []
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
                self._take_tool(body)
            case e.ToolFinished() | e.LateResult():
                call_state = self._calls.get((body.message_id, body.result.call_id))
                self._answer(seq, call_state, body.result)
            case e.LateText():
                self._take_late_text(seq, body)
            case e.Compacted():
                self._summarise(seq, body)
            case e.Rewound():
                self._end_everything()
            case e.ModelCallStarted():
                self._start_model_call(body)
            case e.ApprovalAsked():
                self._asked.add(body.id)
            case e.ApprovalDecided():
                self._asked.discard(body.id)
            case e.TurnStarted():
                self._asked.clear()
            case e.TurnEnding():
                self._end_turn(seq, body)
            case _:
                pass

    def finish(self) -> list[Neutral]:
        """Return the list as of the entries taken so far; no more can be taken afterwards."""
        self._settle_cut(0)
        for saying in self._sayings:
            for call in saying.calls:
                if call.result is None:
                    known = "its outcome is unknown" if call.started else "it did not run"
                    self._repair(saying.seqs[0], "made up a result", f"{call.call.id!r}: {known}")
        return [message for saying in self._sayings for message in self._neutral(saying)]

    # -- messages ------------------------------------------------------------------------------

    def _record(self, seq: int, body: e.MessageRecorded) -> None:
        self._settle_cut(seq)
        saying = _Saying(body.role, seq)
        saying.message_id, saying.model_call_id = body.id, body.model_call_id
        saying.provider = self._provider(body.model_call_id)
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
            self._answer(seq, self._newest.get(result.call_id), result)

    def _end_message(self, seq: int, body: e.MessageEnded) -> None:
        opened = self._open.pop(body.id, None)
        if opened is None:
            return
        self._settle_cut(seq)
        saying = _Saying(opened.body.role, opened.seq)
        saying.seqs.append(seq)
        saying.message_id, saying.model_call_id = body.id, opened.body.model_call_id
        saying.provider = self._provider(opened.body.model_call_id)
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
        saying.parts, saying.calls = [], []
        for part in saying.raw:
            if isinstance(part, ToolCall) and saying.role != "assistant":
                self._repair(saying.seqs[0], "left out", f"a {saying.role} message makes no calls")
            elif isinstance(part, ToolCall):
                self._fill_call(saying, part)
            elif isinstance(part, Text) and not part.text.strip():
                continue
            elif not (saying.partial and self._partial == "omit" and isinstance(part, Text)):
                saying.parts.append(part)

    def _fill_call(self, saying: _Saying, part: ToolCall) -> None:
        call = self._calls.get((saying.message_id, part.id))
        if saying.cut_off and call is None and not is_whole_object(part.arguments):
            self._cut_calls.append(_safe_name(part.name))
            self._repair(saying.seqs[0], "told as text", f"call {part.id!r} was cut off")
            return
        if call is None or any(call is made for made in saying.calls):
            call = self._make_call(saying.message_id, part)
        call.call = part
        saying.calls.append(call)
        saying.parts.append(
            ToolCall(call.unique_id, _safe_name(part.name), part.arguments, part.tool_type)
        )

    def _take_late_text(self, seq: int, body: e.LateText) -> None:
        if body.call_id is not None:
            call = self._calls.get((body.message_id, body.call_id))
            if call is not None:
                call.output += "".join(delta.text for delta in body.deltas)
            return
        saying = self._messages.get(body.message_id)
        if saying is None or saying.frozen:
            spoken = [delta.text for delta in body.deltas if delta.type == "text"]
            self._say(seq, phrases.late_text("".join(spoken)))
            self._repair(seq, "told as text", "a model was sent the answer without it")
            return
        saying.raw = assemble(body.deltas, onto=saying.raw)
        saying.partial = saying.partial and not body.whole
        saying.seqs.append(seq)
        empty_before = not saying.parts and not saying.calls
        cut = list(self._cut_calls)
        self._fill(saying)
        self._cut_calls = cut  # where its turn ended it was said already
        if empty_before and saying.parts:
            self._insert(saying)

    # -- calls -----------------------------------------------------------------------------------

    def _make_call(self, message_id: str, part: ToolCall) -> _Call:
        call = _Call(part, self._unique(part.id))
        self._calls.setdefault((message_id, part.id), call)
        self._newest[part.id] = call
        self._turn_calls.append(call)
        return call

    def _take_tool(self, body: e.ToolStarted | e.ToolOutput) -> None:
        call = self._calls.get((body.message_id, body.call_id))
        if call is None:
            return  # its message is not in view
        call.started = True
        if isinstance(body, e.ToolOutput):
            call.output = body.output

    def _unique(self, call_id: str) -> str:
        """Make an id that every provider takes and that occurs once: providers repeat theirs."""
        safe = call_id if _SAFE_ID.match(call_id) else f"call_{_hash(call_id)}"
        count = self._ids[safe] = self._ids.get(safe, 0) + 1
        return safe if count == 1 else self._unique(f"{safe[:30]}_{count}")

    def _answer(self, seq: int, call: _Call | None, result: ToolResult) -> None:
        if call is None:
            text = phrases.orphan_result(result.call_id, _text_of(result))
            self._say(seq, text, *_media(result))
            self._repair(seq, "told as text", "the result has no call")
        elif call.sent is not None and call.result is None:
            call.result = result
            text = phrases.late_result(
                _safe_name(call.call.name),
                call.unique_id,
                _text_of(result),
                is_error=result.is_error,
            )
            self._say(seq, text, *_media(result))
            self._repair(seq, "told as text", "a model was told before that it had no result")
        elif call.result is not None:
            self._repair(seq, "left out", f"call {call.call.id!r} has a result already")
        else:
            call.result = result
            call.seqs.append(seq)

    # -- turns and model calls -------------------------------------------------------------------

    def _start_model_call(self, body: e.ModelCallStarted) -> None:
        self._providers[body.id] = body.provider
        self._settle_cut(0)
        for saying in self._sayings[self._frozen :]:
            saying.frozen = True
            for call in saying.calls:
                call.sent = call.answer()
        self._frozen = len(self._sayings)
        self._freezes += 1
        self.system = body.system or self.system

    def _end_turn(self, seq: int, body: e.TurnEnding) -> None:
        for call in self._turn_calls:
            call.ended_turn = True
        self._turn_calls = []
        for opened in [each for each in self._open.values() if each.body.turn_id == body.turn_id]:
            del self._open[opened.body.id]
        if body.status == "completed":
            self._settle_cut(seq)
        cut, self._cut, self._cut_calls = self._cut_calls, None, []
        if body.status != "completed" and body.cause != "forked":
            waits = bool(self._asked) and keeps_waiting(body)
            self._say(seq, phrases.ended(body, cut, waits=waits))

    def _end_everything(self) -> None:
        """End what is in view before a rewind, though its ending may not be in view."""
        self._settle_cut(0)
        self._open.clear()
        for call in self._turn_calls:
            call.ended_turn = True
        self._turn_calls = []

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
        note.raw = (Text(text), *parts)
        note.parts = list(note.raw)
        note.synthetic = True
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
            )
        if saying.calls:
            results = tuple(call.answer() for call in saying.calls)
            seqs = tuple(seq for call in saying.calls for seq in call.seqs)
            made_up = all(call.result is None for call in saying.calls)
            yield Neutral("tool", results, seqs or tuple(saying.seqs), made_up)

    def _repair(self, seq: int, action: str, reason: str) -> None:
        self.repairs.append(Repair(seq, action, reason))


def build(entries: Iterable[e.Entry], *, partial: Partial = "note") -> Builder:
    """Take all entries of a journal."""
    builder = Builder(partial=partial)
    for entry in entries:
        builder.take(entry)
    return builder


def _safe_name(name: str) -> str:
    return _UNSAFE.sub("_", name)[:64] or "tool"


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _text_of(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def _media(result: ToolResult) -> Sequence[Part]:
    if isinstance(result.content, str):
        return ()
    return [part for part in result.content if isinstance(part, Image | File)]
