"""One session, written once for both faces, as flows: opening, reading, describing it."""

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from killick.errors import BlobNotFound, CallNotFound, InvalidEntry, SessionNotFound, TurnNotFound
from killick.journal import checks
from killick.journal.checks import check_count, check_counts, check_is
from killick.journal.fold import Messages, fold_messages, fold_turns
from killick.journal.kinds import (
    HISTORY,
    TURNS,
    call_key,
    keyed_id,
    message_end_identity,
    message_identity,
    named_identity,
    turn_identity,
)
from killick.journal.turn_state import fold_turn
from killick.journal.visibility import History, in_view
from killick.model import entries as e
from killick.model.causes import Cause, check_cause
from killick.model.effects import Outcome, SettledBy, check_settlement
from killick.model.messages import (
    File,
    Image,
    Json,
    Message,
    Opaque,
    Prompt,
    Text,
    ToolResult,
    as_message,
)
from killick.model.sessions import (
    Limits,
    Namer,
    Project,
    SessionInfo,
    SessionNote,
    TurnInfo,
    microseconds,
)
from killick.session.core.tail import Tail
from killick.session.drive.steps import Flow, read, write
from killick.session.runtime import Runtime, StoreOpening, is_dead
from killick.stores import engine as ops
from killick.stores.contract import Listing, Reader, SessionRow
from killick.stores.engine.import_ops import AddedUnit
from killick.stores.engine.state import EngineState, Receipt, ended_turn
from killick.stores.log import log

if TYPE_CHECKING:  # the views are loaded when one is asked for
    from killick.views.sent import Made

VERIFIED_ON_OPEN: Final = 10_000
"""How many of the newest entries are checked when a session is opened; older ones when read."""

PAGE: Final = 1_000
_LONG_PAGE: Final = 10_000  # of all entries
_SYSTEM_PAGE: Final = 100
_NEAREST: Final = 5

Content = str | Sequence[Text | Image | File | Opaque]
"""What a tool returns: text, or parts."""


# -- opening -----------------------------------------------------------------------------------


def open_session(opening: StoreOpening, session_id: str) -> Flow["SessionCore"]:
    """Open a session: check what is read, close a turn whose holder died."""
    runtime = opening.runtime()
    row, dead = yield from read(lambda reader: _open(runtime, reader, session_id))
    core = SessionCore(opening, row)
    if dead:
        yield from core.recover()
    return core


def _open(runtime: Runtime, reader: Reader, session_id: str) -> tuple[SessionRow, bool]:
    row = find_row(reader, runtime.tenant, session_id)
    if row.about.deleted_at_us is not None:
        raise checks.session_deleted(session_id)
    verified = runtime.verified.get(row.key, 0)
    if verified < row.head:
        oldest = max(verified, row.head - VERIFIED_ON_OPEN)
        reader.entries(row.key, after=oldest)
        runtime.remember_verified(row.key, row.head)
    return row, is_dead(reader, row, surely=True)


def find_row(reader: Reader, tenant: str, session_id: str) -> SessionRow:
    row = reader.find_session(tenant, session_id)
    if row is None:
        raise not_found(reader, tenant, session_id)
    return row


def not_found(reader: Reader, tenant: str, text: str) -> SessionNotFound:
    """The error that names the ids and titles which are nearest."""
    from difflib import get_close_matches  # for those who mistyped

    newest = reader.sessions(Listing(tenant=tenant, archived=None, limit=PAGE))
    ids = get_close_matches(text, [info.id for info in newest], _NEAREST, 0.7)
    folded = text.casefold()
    titled = [info.id for info in newest if folded and folded in (info.title or "").casefold()]
    near = list(dict.fromkeys([*titled[:_NEAREST], *ids]))[:_NEAREST]
    hint = f"the nearest are {', '.join(near)}" if near else "store.sessions() lists them"
    return SessionNotFound(f"no session {text!r} in this store; {hint}")


