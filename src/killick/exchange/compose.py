"""Make a journal's entries out of a reader's records: turns, model calls, tools, rewinds.

Ids are made from the source's ids, or else from the position in the session, so that the same
source gives the same journal every time. Seqs are those of a journal that holds nothing else.
"""

from array import array
from collections.abc import Iterator
from itertools import chain
from typing import Final

import msgspec

from killick.errors import KillickError
from killick.exchange import records as r
from killick.exchange.message_entries import call_ended, call_started, message_bodies
from killick.exchange.records import Report, Source, SourceLocation
from killick.exchange.repair import HOLDER, LocatedEntry
from killick.journal.assembly import is_whole_object
from killick.journal.checks import check_json
from killick.journal.codec import encode, to_bytes
from killick.journal.kinds import digest, keyed_id
from killick.model import entries as e
from killick.model.causes import Cause
from killick.model.messages import OWN_PROVIDER, Json, Opaque, Part, Reasoning, Text, ToolCall
from killick.model.sessions import Namer, Parent

_ID_CHARS: Final = 200
_TEXT_CHARS: Final = 10_000
_DIGEST_CHARS: Final = 16
_LOOKED_AT: Final = 500
"""How many records a session's beginning may wait for the first time in it."""

UNFINISHED: Final = "unfinished"
"""The reason of a turn of which the source has no more, and no ending."""

_CAUSES: Final[dict[str, Cause]] = {"failed": "failed", "interrupted": "other"}
"""The causes where the source tells no more than the status."""

LateChange = e.Visibility | e.Compacted


def session_id_of(source: str, native_id: str) -> str:
    """Return the id that a session of a source always has here."""
    return keyed_id("ses", source, native_id)


# -- the state -------------------------------------------------------------------------------------


class SessionFacts(msgspec.Struct):
    """Facts of the session that the importer writes after the entries."""

    title: tuple[str, Namer] | None = None
    prompt: str | None = None
    parent: str | None = None
    archived: bool = False
    left_open: bool = False
    silent: bool = False
    growing: tuple[str, tuple[Part, ...]] | None = None
    """The message that its agent still writes, as far as it is there."""
    changes: list[LateChange] = []


class _Call(msgspec.Struct):
    """A tool call of the source; its result is kept as a hash, because results are large."""

    turn_id: str
    message_id: str
    result_hash: int | None = None


class _Message(msgspec.Struct):
    """A message of the source, with the seqs of its start and of its model call."""

    id: str
    seq: int
    content_hash: int
    model_call_seq: int | None


class _Turn(msgspec.Struct):
    """The open turn. It waits until a prompt came, and is answered by a whole answer."""

    id: str
    seq: int
    is_told: bool = False
    """Its source has told of its beginning."""
    waits: bool = True
    has_answer: bool = False
    open_calls: dict[str, _Call] = {}
    held: list[r.ResultRecord] = []
    """Results that came before their calls."""

    @property
    def has_only_instructions(self) -> bool:
        """Tell whether it began with what an agent injects, and nothing came since."""
        return self.waits and not (self.is_told or self.has_answer or self.open_calls)

    @property
    def is_answered(self) -> bool:
        """Tell whether its last message is an answer without open calls."""
        return self.has_answer and not self.open_calls


class _Known:
    """The messages, calls and turns that later records may refer to."""

    def __init__(self) -> None:
        self.calls: dict[str, _Call] = {}
        self.messages: dict[str, _Message] = {}
        self.message_count = 0
        self.system_seqs: list[int] = []
        self.prompt_seqs: dict[int, int] = {}  # by the hash of the prompt's text
        self.prompted_turns: list[int] = []

    def group_of(self, message_id: str) -> int:
        """Return the seq at which a message started; 0 for an unknown one."""
        message = self.messages.get(message_id)
        return message.seq if message is not None else 0

    def rewind(self, through: int) -> None:
        """Forget the prompts and instructions after a seq."""
        self.prompted_turns = [seq for seq in self.prompted_turns if seq <= through]
        self.system_seqs = [seq for seq in self.system_seqs if seq <= through]
        self.prompt_seqs = {text: seq for text, seq in self.prompt_seqs.items() if seq <= through}


