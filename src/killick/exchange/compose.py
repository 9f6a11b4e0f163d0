"""Entries out of what a reader says: turns, model calls, tools, what was taken back.

Ids are made from the source's ids, or else from the place in the session, so that the same source
gives the same journal every time. Seqs are those that the journal would have if it stood alone.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from killick.errors import KillickError
from killick.exchange import records as r
from killick.exchange.records import Report, SourceLocation
from killick.exchange.repair import HOLDER, Placed
from killick.journal.assembly import is_whole_object
from killick.journal.checks import check_json
from killick.journal.codec import encode, to_bytes
from killick.journal.kinds import digest, keyed_id
from killick.model import entries as e
from killick.model.messages import OWN_PROVIDER, Json, Opaque, Part, Reasoning, Text, ToolCall
from killick.model.sessions import Namer, Parent

_ID_CHARS: Final = 200
_TEXT_CHARS: Final = 10_000

UNFINISHED: Final = "unfinished"
"""The reason of a turn of which the source has no more, and no ending."""


class _Call:
    """A tool call of the source."""

    __slots__ = ("message_id", "result", "turn_id")

    def __init__(self, turn_id: str, message_id: str) -> None:
        self.turn_id = turn_id
        self.message_id = message_id
        # What it was answered with, as a number: results are large.
        self.result: int | None = None


class _Message:
    """A message of the source: where it began, and what it said."""

    __slots__ = ("asked", "content", "message_id", "seq")

    def __init__(self, message_id: str, seq: int, content: int, asked: int | None) -> None:
        self.message_id = message_id
        self.seq = seq
        self.asked = asked
        self.content = content


class Composer:
    """One session on its way to a journal."""

    def __init__(
        self, source: str, session_id: str, report: Report, *, changes_late: bool = False
    ) -> None:
        self.source = source
        self._changes_late = changes_late
        self.session_id = session_id
        self.title: tuple[str, Namer] | None = None
        self.archived = False
        self.left_open = False
        self._report = report
        self._seq = 0
        self._at_us = 0
        self._before_us = 0
        self._fence = 0
        self._turn_id: str | None = None
        self._turn_seq = 0
        self._done = False
        self._answer_ends = False
        self._waits = False
        self._calls: dict[str, _Call] = {}
        self._open_calls: dict[str, _Call] = {}
        self._messages: dict[str, _Message] = {}
        self.late: list[e.Visibility | e.Compacted] = []
        self._systems: list[int] = []
        self._prompts: dict[int, int] = {}
        self._turn_starts: list[int] = []
        self._said = 0
        # For each entry: where its message began, and its turn. Both 0 outside of them.
        self._groups = array("q")
        self._turns = array("q")

    def compose(
        self, records: Iterable[r.Record], *, settled: bool, answer_ends: bool = False
    ) -> Iterator[Placed]:
        """Entries in order. A last turn without an ending stays open if it is not settled.

        Where `answer_ends`, an answer that calls no tool is an ending.
        """
        place, self._answer_ends = SourceLocation(""), answer_ends
        for record in records:
            place = record.place
            if record.at_us is not None:
                self._at_us = record.at_us
            yield from self._take(record)
            self._before_us = self._at_us
        if self._turn_id is None:
            return
        if settled or (answer_ends and self._is_answered):
            yield from self._end_as_it_stands(place)
        else:
            self.left_open = True

    def _take(self, record: r.Record) -> Iterator[Placed]:
        match record:
            case r.MessageRecord():
                yield from self._say(record)
            case r.ResultRecord():
                yield from self._answer(record)
            case r.TurnBegan():
                yield from self._begin_turn(record.place, record.key)
            case r.TurnOver():
                yield from self._end_turn(record)
            case r.SummaryRecord():
                yield from self._sum_up(record)
            case r.RolledBack():
                yield from self._roll_back(record)
            case r.BranchRecord():
                yield from self._go_back(record)
            case r.Bad():
                self._note_problem(record)
            case _:
                yield from self._describe(record)

    def _describe(self, record: r.Record) -> Iterator[Placed]:
        match record:
            case r.BeginRecord():
                parent = None
                if record.parent is not None:
                    parent = Parent(session_id_of(self.source, record.parent), "")
                body = e.SessionCreated(
                    type=record.type, project=record.project, extra=record.extra, parent=parent
                )
                yield self._put(body, record.place)
            case r.Titled():
                self.title = (record.title, record.by)
            case r.OpaqueRecord():
                yield self._note(record.place, record.name, record.data)
            case r.ArchiveRecord():
                self.archived = True
            case _:
                raise TypeError(f"no such record: {record!r}")

    def _note_problem(self, record: r.Bad) -> None:
        self._report.note(record.place, record.reason, repaired=record.repaired)

    # -- turns ---------------------------------------------------------------------------------

    def _begin_turn(self, place: SourceLocation, key: str) -> Iterator[Placed]:
        if self._turn_id is not None:
            yield from self._end_as_it_stands(place)
        self._fence += 1
        self._turn_id = self._id("turn", f"{key}/{self._fence}")
        self._turn_seq = self._seq + 1
        self._done, self._waits = False, True
        body = e.TurnStarted(turn_id=self._turn_id, fence=self._fence, holder=HOLDER)
        yield self._put(body, place)

    @property
    def _is_answered(self) -> bool:
        """Whether a turn is open whose last word is an answer that calls no tool."""
        return self._turn_id is not None and self._done and not self._open_calls

    def _end_as_it_stands(self, place: SourceLocation) -> Iterator[Placed]:
        """The source does not say how the turn ended: an answer without open calls completes it."""
        if self._is_answered:
            ending = r.TurnOver(place=place, status="completed")
        else:
            ending = r.TurnOver(place=place, status="interrupted", reason=UNFINISHED)
        now, self._at_us = self._at_us, self._before_us  # it ended before what comes now
        yield from self._end_turn(ending)
        self._at_us = now

    def _end_turn(self, over: r.TurnOver) -> Iterator[Placed]:
        """A call without a result may have run: its start is recorded, and so it is unknown."""
        turn_id = self._turn_id
        if turn_id is None:
            if over.status != "completed":
                data: Json = {"status": over.status, "reason": over.reason, "detail": over.detail}
                yield self._note(over.place, "ending_without_turn", data)
            return
        for call_id, call in self._open_calls.items():
            started = e.ToolStarted(turn_id=turn_id, message_id=call.message_id, call_id=call_id)
            yield self._put(started, over.place, group=self._group_of(call.message_id))
        self._open_calls.clear()
        if not self._changes_late:
            for change in self.late:
                yield self._put(change, over.place)
            self.late = []
        reason = over.reason or (None if over.status == "completed" else over.status)
        ended = e.TurnEnding(turn_id=turn_id, status=over.status, reason=reason, detail=over.detail)
        yield self._put(ended, over.place)
        self._turn_id = None

    # -- messages ------------------------------------------------------------------------------

    def _say(self, said: r.MessageRecord) -> Iterator[Placed]:
        content = hash((said.role, encode(said.parts)))
        key = self._message_id(said.key or f"{self.source}/{self._said}")
        self._said += 1
        known = self._messages.get(key)
        if known is not None and known.content == content:
            self._report.repair(said.place, f"message {key!r} is there twice; it was taken once")
            return
        if not said.parts:
            yield self._note(said.place, "empty_message", {"id": key, "role": said.role})
            return
        if known is not None:
            self._report.repair(said.place, f"another message has the id {key!r}; it got a new one")
            key = self._id("msg", f"{key}#{self._said}")
        if self._turn_id is None or (said.begins_turn and not self._waits):
            yield from self._begin_turn(said.place, key)
        if self._waits and said.role == "user" and said.person:
            self._turn_starts.append(self._turn_seq)
        yield from self._record(said, key, content)

    def _record(self, said: r.MessageRecord, key: str, content: int) -> Iterator[Placed]:
        assert self._turn_id is not None
        said = self._without_repeated_calls(self._without_foreign(said))
        call_id = self._id("call", key) if said.asked is not None else None
        asked = None
        if said.asked is not None and call_id is not None:
            asked = self._seq + 1
            system = to_bytes(said.asked.system) if said.asked.system else b""
            blobs = {digest(system): system} if system else {}
            yield self._put(self._call_started(call_id, said.asked), said.place, blobs=blobs)
        message = self._messages[key] = _Message(key, self._seq + 1, content, asked)
        yield from self._put_message(said, key, call_id, message.seq)
        if said.asked is not None and call_id is not None:
            yield self._put(self._call_ended(call_id, said.asked), said.place)
        self._learn(said, message)

    def _put_message(
        self, said: r.MessageRecord, message_id: str, call_id: str | None, group: int
    ) -> Iterator[Placed]:
        turn_id = self._turn_id
        assert turn_id is not None
        if not said.partial:
            body = e.MessageRecorded(
                id=message_id,
                turn_id=turn_id,
                role=said.role,
                parts=said.parts,
                model_call_id=call_id,
            )
            yield self._put(body, said.place, group=group, blobs=said.blobs)
            return
        started = e.MessageStarted(
            id=message_id, turn_id=turn_id, role=said.role, model_call_id=call_id
        )
        yield self._put(started, said.place, group=group)
        ended = e.MessageEnded(id=message_id, turn_id=turn_id, state="partial", parts=said.parts)
        yield self._put(ended, said.place, group=group, blobs=said.blobs)

    def _learn(self, said: r.MessageRecord, message: _Message) -> None:
        """What later records may speak of."""
        turn_id = self._turn_id
        assert turn_id is not None
        for part in said.parts:
            if isinstance(part, ToolCall) and (not said.partial or is_whole_object(part.arguments)):
                call = self._calls[part.id] = _Call(turn_id, message.message_id)
                self._open_calls[part.id] = call
        # A turn that has heard nothing but instructions still waits for its prompt.
        self._waits = self._waits and (said.role == "system" or not said.person)
        if said.role == "assistant":
            self._done = not said.partial
        elif said.role == "system":
            self._systems.append(message.seq)
        elif said.role == "user":
            self._done = self._done and not said.person
            self._prompts[_text_key(said)] = message.seq
        if not (said.person and said.model):
            self._hide(said, message)

    def _hide(self, said: r.MessageRecord, message: _Message) -> None:
        self.late.append(
            e.Visibility(
                id=self._id("ent", f"{message.message_id}/hidden"),
                seq=message.seq,
                message_id=message.message_id,
                entries=(message.seq,) if message.asked is None else (message.asked, message.seq),
                person=None if said.person else False,
                model=None if said.model else False,
            )
        )

    def _without_foreign(self, said: r.MessageRecord) -> r.MessageRecord:
        """Thoughts, calls and what a provider has sealed are the model's; nobody else said them."""
        if said.role == "assistant" or not any(_is_of_model(part) for part in said.parts):
            return said
        what = f"what only a model says is in a message of role {said.role}; it is kept as data"
        self._report.repair(said.place, what)
        parts = tuple(
            Opaque(OWN_PROVIDER, encode(part)) if _is_of_model(part) else part
            for part in said.parts
        )
        return msgspec.structs.replace(said, parts=parts)

    def _without_repeated_calls(self, said: r.MessageRecord) -> r.MessageRecord:
        """A call is known by its id within its message."""
        seen, kept = set[str](), list[Part]()
        for part in said.parts:
            if isinstance(part, ToolCall) and part.id in seen:
                self._report.repair(said.place, f"call {part.id!r} is twice in one message")
                continue
            if isinstance(part, ToolCall):
                seen.add(part.id)
            kept.append(part)
        return msgspec.structs.replace(said, parts=tuple(kept))

    def _call_started(self, call_id: str, asked: r.Asked) -> e.ModelCallStarted:
        assert self._turn_id is not None
        return e.ModelCallStarted(
            id=call_id,
            turn_id=self._turn_id,
            provider=asked.provider,
            model=asked.model,
            system=_hashed(asked.system) if asked.system else None,
        )

    def _call_ended(self, call_id: str, asked: r.Asked) -> e.ModelCallEnded:
        assert self._turn_id is not None
        return e.ModelCallEnded(
            id=call_id,
            turn_id=self._turn_id,
            finish_reason=asked.finish_reason,
            usage=asked.usage,
            provider_ids=asked.provider_ids,
            error=asked.error,
        )

    # -- results -------------------------------------------------------------------------------

    def _answer(self, answered: r.ResultRecord) -> Iterator[Placed]:
        if _as_json(answered.result.structured) != answered.result.structured:
            what = "structured content that JSON cannot hold was kept as text"
            self._report.repair(answered.place, what)
            text = _as_json(answered.result.structured)
            answered.result = msgspec.structs.replace(answered.result, structured=text)
        result = answered.result
        call = self._open_calls.pop(result.call_id, None)
        if call is not None:
            yield from self._finish_call(answered, call)
            return
        known = self._calls.get(result.call_id)
        content = hash(encode(result))
        if known is not None and known.result == content:
            what = f"the result of call {result.call_id!r} is there twice; it was taken once"
            self._report.repair(answered.place, what)
        elif known is not None and known.result is None and known.turn_id != self._turn_id:
            known.result = content
            late = e.LateResult(turn_id=known.turn_id, message_id=known.message_id, result=result)
            group = self._group_of(known.message_id)
            yield self._put(late, answered.place, group=group, blobs=answered.blobs)
        else:
            why = "has its result already" if known is not None else "was never made"
            what = f"call {result.call_id!r} {why}; this result is kept as a note"
            self._report.repair(answered.place, what)
            yield self._note(answered.place, "result_without_call", msgspec.to_builtins(result))

    def _finish_call(self, answered: r.ResultRecord, call: _Call) -> Iterator[Placed]:
        assert self._turn_id is not None
        call.result = hash(encode(answered.result))
        self._done = False
        body = e.ToolFinished(
            turn_id=self._turn_id, message_id=call.message_id, result=answered.result
        )
        group = self._group_of(call.message_id)
        placed = self._put(body, answered.place, group=group, blobs=answered.blobs)
        yield placed
        if answered.person and answered.model:
            return
        self.late.append(
            e.Visibility(
                id=self._id("ent", f"{call.message_id}/{answered.result.call_id}/hidden"),
                seq=placed.entry.seq,
                message_id=f"{call.message_id}/{answered.result.call_id}",
                person=None if answered.person else False,
                model=None if answered.model else False,
            )
        )

    def _group_of(self, message_id: str) -> int:
        known = self._messages.get(message_id)
        return known.seq if known is not None else 0

    # -- history -------------------------------------------------------------------------------

    def _sum_up(self, summed: r.SummaryRecord) -> Iterator[Placed]:
        if not summed.text.strip() or not self._messages:
            what = "a summary of nothing" if summed.text.strip() else "a summary without words"
            self._report.repair(summed.place, f"{what}; it is kept as a note")
            yield self._note(summed.place, "compaction", summed.text)
            return
        if self._answer_ends and self._is_answered and not summed.late:
            yield from self._end_as_it_stands(summed.place)
        keep = set(self._systems)
        kept = map(hash, summed.kept_texts)
        keep |= {self._prompts[text] for text in kept if text in self._prompts}
        begun = {self._group_of(call.message_id) for call in self._open_calls.values()}
        begun |= {self._group_of(self._message_id(key)) for key in summed.kept_keys}
        begun.discard(0)
        keep |= {at for at, group in enumerate(self._groups, start=1) if group in begun}
        body = e.Compacted(
            id=self._id("ent", f"compaction/{self._seq}"),
            summary=summed.text,
            first=1,
            through=self._seq,
            keep=tuple(sorted(keep)),
            provider=summed.provider,
            model=summed.model,
        )
        if summed.late:
            self.late.append(body)
        else:
            yield self._put(body, summed.place)

    def _roll_back(self, record: r.RolledBack) -> Iterator[Placed]:
        if self._turn_id is not None:
            yield from self._end_as_it_stands(record.place)
        if record.turns <= 0 or not self._turn_starts:
            self._report.repair(record.place, "there is no turn that could be taken back")
            return
        first = self._turn_starts[-min(record.turns, len(self._turn_starts))]
        yield from self._rewind(record.place, first - 1)

    def _go_back(self, record: r.BranchRecord) -> Iterator[Placed]:
        message = self._messages.get(self._message_id(record.key))
        if message is None:
            return
        if self._turn_id is not None:
            yield from self._end_as_it_stands(record.place)
        yield from self._rewind(record.place, message.seq)

    def _rewind(self, place: SourceLocation, through: int) -> Iterator[Placed]:
        keep, torn = list[int](), set[int]()
        for seq in range(through + 1, self._seq + 1):
            group, turn = self._groups[seq - 1], self._turns[seq - 1]
            if group > through or turn > through:
                torn.add(turn)
            elif group or (turn and turn not in torn and seq == self._last_of(turn)):
                keep.append(seq)
        body = e.Rewound(
            id=self._id("ent", f"rewind/{self._seq}"), through=through, keep=tuple(keep)
        )
        yield self._put(body, place)
        self._turn_starts = [start for start in self._turn_starts if start <= through]
        self._systems = [seq for seq in self._systems if seq <= through]
        self._prompts = {text: seq for text, seq in self._prompts.items() if seq <= through}

    def _last_of(self, turn: int) -> int:
        """The last entry of a turn is its ending; what came late is not part of it."""
        last = turn
        while last < self._seq and self._turns[last] == turn:
            last += 1
        return last

    # -- small things --------------------------------------------------------------------------

    def _note(self, place: SourceLocation, name: str, data: Json) -> Placed:
        body = e.Note(
            id=self._id("ent", f"note/{self._seq}"),
            name=f"{self.source}.{name}",
            data=_as_json(data),
        )
        return self._put(body, place)

    def _put(
        self,
        body: e.Body,
        place: SourceLocation,
        *,
        group: int = 0,
        blobs: dict[str, bytes] | None = None,
    ) -> Placed:
        self._seq += 1
        self._groups.append(group)
        in_turn = self._turn_id is not None and not isinstance(body, e.LateResult)
        self._turns.append(self._turn_seq if in_turn else 0)
        return Placed(e.Entry(self._seq, self._at_us, body), place, blobs or {})

    def _message_id(self, key: str) -> str:
        """The source's own id, unless it is far too long for one."""
        return key if len(key) <= _ID_CHARS else self._id("msg", key)

    def _id(self, prefix: str, key: str) -> str:
        return keyed_id(prefix, self.session_id, key)


def session_id_of(source: str, native_id: str) -> str:
    """The id that a session of a source has here, always."""
    return keyed_id("ses", source, native_id)


def _as_json(value: Json) -> Json:
    """The value, or as text what nests too deeply or holds a number that JSON does not have."""
    try:
        check_json(value, "value")
    except KillickError:
        return str(value)[:_TEXT_CHARS]
    return value


def _is_of_model(part: Part) -> bool:
    sealed = isinstance(part, Opaque) and part.provider == "anthropic"
    return sealed or isinstance(part, Reasoning | ToolCall)


def _text_key(said: r.MessageRecord) -> int:
    return hash("".join(part.text for part in said.parts if isinstance(part, Text)))


def _hashed(text: str) -> str:
    return digest(to_bytes(text))