def info_of(row: SessionRow) -> SessionInfo:
    """A session's row as a line of a list."""
    return SessionInfo(
        id=row.id,
        about=row.about,
        tenant=row.tenant,
        created_at_us=row.created_at_us,
        updated_at_us=row.updated_at_us,
    )


# -- reading -----------------------------------------------------------------------------------


def read_blob(opening: StoreOpening, name: str) -> Flow[bytes]:
    tenant = opening.runtime().tenant
    data = yield from read(lambda reader: reader.blob(tenant, name))
    if data is None:
        raise BlobNotFound(f"no blob {name!r} is stored for this tenant")
    return data


def read_deltas(reader: Reader, key: int, seq: int) -> list[e.Delta]:
    """Return what is stored of the stream that began at this seq."""
    return [delta for _, flush in reader.deltas(key, seq) for delta in flush]


def read_history(reader: Reader, key: int) -> History:
    return History(reader.marked_entries(key, HISTORY))


def read_for_model(
    reader: Reader, key: int, history: History, through: int | None = None
) -> list[e.Entry]:
    """The entries that a context may be made of: not those that a summary stands for."""
    reach, kept = history.skipped()
    if through is not None and through <= reach:
        reach, kept = 0, ()
    stay = [entry for seq in kept for entry in reader.entries(key, after=seq - 1, limit=1)]
    entries = [*stay, *reader.entries(key, after=reach, through=through)]
    if not reach:
        return entries
    known = {entry.seq for entry in entries}
    wanted = [*_referred_to(reader, key, entries), *_boundaries(reader, key, stay, reach)]
    others = {entry.seq: entry for entry in wanted if entry.seq not in known}
    return sorted([*others.values(), *entries], key=lambda entry: entry.seq)


def _boundaries(reader: Reader, key: int, stay: list[e.Entry], reach: int) -> list[e.Entry]:
    """Return the starts and endings of turns that say whether a tool that stays still runs."""
    results = [entry.body for entry in stay if isinstance(entry.body, e.ToolFinished)]
    over = {result.started for result in results}
    started = [entry.seq for entry in stay if isinstance(entry.body, e.ToolStarted)]
    started = [seq for seq in started if seq not in over]
    if not started:
        return []
    turns = reader.marked_entries(key, TURNS, after=min(started))
    return [entry for entry in turns if entry.seq <= reach]


def _referred_to(reader: Reader, key: int, entries: list[e.Entry]) -> list[e.Entry]:
    """Return the starts of turns that go on behind a summary, and the messages of late results."""
    turns, messages = dict[str, None](), dict[str, None]()
    for entry in entries:
        body = entry.body
        if isinstance(body, e.MessageRecorded | e.MessageStarted | e.ToolStarted | e.MessageEnded):
            turns[body.turn_id] = None
        elif isinstance(body, e.ToolFinished | e.LateResult | e.LateText | e.Settled):
            messages[body.message_id] = None
            if isinstance(body, e.LateText):
                turns[body.turn_id] = None
    for entry in entries:
        if isinstance(entry.body, e.TurnStarted):
            turns.pop(entry.body.turn_id, None)
        elif isinstance(entry.body, e.MessageRecorded | e.MessageStarted):
            messages.pop(entry.body.id, None)
    names = [*map(turn_identity, turns), *map(message_identity, messages)]
    names += map(message_end_identity, messages)
    earlier = (reader.find_entry(key, name) for name in names)
    return [entry for entry in earlier if entry is not None]


def read_system(reader: Reader, row: SessionRow, through: int | None = None) -> str | None:
    """The system prompt that was sent last, by `through`: a fork's row knows its own calls only."""
    if row.about.system is not None and through is None:
        return row.about.system
    before = None if through is None else through + 1
    while row.about.system is not None:
        page = reader.newest_entries(row.key, before=before, limit=_SYSTEM_PAGE)
        for entry in reversed(page):
            if isinstance(entry.body, e.ModelCallStarted) and entry.body.system is not None:
                return entry.body.system
        if not page or page[0].seq <= row.base_seq:
            break
        before = page[0].seq
    base = None if row.base is None else reader.session(row.base)
    if base is None:
        return None
    reach = row.base_seq if through is None else min(row.base_seq, through)
    return read_system(reader, base, reach)