class _Journal:
    """The entries so far: the last seq, the clock, and which message and turn each belongs to."""

    def __init__(self, source: str, session_id: str) -> None:
        self._source = source
        self._session_id = session_id
        self.seq = 0
        self.at_us = 0
        self.turn_seq = 0
        """Where the open turn began; 0 outside of turns."""
        # For each entry: where its message began, and its turn. Both 0 outside of them.
        self._groups = array("q")
        self._turns = array("q")

    def append(
        self,
        body: e.Body,
        location: SourceLocation,
        *,
        group: int = 0,
        blobs: dict[str, bytes] | None = None,
    ) -> LocatedEntry:
        """Give the next seq to an entry."""
        self.seq += 1
        self._groups.append(group)
        self._turns.append(0 if isinstance(body, e.LateResult) else self.turn_seq)
        return LocatedEntry(e.Entry(self.seq, self.at_us, body), location, blobs or {})

    def note(self, location: SourceLocation, name: str, data: Json) -> LocatedEntry:
        """Append a note with data that has no entry of its own."""
        kept = _as_json(data)
        # A note may stand elsewhere once its source has grown: its place alone does not name it.
        own = digest(encode([name, kept]))[:_DIGEST_CHARS]
        body = e.Note(
            id=self.make_id("ent", f"note/{self.seq}/{own}"),
            name=f"{self._source}.{name}",
            data=kept,
        )
        return self.append(body, location)

    def make_id(self, prefix: str, key: str) -> str:
        return keyed_id(prefix, self._session_id, key)

    def message_id(self, key: str) -> str:
        """Return the source's own id, unless it is far too long for one."""
        return key if len(key) <= _ID_CHARS else self.make_id("msg", key)

    def seqs_of(self, groups: set[int]) -> set[int]:
        """Return the seqs of all entries of the messages that began at these seqs."""
        return {seq for seq, group in enumerate(self._groups, start=1) if group in groups}

    def kept_by_rewind(self, through: int) -> list[int]:
        """Return the later entries that belong to what a rewind to this seq keeps."""
        keep, torn = list[int](), set[int]()
        for seq in range(through + 1, self.seq + 1):
            group, turn = self._groups[seq - 1], self._turns[seq - 1]
            if group > through or turn > through:
                torn.add(turn)
            elif group or (turn and turn not in torn and seq == self._ending_of(turn)):
                keep.append(seq)
        return keep

    def _ending_of(self, turn: int) -> int:
        """Return the seq of a turn's last entry; a late result is not part of its turn."""
        last = turn
        while last < self.seq and self._turns[last] == turn:
            last += 1
        return last


# -- the composer ----------------------------------------------------------------------------------


class Composer:
    """Makes entries of one session's records, in order."""

    def __init__(self, source: Source, report: Report) -> None:
        self._source = source
        self._report = report
        self.session_id = session_id_of(source.name, source.native_id)
        self.facts = SessionFacts()
        self._journal = _Journal(source.name, self.session_id)
        self._known = _Known()
        self._turn: _Turn | None = None
        self._fence = 0
        self._before_us = 0
        self._asides: list[tuple[int, r.OpaqueRecord | r.MessageRecord]] = []
        self._growing: r.MessageRecord | None = None

    def entries(self) -> Iterator[LocatedEntry]:
        """Yield the entries. A last turn without an ending stays open unless it is settled."""
        location, journal = SourceLocation(""), self._journal
        for record in r.written(_dated(self._source), self._source, self._leave_growing):
            location = record.location
            if record.at_us is not None:
                journal.at_us = record.at_us
            if not self._put_aside(record):
                yield from self._read_asides(record)
                yield from self._read(record)
            self._before_us = journal.at_us
        if self._growing is not None:
            yield from self._begin_growing(self._growing)
        if self.facts.left_open:
            return
        turn, is_settled = self._turn, self._source.settled
        if turn is not None and not (is_settled or (self._source.answer_ends and turn.is_answered)):
            self._leave_open()
            return
        if turn is not None:
            yield from self._end_without_record(location, "crashed")
        if turn is not None or is_settled:
            # What was injected belongs to the prompt that may follow; it is a note until then.
            self._asides = [(at_us, aside.as_note()) for at_us, aside in self._asides]
            yield from self._read_asides()

    def _leave_open(self) -> None:
        self.facts.left_open = True

    def _leave_growing(self, record: r.MessageRecord) -> None:
        self._leave_open()
        self._growing = record if record.streams else None

    def _begin_growing(self, record: r.MessageRecord) -> Iterator[LocatedEntry]:
        """Begin the message that its agent still writes, in a turn that is under way."""
        turn, key = self._turn, self._key_of(record)
        record = self._without_repeated_calls(self._without_foreign_parts(record))
        if turn is None or record.role != "assistant" or key in self._known.messages:
            return
        yield from self._read_asides(record)
        call_id = None if record.model_call is None else self._journal.make_id("call", key)
        if record.model_call is not None and call_id is not None:
            yield self._start_call(record, record.model_call, call_id, turn)
        begun = e.MessageStarted(id=key, turn_id=turn.id, role=record.role, model_call_id=call_id)
        yield self._journal.append(begun, record.location)
        self.facts.growing = key, record.parts

    def _key_of(self, record: r.MessageRecord) -> str:
        count = self._known.message_count
        return self._journal.message_id(record.key or f"{self._source.name}/{count}")

    def _start_call(
        self, record: r.MessageRecord, call: r.ModelCallRecord, call_id: str, turn: _Turn
    ) -> LocatedEntry:
        system = to_bytes(call.system) if call.system else b""
        blobs = {digest(system): system} if system else {}
        started = call_started(call_id, turn.id, call)
        return self._journal.append(started, record.location, blobs=blobs)

    # -- what may stand behind a turn or in it -------------------------------------------------

    def _put_aside(self, record: r.Record) -> bool:
        """Hold what follows an answer: it belongs to the turn only if the turn goes on.

        The place of a turn's ending must not depend on how far its source was written. What is
        injected between two turns is held, too: it is no turn of its own.
        """
        turn = self._turn
        if isinstance(record, r.OpaqueRecord):
            held = bool(self._asides) if turn is None else turn.is_answered
        elif isinstance(record, r.MessageRecord):
            if turn is None:
                held = record.is_instruction
            else:
                held = turn.is_answered and record.is_injected
        else:
            return False
        if held:
            self._asides.append((self._journal.at_us, record))
        return held

    def _read_asides(self, before: r.Record | None = None) -> Iterator[LocatedEntry]:
        """Yield what was put aside; a prompt behind it ends the turn in front of it."""
        if not self._asides or isinstance(before, r.TitleRecord | r.ProblemRecord):
            return
        asides, self._asides, journal = self._asides, [], self._journal
        now, last = journal.at_us, self._before_us
        ends = (
            isinstance(before, r.TurnStartRecord | r.RollbackRecord | r.BranchRecord)
            or (isinstance(before, r.MessageRecord) and before.begins_turn)
            or (isinstance(before, r.TurnEndRecord) and before.status == "completed")
        )
        if ends and self._turn is not None:
            journal.at_us = self._before_us = asides[0][0]
            yield from self._end_without_record(asides[0][1].location)
        for at_us, aside in asides:
            journal.at_us = at_us
            yield from self._read(aside)
        journal.at_us, self._before_us = now, last

    def _read(self, record: r.Record) -> Iterator[LocatedEntry]:
        match record:
            case r.MessageRecord():
                yield from self._add_message(record)
            case r.ResultRecord():
                yield from self._add_result(record)
            case r.TurnStartRecord():
                if self._turn is None or not self._turn.has_only_instructions:
                    yield from self._begin_turn(record.location, record.key)
                assert self._turn is not None
                self._turn.is_told = True
            case r.TurnEndRecord():
                yield from self._end_turn(record)
            case r.SummaryRecord():
                yield from self._compact(record)
            case r.RollbackRecord():
                yield from self._roll_back(record)
            case r.BranchRecord():
                yield from self._branch(record)
            case r.ProblemRecord():
                self._report.take(record)
            case _:
                yield from self._describe(record)

    def _describe(self, record: r.Record) -> Iterator[LocatedEntry]:
        match record:
            case r.BeginRecord():
                parent = None
                if record.parent is not None:
                    self.facts.parent = session_id_of(self._source.name, record.parent)
                    parent = Parent(self.facts.parent, "")
                body = e.SessionCreated(
                    type=record.type, project=record.project, extra=record.extra, parent=parent
                )
                yield self._journal.append(body, record.location)
            case r.TitleRecord():
                self.facts.title = (record.title, record.by)
            case r.OpaqueRecord():
                yield self._journal.note(record.location, record.name, record.data)
            case r.ArchiveRecord():
                self.facts.archived = True
            case _:
                raise TypeError(f"no such record: {record!r}")

    # -- turns ---------------------------------------------------------------------------------

    def _begin_turn(self, location: SourceLocation, key: str) -> Iterator[LocatedEntry]:
        if self._turn is not None:
            yield from self._end_without_record(location)
        self._fence += 1
        turn_id = self._journal.make_id("turn", f"{key}/{self._fence}")
        self._turn = _Turn(turn_id, self._journal.seq + 1)
        self._journal.turn_seq = self._turn.seq
        body = e.TurnStarted(turn_id=turn_id, fence=self._fence, holder=HOLDER, starts="unseen")
        yield self._journal.append(body, location)

    def _end_without_record(
        self, location: SourceLocation, cause: Cause = "other"
    ) -> Iterator[LocatedEntry]:
        """End the turn whose ending the source does not tell: an answer completes it.

        A source that goes on afterwards does not say why; one that ends here was cut off. Nothing
        was asked in a turn that has only instructions, so nothing broke off.
        """
        assert self._turn is not None
        if self._turn.is_answered or self._turn.has_only_instructions:
            ending = r.TurnEndRecord(location=location, status="completed")
        else:
            ending = r.TurnEndRecord(
                location=location, status="interrupted", reason=UNFINISHED, cause=cause
            )
        now = self._journal.at_us
        self._journal.at_us = self._before_us  # it ended before this record
        yield from self._end_turn(ending)
        self._journal.at_us = now

    def _end_turn(self, record: r.TurnEndRecord) -> Iterator[LocatedEntry]:
        """End the open turn. A call without a result may have run: its start is never seen."""
        turn, journal = self._turn, self._journal
        if turn is None:
            if record.status != "completed":
                data: Json = {
                    "status": record.status,
                    "reason": record.reason,
                    "detail": record.detail,
                }
                yield journal.note(record.location, "ending_without_turn", data)
            return
        for held in turn.held:
            yield self._note_result(held, "was never made")
        turn.open_calls.clear()
        if not self._source.changes_late:
            for change in self.facts.changes:
                yield journal.append(change, record.location)
            self.facts.changes = []
        reason = record.reason or (None if record.status == "completed" else record.status)
        ending = e.TurnEnding(
            turn_id=turn.id,
            status=record.status,
            reason=reason,
            detail=record.detail,
            cause=record.cause or _CAUSES.get(record.status),
        )
        yield journal.append(ending, record.location)
        self._turn, journal.turn_seq = None, 0

    # -- messages ------------------------------------------------------------------------------

    def _add_message(self, record: r.MessageRecord) -> Iterator[LocatedEntry]:
        journal, known = self._journal, self._known
        content_hash = hash((record.role, encode(record.parts)))
        key = self._key_of(record)
        known.message_count += 1
        earlier = known.messages.get(key)
        if earlier is not None and earlier.content_hash == content_hash:
            what = f"message {key!r} is there twice; it was taken once"
            self._report.repair(record.location, what, harmless=True)
            return
        if not record.parts:
            yield journal.note(record.location, "empty_message", {"id": key, "role": record.role})
            return
        if earlier is not None:
            what = f"another message has the id {key!r}; it got a new one"
            self._report.repair(record.location, what, harmless=True)
            key = journal.make_id("msg", f"{key}#{known.message_count}")
        if self._turn is None or (record.begins_turn and not self._turn.waits):
            yield from self._begin_turn(record.location, key)
        turn = self._turn
        assert turn is not None
        if turn.waits and record.role == "user" and record.person:
            known.prompted_turns.append(turn.seq)
        yield from self._write_message(record, turn, key, content_hash)
        if record.begins_turn and record.person and self.facts.prompt is None:
            self.facts.prompt = record.first_line
        for held in [held for held in turn.held if held.result.call_id in turn.open_calls]:
            turn.held.remove(held)
            yield from self._add_result(held)

    def _write_message(
        self, record: r.MessageRecord, turn: _Turn, key: str, content_hash: int
    ) -> Iterator[LocatedEntry]:
        """Write the message, between the start and the end of its model call if it has one."""
        journal, model_call = self._journal, record.model_call
        record = self._without_repeated_calls(self._without_foreign_parts(record))
        call_id, call_seq = None, None
        if model_call is not None:
            call_id, call_seq = journal.make_id("call", key), journal.seq + 1
            yield self._start_call(record, model_call, call_id, turn)
        message = _Message(key, journal.seq + 1, content_hash, call_seq)
        self._known.messages[key] = message
        for body in message_bodies(record, key, turn.id, call_id):
            blobs = {} if isinstance(body, e.MessageStarted) else record.blobs
            yield journal.append(body, record.location, group=message.seq, blobs=blobs)
        if model_call is not None and call_id is not None:
            yield journal.append(call_ended(call_id, turn.id, model_call), record.location)
        self._remember(record, turn, message)

    def _remember(self, record: r.MessageRecord, turn: _Turn, message: _Message) -> None:
        """Note what later records may refer to."""
        known, partial = self._known, record.partial
        for part in record.parts:
            if isinstance(part, ToolCall) and (not partial or is_whole_object(part.arguments)):
                call = known.calls[part.id] = _Call(turn.id, message.id)
                turn.open_calls[part.id] = call
        # A turn with nothing but instructions still waits for its prompt.
        turn.waits = turn.waits and (record.role == "system" or not record.person)
        if record.role == "assistant":
            turn.has_answer = not partial
        elif record.role == "system":
            known.system_seqs.append(message.seq)
        elif record.role == "user":
            turn.has_answer = turn.has_answer and not record.person
            known.prompt_seqs[_text_hash(record)] = message.seq
        if not (record.person and record.model):
            call_seq = message.model_call_seq
            self.facts.changes.append(
                e.Visibility(
                    id=self._journal.make_id("ent", f"{message.id}/hidden"),
                    seq=message.seq,
                    message_id=message.id,
                    entries=(message.seq,) if call_seq is None else (call_seq, message.seq),
                    person=None if record.person else False,
                    model=None if record.model else False,
                )
            )

    def _without_foreign_parts(self, record: r.MessageRecord) -> r.MessageRecord:
        """Keep reasoning, calls and sealed data as plain data unless the model said them."""
        if record.role == "assistant" or not any(_is_of_model(part) for part in record.parts):
            return record
        what = f"what only a model says is in a message of role {record.role}; it is kept as data"
        self._report.repair(record.location, what)
        parts = tuple(
            Opaque(OWN_PROVIDER, encode(part)) if _is_of_model(part) else part
            for part in record.parts
        )
        return msgspec.structs.replace(record, parts=parts)

    def _without_repeated_calls(self, record: r.MessageRecord) -> r.MessageRecord:
        """Drop repeated calls: a call is known by its id within its message."""
        seen, kept = set[str](), list[Part]()
        for part in record.parts:
            if isinstance(part, ToolCall) and part.id in seen:
                self._report.repair(record.location, f"call {part.id!r} is twice in one message")
                continue
            if isinstance(part, ToolCall):
                seen.add(part.id)
            kept.append(part)
        return msgspec.structs.replace(record, parts=tuple(kept))

    # -- results -------------------------------------------------------------------------------

    def _add_result(self, record: r.ResultRecord) -> Iterator[LocatedEntry]:
        turn, known = self._turn, self._known
        structured = _as_json(record.result.structured)
        if structured != record.result.structured:
            what = "structured content that JSON cannot hold was kept as text"
            self._report.repair(record.location, what, harmless=True)
            record.result = msgspec.structs.replace(record.result, structured=structured)
        result = record.result
        if turn is not None and result.call_id in turn.open_calls:
            yield from self._finish_call(record, turn, turn.open_calls.pop(result.call_id))
            return
        call = known.calls.get(result.call_id)
        result_hash = hash(encode(result))
        if call is not None and call.result_hash == result_hash:
            what = f"the result of call {result.call_id!r} is there twice; it was taken once"
            self._report.repair(record.location, what, harmless=True)
        elif call is not None and call.result_hash is None and not _is_of(call, turn):
            call.result_hash = result_hash
            late = e.LateResult(turn_id=call.turn_id, message_id=call.message_id, result=result)
            group = known.group_of(call.message_id)
            yield self._journal.append(late, record.location, group=group, blobs=record.blobs)
        elif call is None and turn is not None:
            turn.held.append(record)  # agents that run tools while they stream write it first
        else:
            why = "has its result already" if call is not None else "was never made"
            yield self._note_result(record, why)

    def _note_result(self, record: r.ResultRecord, why: str) -> LocatedEntry:
        what = f"call {record.result.call_id!r} {why}; this result is kept as a note"
        self._report.repair(record.location, what)
        data = msgspec.to_builtins(record.result)
        return self._journal.note(record.location, "result_without_call", data)

    def _finish_call(
        self, record: r.ResultRecord, turn: _Turn, call: _Call
    ) -> Iterator[LocatedEntry]:
        call.result_hash = hash(encode(record.result))
        turn.has_answer = False
        body = e.ToolFinished(turn_id=turn.id, message_id=call.message_id, result=record.result)
        group = self._known.group_of(call.message_id)
        located = self._journal.append(body, record.location, group=group, blobs=record.blobs)
        yield located
        if record.person and record.model:
            return
        result_id = f"{call.message_id}/{record.result.call_id}"
        self.facts.changes.append(
            e.Visibility(
                id=self._journal.make_id("ent", f"{result_id}/hidden"),
                seq=located.entry.seq,
                message_id=result_id,
                person=None if record.person else False,
                model=None if record.model else False,
            )
        )

    # -- compactions and rewinds ---------------------------------------------------------------

    def _compact(self, record: r.SummaryRecord) -> Iterator[LocatedEntry]:
        journal, known, turn = self._journal, self._known, self._turn
        if not record.text.strip() or not known.messages:
            what = "a summary of nothing" if record.text.strip() else "a summary without words"
            self._report.repair(record.location, f"{what}; it is kept as a note")
            yield journal.note(record.location, "compaction", record.text)
            return
        ends = self._source.answer_ends and not record.late
        if ends and turn is not None and turn.is_answered:
            yield from self._end_without_record(record.location)
        body = e.Compacted(
            id=journal.make_id("ent", f"compaction/{journal.seq}"),
            summary=record.text,
            first=1,
            through=journal.seq,
            keep=tuple(sorted(self._kept_by(record))),
            provider=record.provider,
            model=record.model,
        )
        if record.late:
            self.facts.changes.append(body)
        else:
            yield journal.append(body, record.location)

    def _kept_by(self, record: r.SummaryRecord) -> set[int]:
        """Return the seqs that stay beside a summary: instructions, kept messages, open calls."""
        known, message_id = self._known, self._journal.message_id
        keep = set(known.system_seqs)
        kept = map(hash, record.kept_texts)
        keep |= {known.prompt_seqs[text] for text in kept if text in known.prompt_seqs}
        open_calls = self._turn.open_calls.values() if self._turn is not None else ()
        groups = {known.group_of(call.message_id) for call in open_calls}
        groups |= {known.group_of(message_id(key)) for key in record.kept_keys}
        groups.discard(0)
        return keep | self._journal.seqs_of(groups)

    def _roll_back(self, record: r.RollbackRecord) -> Iterator[LocatedEntry]:
        if self._turn is not None:
            yield from self._end_without_record(record.location)
        turns = self._known.prompted_turns
        if record.turns <= 0 or not turns:
            self._report.repair(record.location, "there is no turn that could be taken back")
            return
        yield self._rewind(record.location, turns[-min(record.turns, len(turns))] - 1)

    def _branch(self, record: r.BranchRecord) -> Iterator[LocatedEntry]:
        message = self._known.messages.get(self._journal.message_id(record.key))
        if message is None:
            return
        if self._turn is not None:
            yield from self._end_without_record(record.location)
        yield self._rewind(record.location, message.seq)

    def _rewind(self, location: SourceLocation, through: int) -> LocatedEntry:
        journal = self._journal
        body = e.Rewound(
            id=journal.make_id("ent", f"rewind/{journal.seq}"),
            through=through,
            keep=tuple(journal.kept_by_rewind(through)),
        )
        self._known.rewind(through)
        return journal.append(body, location)