class Steer(msgspec.Struct, frozen=True):
    """A prompt that was given while a turn ran; its id, and the turn that takes it.

    Without a turn nothing ran: it waits for the next turn.
    """

    id: str
    turn_id: str | None

    @property
    def queued(self) -> bool:
        return self.turn_id is None


class AddedMessages(msgspec.Struct, frozen=True):
    """The outcome of `add_messages`: a receipt for each message, and the turns that are new.

    `unpaired` are the ids of calls that no message makes: their results are kept as opaque data.
    """

    receipts: list[Receipt]
    turns: list[str]
    unpaired: list[str]

    @property
    def repeated(self) -> bool:
        """True if all of them were there before."""
        return all(receipt.repeated for receipt in self.receipts)


class SessionCore:
    """One session. `title` and `head` are as of the last read or write through this object."""

    def __init__(self, opening: StoreOpening, row: SessionRow) -> None:
        self.opening = opening
        self.key = row.key
        self.id = row.id
        self.title = row.about.title
        self.head = row.head
        self.made: Made | None = None
        """The newest context, which the next request may be made of."""

    def runtime(self) -> Runtime:
        return self.opening.runtime()

    def saw(self, seq: int) -> None:
        self.head = max(self.head, seq)

    def write(self, apply: Callable[[EngineState], Receipt]) -> Flow[Receipt]:
        """Wait for a write of one entry, and know of it."""
        receipt = yield from write(apply)
        self.saw(receipt.seq)
        return receipt

    # -- reading -------------------------------------------------------------------------------

    def row(self, reader: Reader) -> SessionRow:
        """Return what is known of the session now."""
        row = reader.session(self.key)
        if row is None:
            raise SessionNotFound(f"session {self.id!r} does not exist any more; it was erased")
        self.title = row.about.title
        self.saw(row.head)
        return row

    def info(self) -> Flow[SessionInfo]:
        return (yield from read(lambda reader: info_of(self.row(reader))))

    def entries(self, after: int, limit: int | None) -> Flow[list[e.Entry]]:
        return (yield from read(lambda reader: self.read_entries(reader, after, limit)))

    def read_entries(self, reader: Reader, after: int, limit: int | None) -> list[e.Entry]:
        check_count("after", after)
        check_counts(limit=limit)
        self.row(reader)
        return reader.entries(self.key, after=after, limit=limit)

    def messages(self, after: int, last: int | None, limit: int | None) -> Flow[list[Message]]:
        check_count("after", after)
        check_counts(last=last, limit=limit)
        if last is not None:
            return (yield from read(lambda reader: self._last_messages(reader, after, last)))
        return (yield from read(lambda reader: self._first_messages(reader, after, limit)))

    def _fold(self, reader: Reader, history: History, entries: list[e.Entry]) -> list[Message]:
        return fold_messages(in_view(history, entries), partial(read_deltas, reader, self.key))

    def _last_messages(self, reader: Reader, after: int, last: int) -> list[Message]:
        """Read backwards until there are enough: what starts in a tail is whole in that tail."""
        self.row(reader)
        tail, enough = Tail(reader, self.key, after), 0
        while True:
            tail.read(max(last * 2, 32 if tail.began else 64))
            if len(tail.entries) < enough and not tail.is_all:
                continue  # folded anew only when it has doubled
            messages = self._fold(reader, History(), tail.entries)
            if len(messages) >= last or tail.is_all:
                return messages[-last:] if last else []
            enough = 2 * len(tail.entries)

    def _first_messages(self, reader: Reader, after: int, limit: int | None) -> list[Message]:
        """Read forwards until there are enough, then look up what ends them further on.

        Entries are folded as they are read, so that only the messages are kept.
        """
        self.row(reader)
        fold, history = Messages(), read_history(reader, self.key)
        size = _LONG_PAGE if limit is None else PAGE
        while True:
            page = reader.entries(self.key, after=after, limit=size)
            for entry in in_view(history, page):
                fold.take(entry)
            after = page[-1].seq if page else after
            is_last = len(page) < size
            if not is_last and (limit is None or fold.count() < limit):
                continue
            for name in () if is_last else fold.awaiting():
                entry_further_on = reader.find_entry(self.key, name)
                if entry_further_on is not None and entry_further_on.seq > after:
                    for entry in in_view(history, [entry_further_on]):
                        fold.take(entry)
            messages = fold.finish(partial(read_deltas, reader, self.key))
            if is_last or limit is None or len(messages) >= limit:
                return messages[:limit]

    def turns(self) -> Flow[list[TurnInfo]]:
        return (yield from read(self._turns))

    def _turns(self, reader: Reader) -> list[TurnInfo]:
        self.row(reader)
        return fold_turns(reader.marked_entries(self.key, TURNS))

    # -- about the session ---------------------------------------------------------------------

    def describe(self, body: e.Body) -> Flow[Receipt]:
        """Append an entry that any process may append while a turn runs."""
        checks.check_content(body)
        at = self.runtime().clock()
        receipt, row = yield from write(lambda engine: ops.about(engine, self.key, body, at))
        self.title = row.about.title
        self.saw(receipt.seq)
        return receipt

    def rename(self, title: str | None, by: Namer) -> Flow[Receipt]:
        return self.describe(e.Renamed(id=self.runtime().ids("ent"), title=title, by=by))

    def limit(self, limits: Limits) -> Flow[Receipt]:
        checks.check_limits(limits)
        given = None if limits == Limits() else limits
        return self.describe(e.LimitsSet(id=self.runtime().ids("ent"), limits=given))

    def archive(self, *, archived: bool) -> Flow[Receipt]:
        return self.describe(e.Archived(id=self.runtime().ids("ent"), archived=archived))

    def pin(self, *, pinned: bool) -> Flow[Receipt]:
        return self.describe(e.Pinned(id=self.runtime().ids("ent"), pinned=pinned))

    def tag(self, add: Sequence[str], remove: Sequence[str]) -> Flow[Receipt]:
        put_on, taken_off = checks.as_tags(add), checks.as_tags(remove)
        return self.describe(e.Tagged(id=self.runtime().ids("ent"), add=put_on, remove=taken_off))

    def move(self, project: Project | None) -> Flow[Receipt]:
        return self.describe(e.Moved(id=self.runtime().ids("ent"), project=project))

    def note(self, note: SessionNote) -> Flow[Receipt]:
        (receipt,) = yield from self.note_all([note])
        return receipt

    def note_all(self, notes: Sequence[SessionNote]) -> Flow[list[Receipt]]:
        """Keep notes beside the conversation, in one commit."""
        bodies = [self._note(note) for note in checks.as_parts(notes, "notes are a list")]
        at = self.runtime().clock()
        receipts = yield from write(
            lambda engine: [ops.about(engine, self.key, body, at)[0] for body in bodies]
        )
        self.saw(max((receipt.seq for receipt in receipts), default=0))
        return receipts

    def _note(self, note: SessionNote) -> e.Note:
        check_is(note, SessionNote, "a note")
        if note.key is not None:
            checks.check_id(note.key, "key")
        body = e.Note(
            id=self.runtime().ids("ent") if note.key is None else self._note_id(note.key),
            name=note.name,
            data=note.data,
            blobs=checks.as_blob_names(note.blobs),
            key=note.key,
        )
        checks.check_content(body)
        return body

    def _note_id(self, key: str) -> str:
        return keyed_id("ent", self.id, key)

    def notes(self, name: str | None, key: str | None, last: int | None) -> Flow[list[SessionNote]]:
        """Return notes in order; those of a fork's origin too, wherever it was rewound to."""
        checks.check_kinds("notes()", str, name=name, key=key)
        check_counts(last=last)
        return (yield from read(lambda reader: self._notes(reader, name, key, last)))

    def _notes(
        self, reader: Reader, name: str | None, key: str | None, last: int | None
    ) -> list[SessionNote]:
        row, notes = self.row(reader), list[SessionNote]()
        kept = None
        if key is not None:
            kept = reader.find_entry(self.key, named_identity(self._note_id(key), "note"))
        pages = [[kept]] if kept else self._pages(reader, row, whole=key is None)
        for page in pages:
            for entry in reversed(page):
                if last is not None and len(notes) >= last:
                    return notes[::-1]
                body = entry.body
                if not isinstance(body, e.Note) or name not in (None, body.name):
                    continue
                if kept is not None or key in (None, body.key):
                    notes.append(_as_note(entry, body, key))
        return notes[::-1]

    def _pages(self, reader: Reader, row: SessionRow, *, whole: bool) -> Iterator[list[e.Entry]]:
        """Yield the journal from its end; if not the whole of it, what a fork has inherited."""
        before: int | None = None if whole else row.base_seq + 1
        while before != 1:
            page = reader.newest_entries(self.key, before=before, limit=PAGE)
            if not page:
                return
            yield page
            before = page[0].seq

    def recover(self) -> Flow[bool]:
        runtime = self.runtime()
        at = runtime.clock()
        recovered, head = yield from write(lambda engine: ops.recover(engine, self.key, at))
        self.saw(head)  # also when another process was faster
        if recovered:
            runtime.writer.metrics.recovered += 1
            log(logging.WARNING, "turn recovered", session_id=self.id)
        return recovered

    # -- turns ---------------------------------------------------------------------------------

    def stop(
        self, turn_id: str | None, reason: str | None, cause: Cause = "stopped"
    ) -> Flow[str | None]:
        """Ask the holder of the running turn to stop; the turn's id, or None when none runs."""
        runtime = self.runtime()
        check_cause(cause)
        if turn_id is not None:
            checks.check_id(turn_id, "id of a turn")
        body = e.StopAsked(
            id=runtime.ids("ent"), turn_id=turn_id or "", reason=reason or cause, cause=cause
        )
        at = runtime.clock()
        stopped = yield from write(lambda engine: ops.stop(engine, self.key, body, at))
        if stopped is None:
            return None
        stopped_id, seq = stopped
        self.saw(seq)
        runtime.deliver_stop(stopped_id, body)
        return stopped_id

    def pause(self, why: str | None, *, paused: bool) -> Flow[Receipt]:
        """Keep workers out of the session, or let them in again."""
        if why is not None:
            checks.check_text(why, "the reason of a pause")
        return self.describe(e.Paused(id=self.runtime().ids("ent"), paused=paused, why=why))

    def resume_at(self, time: datetime | None) -> Flow[Receipt]:
        """Let what is due be taken no earlier than this, or leave it to the backoff again."""
        if time is not None and not isinstance(time, datetime):
            raise TypeError(f"the time is a datetime, and this is a {type(time).__name__}")
        at_us = None if time is None else microseconds(time)
        return self.describe(e.ResumeAt(id=self.runtime().ids("ent"), at_us=at_us))

    def queue(self, prompt: Prompt, key: str | None) -> Flow[str]:
        """Keep a prompt for the next turn; its id."""
        runtime = self.runtime()
        if prompt is None:
            raise InvalidEntry("there is no prompt to keep")
        if key is not None:
            checks.check_id(key, "key")
        message = self.prompt(prompt, "", key)
        at = runtime.clock()
        yield from self.write(lambda engine: ops.queue(engine, self.key, message, at))
        return message.id

    def steer(self, prompt: Prompt, key: str | None) -> Flow[Steer]:
        """Keep a prompt for the running turn's next model call."""
        if prompt is None:
            raise InvalidEntry("there is nothing to steer the turn with")
        if key is not None:
            checks.check_id(key, "key")
        message = self.prompt(prompt, "", key)
        at = self.runtime().clock()
        receipt, turn_id = yield from write(lambda engine: ops.steer(engine, self.key, message, at))
        self.saw(receipt.seq)
        return Steer(message.id, turn_id)

    def add_messages(
        self, messages: Sequence[Message], source: str, key: str | None
    ) -> Flow[AddedMessages]:
        """Append messages from elsewhere as turns that are over."""
        checks.check_id(source, "source")
        if key is not None:
            checks.check_id(key, "key")
        given = checks.as_parts(messages, "what is added is a list of messages")
        units = [
            unit
            for number, message in enumerate(given)
            for unit in self._units(number, message, source, key)
        ]
        at = self.runtime().clock()
        added = yield from write(
            lambda engine: ops.add_messages(engine, self.key, units, source, at)
        )
        self.saw(added.head)
        last = {unit.number: receipt for unit, receipt in zip(units, added.receipts, strict=True)}
        return AddedMessages([last[number] for number in sorted(last)], added.turns, added.unpaired)

    def _units(
        self, number: int, message: Message, source: str, key: str | None
    ) -> Iterator[AddedUnit]:
        """Yield a message's results one by one, then the rest of it."""
        check_is(message, Message, "what is added")
        minted = message.id
        if not minted and key is not None:
            minted = keyed_id("msg", self.id, f"{len(source)}:{source}{number}/{key}")
        named = bool(minted)
        minted = minted or self.runtime().ids("msg")
        parts = checks.as_parts(message.parts, "the parts of a message are a list")
        body = e.MessageRecorded(id=minted, turn_id="", role=message.role, parts=parts)
        checks.check_content(body)
        turn_id = keyed_id("turn", self.id, minted)
        results = [part for part in parts if isinstance(part, ToolResult)]
        rest = tuple(part for part in parts if not isinstance(part, ToolResult))
        for result in results:
            alone = len(parts) == 1
            unit_id = minted if alone else keyed_id("msg", minted, result.call_id)
            turn = turn_id if alone else keyed_id("turn", self.id, unit_id)
            yield AddedUnit(number, unit_id, named, turn, "tool", (result,))
        if rest or not results:
            yield AddedUnit(
                number, minted, named, turn_id, message.role, rest, message.model_call_id
            )

    def withdraw(self, prompt_id: str) -> Flow[Receipt]:
        """Take a prompt that waits out of the queue."""
        checks.check_id(prompt_id, "prompt id")
        at = self.runtime().clock()
        return self.write(lambda engine: ops.withdraw(engine, self.key, prompt_id, at))

    def finish_tool(
        self, turn_id: str, call_id: str, content: Content, *, is_error: bool, structured: Json
    ) -> Flow[Receipt]:
        checks.check_id(call_id, "tool call id")
        result = tool_result(call_id, content, is_error=is_error, structured=structured)
        at = self.runtime().clock()
        return self.write(
            lambda engine: ops.finish_tool(engine, self.key, turn_id, call_id, result, None, at)
        )

    def settle(
        self,
        turn_id: str,
        call_id: str,
        outcome: Outcome,
        *,
        result: str | None,
        by: SettledBy,
        evidence: str | None,
        replaces: str | None,
    ) -> Flow[Receipt]:
        """Record what was found out about a call whose outcome is unknown."""
        checks.check_id(turn_id, "id of a turn")
        checks.check_id(call_id, "tool call id")
        check_settlement(outcome, by)
        for what, text in (("the result", result), ("the evidence", evidence)):
            if text is not None:
                checks.check_text(text, what)
        if replaces is not None:
            checks.check_id(replaces, "id of the settlement that is replaced")
        if result is not None and outcome != "ran":
            raise InvalidEntry("a tool that did not run has no result; say why as evidence")
        body = e.Settled(
            id="",
            turn_id=turn_id,
            message_id="",
            call_id=call_id,
            outcome=outcome,
            result=result,
            by=by,
            evidence=evidence,
            replaces=replaces,
        )
        turns = yield from read(lambda reader: ended_turn(reader, self.row(reader), turn_id))
        at = self.runtime().clock()
        return (yield from self.write(lambda engine: ops.settle(engine, self.key, body, at, turns)))

    def key_of(self, turn_id: str, call_id: str) -> Flow[str]:
        """Return the key for the outside with which a call was started."""
        return (yield from read(lambda reader: self._key_of(reader, turn_id, call_id)))

    def _key_of(self, reader: Reader, turn_id: str, call_id: str) -> str:
        start = self.require_turn(reader, turn_id)
        turn = fold_turn(reader.entries(self.key, after=start.seq - 1))
        call = None if turn is None else turn.find_call(call_id)
        if call is None:
            raise CallNotFound(f"no whole tool call {call_id!r} was made in turn {turn_id!r}")
        return call.key or call_key(turn_id, call.message_id, call_id)

    def require_turn(self, reader: Reader, turn_id: str) -> e.Entry:
        """Return the entry that begins a turn. Raises TurnNotFound."""
        start = reader.find_entry(self.key, turn_identity(turn_id))
        if start is None:
            raise TurnNotFound(f"session {self.id!r} has no turn {turn_id!r}")
        return start

    def add_late_text(self, turn_id: str, message_id: str, text: str) -> Flow[Receipt]:
        checks.check_id(message_id, "message id")
        checks.check_text(text, "late text")
        at = self.runtime().clock()
        return self.write(
            lambda engine: ops.add_late_text(engine, self.key, turn_id, message_id, text, at)
        )

    def decide_approval(
        self, asked: e.ApprovalAsked, *, approved: bool, by: str | None, reason: str | None
    ) -> Flow[Receipt]:
        """Decide on exactly what was asked."""
        check_is(asked, e.ApprovalAsked, "what is decided on")
        body = e.ApprovalDecided(
            id=asked.id,
            turn_id=asked.turn_id,
            arguments_hash=asked.arguments_hash,
            approved=approved,
            by=by,
            reason=reason,
        )
        at = self.runtime().clock()
        return self.write(lambda engine: ops.decide_approval(engine, self.key, body, at))

    def prompt(self, prompt: Prompt, turn_id: str, key: str | None) -> e.MessageRecorded:
        assert prompt is not None
        if not isinstance(prompt, str | Message):
            prompt = checks.as_parts(prompt, "a prompt is text, a list of parts, or a Message")
        message = as_message(prompt)
        checks.check_prompt(message.parts)
        minted = keyed_id("msg", self.id, key) if key is not None else self.runtime().ids("msg")
        body = e.MessageRecorded(
            id=message.id or minted,
            turn_id=turn_id,
            role=message.role,
            parts=checks.as_parts(message.parts, "the parts of a message are a list"),
        )
        checks.check_content(body)
        return body


def _as_note(entry: e.Entry, body: e.Note, key: str | None) -> SessionNote:
    return SessionNote(
        name=body.name,
        data=body.data,
        key=body.key or key,
        blobs=body.blobs,
        id=body.id,
        seq=entry.seq,
        at_us=entry.at_us,
    )


def tool_result(call_id: str, content: Content, *, is_error: bool, structured: Json) -> ToolResult:
    """A result as it is recorded. Raises InvalidEntry for what is over a limit."""
    if not isinstance(content, str):
        content = checks.as_parts(content, "a tool's result is text, or a list of parts")
    result = ToolResult(call_id, content, is_error=is_error, structured=structured)
    checks.check_result(result)
    return result