# -- times -----------------------------------------------------------------------------------------


def _dated(source: Source) -> Iterator[r.Record]:
    """Yield the records; a beginning without a time is as old as the first thing that has one.

    Without any it is as old as its file.
    """
    records = iter(source.records)
    read = list[r.Record]()
    for record in records:
        read.append(record)
        if record.at_us or len(read) == _LOOKED_AT:
            break
    at_us = next((record.at_us for record in read if record.at_us), source.changed_us)
    if read and not read[0].at_us:
        read[0].at_us = at_us
    for record in chain(read, records):
        if not record.at_us:
            record.at_us = None
        yield record


# -- entries and their parts -----------------------------------------------------------------------


def _as_json(value: Json) -> Json:
    """Return the value, or as text a value that nests too deeply or that JSON cannot hold."""
    try:
        check_json(value, "value")
    except KillickError:
        return str(value)[:_TEXT_CHARS]
    return value


def _is_of(call: _Call, turn: _Turn | None) -> bool:
    return turn is not None and call.turn_id == turn.id


def _is_of_model(part: Part) -> bool:
    sealed = isinstance(part, Opaque) and part.provider == "anthropic"
    return sealed or isinstance(part, Reasoning | ToolCall)


def _text_hash(record: r.MessageRecord) -> int:
    return hash("".join(part.text for part in record.parts if isinstance(part, Text)))
