"""Merge a journal that was made elsewhere into a store.

A source is a sequence of units: a whole turn, or one entry outside of turns, with the seqs that it
would have in a journal of its own. They are compared with what is stored, in order:

Rule 1: what is there already is passed over; entries about the session that were added here
        (a title, tags, a note) do not stand in the way.
Rule 2: where the stored journal ends, the rest is appended: a source that has grown.
Rule 3: a turn that came in before it was over there keeps its ending; what came since is a turn
        that continues it, in the same session. Its id is made from where it begins.
Rule 4: where the two part, the rest goes into a fork of what they share. The fork's id is made
        from where and how they part, so the next import finds it again.
Rule 5: seqs inside of entries are those of the source; each is written with its place here.
Rule 6: a source that ends within a turn of which there is more here is an older copy: nothing of it
        is new.
Rule 7: the last turn of a source that is followed may be open. It runs here, held by this opening
        of the store; what comes of it later is appended to it.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import msgspec

from killick.errors import SessionDeleted, SessionNotFound
from killick.exchange.message_entries import begun, ended, rest_id, rest_of_message
from killick.exchange.records import Action
from killick.exchange.seq_map import SeqMap, TentativeSeqMap
from killick.journal.chain import LinkedEntry
from killick.journal.codec import encode
from killick.journal.kinds import digest, identity, keyed_id, same_content
from killick.model import entries as e
from killick.model.messages import Part, ToolCall
from killick.session.sync import Session, Store

_PAGE: Final = 200
_BATCH: Final = 256
_BATCH_BYTES: Final = 1024 * 1024
"""How much is written in one transaction, unless one turn alone is more."""

MORE_HERE: Final = "there is more of it here than in this file"

_ABOUT: Final[tuple[type[e.KnownBody], ...]] = (
    e.SessionCreated,
    e.Renamed,
    e.LimitsSet,
    e.Archived,
    e.Pinned,
    e.Tagged,
    e.Moved,
    e.Restored,
    e.Deleted,
    e.Note,
    e.Imported,
    e.Visibility,
    e.StopAsked,
    e.PromptWaiting,
)


class Unit(msgspec.Struct):
    """A whole turn, or one entry outside of turns, and the blobs that it names.

    The last of a source that is followed may be the beginning of a turn.
    """

    entries: list[e.Entry]
    blobs: dict[str, bytes] = {}

    @property
    def open_turn(self) -> str | None:
        """Return the id of a turn that it leaves open."""
        first, last = self.entries[0].body, self.entries[-1].body
        is_open = isinstance(first, e.TurnStarted) and not isinstance(last, e.TurnEnding)
        return first.turn_id if is_open and isinstance(first, e.TurnStarted) else None

    @property
    def has_only_notes(self) -> bool:
        return all(isinstance(entry.body, e.Note) for entry in self.entries)


class Merged(msgspec.Struct):
    """The outcome: the session that holds the journal now, and how many entries were added."""

    session_id: str
    action: Action
    added: int = 0
    fork_of: str | None = None
    fork_at: int = 0
    why: str | None = None
    running: str | None = None
    """The turn that was left open, and runs here."""
    went_on: int = 0
    """How many of the entries go on with a turn that ran here before."""
    growing: tuple[str, tuple[Part, ...]] | None = None
    """The message that streams in that turn, and what there is of it."""
    try_again: bool = False
    """Whether what stood in the way may be over soon."""
    seq_here: Callable[[int], int] = lambda seq: seq
    """Gives the seq here of the source's entry at a seq."""


class _InUse(Exception):
    """A turn runs here in the part that is to be compared."""


def merge(
    store: Store,
    session_id: str,
    units: Iterable[Unit],
    *,
    dry_run: bool = False,
    known: set[str] | None = None,
    passing: tuple[type[e.KnownBody], ...] = (),
    held: Collection[str] | None = None,
) -> Merged:
    """Append the units that are missing. If interrupted: whole units are there, call it again.

    `known` are the ids of all sessions, for a caller that brings in many: asking a store for a
    missing one makes it look for the nearest. Stored entries of the kinds in `passing` are passed
    over, as a title is. A caller that follows the source names the turns that it has `held` so far,
    by which it may leave the last one open.
    """
    try:
        merger = _Merger(store, session_id, known, (*_ABOUT, *passing), held, dry_run=dry_run)
        for unit in units:
            merger.merge_unit(unit)
        return merger.finish()
    except SessionDeleted:
        return Merged(session_id, "left", why="it was deleted here")
    except _InUse:
        return Merged(session_id, "left", why="a turn of it runs here", try_again=True)


class _Merger:
    """One journal on its way in."""

    def __init__(
        self,
        store: Store,
        session_id: str,
        known: set[str] | None,
        passing: tuple[type[e.KnownBody], ...],
        held: Collection[str] | None,
        *,
        dry_run: bool,
    ) -> None:
        self._held = held
        self._running: str | None = None
        self._went_on = 0
        self._store = store
        self._known = known
        self._passing = passing
        self._dry_run = dry_run
        self.session_id = session_id
        self.added = 0
        self._fork_of: str | None = None
        self._fork_at = 0
        self._fork_why: str | None = None
        self._continued = 0
        self._seq_here = SeqMap()
        self._reached = 0
        self._left_out: list[Unit] = []
        """The end of the source, if it is an older copy: what follows may show that it is none."""
        self._may_be_older = True
        self._batch: list[e.Entry] = []
        self._batch_bytes = 0
        self._is_new = False
        self._stored: _Stored | None = None
        self._next = 1
        self._open()

    def _open(self) -> None:
        try:
            self._stored = _Stored(self._session(self.session_id), self._passing, self._held or ())
        except SessionDeleted:  # it is a SessionNotFound too, and must not be taken for one
            raise
        except SessionNotFound:
            self._stored, self._is_new = None, True

    def _session(self, session_id: str) -> Session:
        if self._known is not None and session_id not in self._known:
            raise SessionNotFound(session_id)
        return self._store.session(session_id)

    def merge_unit(self, unit: Unit) -> None:
        if self._left_out and not unit.has_only_notes:
            again, self._left_out, self._may_be_older = self._left_out, [], False
            for each in again:
                self.merge_unit(each)
        rest: Unit | None = unit
        while rest is not None:
            rest = self._merge_part(rest)

    def _merge_part(self, unit: Unit) -> Unit | None:
        """Merge a unit, or the part of it that came in before; return the rest."""
        if self._stored is not None:
            stored_part = self._find(unit)
            if stored_part is not None:
                seqs, rest = stored_part
                for entry, seq in zip(unit.entries, seqs, strict=False):
                    self._note_seq(entry.seq, seq)
                return rest
        self._add(unit)
        return None

    def _find(self, unit: Unit) -> tuple[list[int], Unit | None] | None:
        """Return the seqs at which this unit is stored; None when it must be appended.

        Beside them is what follows of a turn that was stored before it was over there.
        """
        assert self._stored is not None
        seqs = self._stored.find(unit, self._seq_here)
        if seqs is not None:
            self._running = unit.open_turn if self._stored.is_running(unit.open_turn) else None
            return seqs, None
        going_on = self._stored.find_running(unit, self._seq_here)
        if going_on is not None:
            self._go_on(unit, *going_on)
            return [], None
        begun = self._stored.find_begun(unit, self._seq_here)
        if begun is not None:
            rest = _rest_of(unit, begun)
            self._continued += rest is not None
            return begun.seqs, rest
        if self._stored.at_end:
            self._next = self._stored.head + 1
            self._stored = None
            return None
        if self._may_be_older and self._stored.has_more_of(unit, self._seq_here):
            self._left_out.append(unit)
            return [], None
        self._part(unit)
        return self._find(unit) if self._stored is not None else None

    def _go_on(self, unit: Unit, seqs: list[int], known: set[str]) -> None:
        """Append what came of a turn that runs here; a message that streamed is whole now."""
        assert self._stored is not None
        self._next, self._stored = self._stored.head + 1, None
        for entry, seq in zip(unit.entries, seqs, strict=False):
            self._note_seq(entry.seq, seq)
        self._running = unit.open_turn
        entries = unit.entries[len(seqs) :]
        whole = _body_at(unit, len(seqs))
        if isinstance(whole, e.MessageRecorded) and identity(begun(whole)) in known:
            entries[0] = e.Entry(entries[0].seq, entries[0].at_us, ended(whole))
        rest = [entry for entry in entries if _is_news(entry, known)]
        self._append(rest, unit.blobs)
        self._went_on += len(rest)

    def _part(self, unit: Unit) -> None:
        """Go on in a fork of the shared part: the two journals differ from here."""
        assert self._stored is not None
        shared = self._reached
        if self._fork_of is None:
            self._fork_at, self._fork_why = shared, self._stored.why_other(unit)
        content = encode([encode(entry.body).hex() for entry in unit.entries])
        name = keyed_id("ses", self.session_id, f"{shared}/{digest(content)}")
        original, self._fork_of = self.session_id, self.session_id
        self.session_id = name
        self._open_fork(original, name, shared)

    def _open_fork(self, original: str, name: str, shared: int) -> None:
        self._is_new = False
        try:
            self._stored = _Stored(
                self._session(name), self._passing, self._held or (), after=shared
            )
        except SessionDeleted:
            raise
        except SessionNotFound:
            self._stored, self._is_new = None, True
            self._next = shared + 2 if shared else 1
            if shared and not self._dry_run:
                self._next = self._store.session(original).fork(shared, id=name).head + 1

    # -- writing -------------------------------------------------------------------------------

    def _add(self, unit: Unit) -> None:
        self._running = unit.open_turn
        self._append(unit.entries, unit.blobs)

    def _append(self, entries: Sequence[e.Entry], blobs: dict[str, bytes]) -> None:
        if not self._dry_run:
            for data in blobs.values():
                self._store.put_blob(data)
        for entry in entries:
            self._note_seq(entry.seq, self._next)
            body = relocated(entry.body, self._seq_here)
            if isinstance(body, e.TurnStarted):  # each turn that continues one has a number, too
                body = msgspec.structs.replace(body, fence=body.fence + self._continued)
            self._batch.append(_placed(entry, self._next, body))
            self._batch_bytes += len(encode(body))
            self._next += 1
        self.added += len(entries)
        if len(self._batch) >= _BATCH or self._batch_bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._batch and not self._dry_run:
            hold = self._held is not None
            self._store.import_entries(self.session_id, self._batch, hold=hold)
        self._batch, self._batch_bytes = [], 0

    def finish(self) -> Merged:
        self._flush()
        if self._is_new and not self.added and self._fork_of is None:
            return Merged(self.session_id, "left", why="nothing of it can be read")
        if self._known is not None and not self._dry_run:
            self._known.add(self.session_id)
        action: Action = "unchanged"
        why = MORE_HERE if self._left_out else self._fork_why
        if self._fork_of is not None and self._is_new:
            action = "forked"
        elif self.added:
            action = "new" if self._is_new else "grown"
        return Merged(
            self.session_id,
            action,
            self.added,
            self._fork_of,
            self._fork_at,
            why,
            self._running,
            self._went_on,
            seq_here=self._seq_here,
        )

    def _note_seq(self, seq: int, here: int) -> None:
        self._reached = here
        self._seq_here.note(seq, here)


def _placed(entry: e.Entry, seq: int, body: e.Body) -> e.Entry:
    """Return an entry in its place here; with its link, if it is the same and in the same place."""
    if isinstance(entry, LinkedEntry) and (entry.seq, entry.body) == (seq, body):
        return entry
    return e.Entry(seq, entry.at_us, body)


class _Stored:
    """The stored journal, read from front to back beside the source's."""

    def __init__(
        self,
        session: Session,
        passing: tuple[type[e.KnownBody], ...],
        held: Collection[str],
        after: int = 0,
    ) -> None:
        self._session = session
        self._passing = passing
        self._held = held
        self.head = after
        self._page: list[e.Entry] = []
        self._open_turns = {turn.id for turn in session.turns() if turn.status == "running"}
        self._full = True

    @property
    def at_end(self) -> bool:
        """Tell whether only entries about the session, added here, are left."""
        while self._peek() is not None:
            if not isinstance(self._page[0].body, self._passing):
                return False
            self._drop(1)
        return True

    def find(self, unit: Unit, known: SeqMap) -> list[int] | None:
        """Return the unit's seqs; None when the next entries are others, or there are none."""
        seqs: list[int] = []
        at = 0
        seq_here = TentativeSeqMap(known)
        for entry in unit.entries:
            index = self._match(entry, at, seq_here)
            if index is None:
                return None
            seqs.append(seq_here(entry.seq) if entry.seq else self._page[index].seq)
            at = index + 1
        self._drop(at)
        return seqs

    def is_running(self, turn_id: str | None) -> bool:
        return turn_id in self._open_turns

    def find_running(self, unit: Unit, known: SeqMap) -> tuple[list[int], set[str]] | None:
        """Return the seqs of the first entries of a turn that runs here, held by the caller.

        Beside them are the names of its entries so far. None when no such turn is next, or when it
        goes on differently here.
        """
        first = unit.entries[0].body
        if not isinstance(first, e.TurnStarted) or not self.is_running(first.turn_id):
            return None
        seqs, at = self._find_first(unit, known)
        names = set[str]()
        while (stored := self._peek(len(names))) is not None:
            streams = _is_begun(stored.body, _body_at(unit, len(seqs)))
            if len(names) >= at and not (streams or isinstance(stored.body, self._passing)):
                return None
            names.add(identity(stored.body))
        self._drop(len(names))
        return seqs, names

    def _find_first(self, unit: Unit, known: SeqMap) -> tuple[list[int], int]:
        """Return the seqs of the unit's entries up to the first that is not next, and the index."""
        seqs: list[int] = []
        at, seq_here = 0, TentativeSeqMap(known)
        for entry in unit.entries:
            index = self._match(entry, at, seq_here)
            if index is None:
                break
            seqs.append(seq_here(entry.seq) if entry.seq else self._page[index].seq)
            at = index + 1
        return seqs, at

    def find_begun(self, unit: Unit, known: SeqMap) -> "_Begun | None":
        """Return what is here of a turn that went on there.

        None when no such turn is next: it must have been brought in, and be over.
        """
        first = unit.entries[0].body
        if not isinstance(first, e.TurnStarted) or not unit.entries[1:]:
            return None
        seqs, at = self._find_first(unit, known)
        at, cut = self._cut_off(at, _body_at(unit, len(seqs)))
        ending = self._ending_at(at, first.turn_id)
        if ending is None or not seqs:
            return None
        if cut is not None:
            seqs.append(self._page[at - 1].seq)
        seqs.append(self._page[ending].seq)
        end = self._page[ending].body
        completed = isinstance(end, e.TurnEnding) and end.status == "completed"
        names = {identity(stored.body) for stored in self._page[: ending + 1]}
        self._drop(ending + 1)
        return _Begun(seqs, names, cut, completed=completed)

    def has_more_of(self, unit: Unit, known: SeqMap) -> bool:
        """Tell whether there is more here of a turn that ends with the source; true for notes."""
        end = unit.entries[-1].body
        if not isinstance(end, e.TurnEnding) or end.cause not in (None, "crashed"):
            return unit.has_only_notes
        seqs, at = self._find_first(unit, known)
        offered, stored = _body_at(unit, len(seqs)), self._next_said(at)
        behind = unit.entries[len(seqs) :]
        if stored is not None and isinstance(offered, e.MessageRecorded):
            body = self._page[stored].body
            if isinstance(body, e.MessageRecorded) and _goes_on(offered, body):
                behind = behind[1:]
        ends = (e.TurnEnding, e.ModelCallEnded, e.Visibility)
        return bool(seqs) and all(isinstance(entry.body, ends) for entry in behind)

    def _cut_off(self, at: int, offered: e.Body | None) -> tuple[int, tuple[Part, ...] | None]:
        """Pass over a message that was cut off here, or came in before it was whole.

        Return what there is of it.
        """
        stored = self._next_said(at)
        if stored is not None and _is_begun(self._page[stored].body, offered):
            at, offered = stored + 1, ended(offered) if offered is not None else None
            stored = self._next_said(at)
            if stored is None or isinstance(self._page[stored].body, e.TurnEnding):
                return at, ()  # nothing had come of it
        if stored is not None and isinstance(offered, e.MessageEnded):
            body = self._page[stored].body
            if isinstance(body, e.MessageEnded) and body.id == offered.id:
                return stored + 1, body.parts
        if stored is not None and isinstance(offered, e.MessageRecorded):
            body = self._page[stored].body
            if isinstance(body, e.MessageRecorded) and _goes_on(body, offered):
                return stored + 1, body.parts
        return at, None

    def _next_said(self, at: int) -> int | None:
        """Return the index of the next entry that is not about the session."""
        while (stored := self._peek(at)) is not None:
            if not isinstance(stored.body, self._passing):
                return at
            at += 1
        return None

    def _ending_at(self, at: int, turn_id: str) -> int | None:
        """Return the index of the turn's ending, if nothing of the conversation is before it."""
        while (stored := self._peek(at)) is not None:
            if isinstance(stored.body, e.TurnEnding):
                return at if stored.body.turn_id == turn_id else None
            if not isinstance(stored.body, (*self._passing, e.ModelCallEnded)):
                return None
            at += 1
        return None

    def why_other(self, unit: Unit) -> str:
        """Say how what is stored differs from what is offered."""
        stored, body = self._peek(), unit.entries[0].body
        if stored is None:
            return "it has more here than there"
        if identity(stored.body) != identity(body):
            return (
                f"entry {stored.seq} here is {e.kind_of(stored.body)}, where it goes on with "
                f"{e.kind_of(body)} there"
            )
        return f"what follows entry {stored.seq} was said differently there"

    def _match(self, entry: e.Entry, at: int, seq_here: TentativeSeqMap) -> int | None:
        """Return the index in the page of the same entry; pass over ours about the session."""
        while True:
            stored = self._peek(at)
            if stored is None:
                return None
            seq_here.note(entry.seq, stored.seq)  # as it was noted before it was written
            body = relocated(entry.body, seq_here)
            if is_same(stored.body, body):
                if isinstance(body, e.TurnStarted) and self._is_of_another(body.turn_id):
                    raise _InUse
                return at
            if _is_begun(stored.body, body) and (end := self._streamed(at, body)) is not None:
                return end
            seq_here.forget(entry.seq)
            if not isinstance(stored.body, self._passing):
                return None
            at += 1

    def _streamed(self, at: int, offered: e.Body) -> int | None:
        """Return the index of the end of a message that streamed here, if it is the offered one."""
        end = self._next_said(at + 1)
        return end if end is not None and is_same(self._page[end].body, ended(offered)) else None

    def _is_of_another(self, turn_id: str) -> bool:
        return self.is_running(turn_id) and turn_id not in self._held

    def _peek(self, at: int = 0) -> e.Entry | None:
        while at >= len(self._page) and self._full:
            last = self._page[-1].seq if self._page else self.head
            more = self._session.entries(after=last, limit=_PAGE)
            self._full = len(more) == _PAGE
            self._page += more
        return self._page[at] if at < len(self._page) else None

    def _drop(self, count: int) -> None:
        if count:
            self.head = self._page[count - 1].seq
            del self._page[:count]


def _body_at(unit: Unit, index: int) -> e.Body | None:
    return unit.entries[index].body if index < len(unit.entries) else None


def _is_begun(stored: e.Body, offered: e.Body | None) -> bool:
    """Tell whether the stored entry is the beginning of a message that is offered whole."""
    return isinstance(offered, e.MessageRecorded) and is_same(stored, begun(offered))


def _goes_on(stored: e.MessageRecorded, offered: e.MessageRecorded) -> bool:
    """Tell whether the offered message is the stored one with more parts behind it."""
    had = len(stored.parts)
    return (stored.id, stored.role) == (offered.id, offered.role) and (
        had < len(offered.parts) and stored.parts == offered.parts[:had]
    )


class _Begun(msgspec.Struct, frozen=True):
    """The first entries of a turn, as they are here."""

    seqs: list[int]
    """The last is that of its ending here."""
    names: set[str]
    cut: tuple[Part, ...] | None
    """What there is here of its last message, if that was not whole."""
    completed: bool


def _rest_of(unit: Unit, begun: _Begun) -> Unit | None:
    """Return what a turn has behind its first entries, as a turn that continues it.

    Its calls are answered late when they were made in the first part. What is known already, such
    as that a message is hidden, is not said again. Of a message that was `cut` off here, the rest
    is a message of its own. That it was completed after all is a turn, too: else a model would be
    told that it broke off.
    """
    count, cut = len(begun.seqs) - 1, begun.cut
    first = unit.entries[0].body
    assert isinstance(first, e.TurnStarted)
    rest = [entry for entry in unit.entries[count:] if _is_news(entry, begun.names)]
    if cut is not None:
        message = unit.entries[count - 1]
        more = rest_of_message(message.body, cut, first.turn_id)
        rest = [*(e.Entry(0, message.at_us, body) for body in more), *rest]
    if all(isinstance(entry.body, e.TurnEnding | e.Visibility) for entry in rest):
        endings = [entry.body for entry in rest if isinstance(entry.body, e.TurnEnding)]
        if begun.completed or [ending.status for ending in endings] != ["completed"]:
            return None  # only its ending is another
    turn_id = keyed_id("turn", first.turn_id, f"continues/{count}")
    made = {
        (entry.body.id, part.id)
        for entry in unit.entries[:count]
        if isinstance(entry.body, e.MessageRecorded | e.MessageEnded)
        for part in entry.body.parts
        if isinstance(part, ToolCall)
    }
    moved = {(rest_id(message_id), call_id): (message_id, call_id) for message_id, call_id in made}
    own = {
        moved[entry.body.id, part.id]: entry.body.id
        for entry in rest
        if isinstance(entry.body, e.MessageRecorded | e.MessageEnded)
        for part in entry.body.parts
        if isinstance(part, ToolCall) and (entry.body.id, part.id) in moved
    }
    replace = msgspec.structs.replace
    begins = replace(first, turn_id=turn_id, continues=first.turn_id)
    entries = [e.Entry(0, rest[0].at_us, begins)]
    for entry in rest:
        body = entry.body
        match body:
            case e.ToolFinished() if (body.message_id, body.result.call_id) in own:
                message_id = own[body.message_id, body.result.call_id]
                body = replace(body, turn_id=turn_id, message_id=message_id)
            case e.ToolFinished() if (body.message_id, body.result.call_id) in made:
                body = e.LateResult(
                    turn_id=first.turn_id, message_id=body.message_id, result=body.result
                )
            case e.LateResult() | e.Note():
                pass
            case _ if getattr(body, "turn_id", None) == first.turn_id:
                body = replace(body, turn_id=turn_id)
            case _:
                pass
        entries.append(e.Entry(entry.seq, entry.at_us, body))
    return Unit(entries, unit.blobs)


def _is_news(entry: e.Entry, known: set[str]) -> bool:
    return isinstance(entry.body, e.TurnEnding) or identity(entry.body) not in known


def is_same(stored: e.Body, offered: e.Body) -> bool:
    """Tell whether a stored entry is the offered one; a redacted one cannot be compared."""
    if type(stored) is not type(offered) or identity(stored) != identity(offered):
        return False
    if not isinstance(stored, e.Unknown) and stored.redacted:
        return True
    if isinstance(stored, e.TurnEnding) and isinstance(offered, e.TurnEnding):
        # It may have been imported before there were causes, which are guessed from words then.
        offered = msgspec.structs.replace(offered, cause=stored.cause)
    if isinstance(stored, e.SessionCreated | e.TurnStarted) or same_content(stored, offered):
        return True  # a source may say more of a session's beginning than it did before
    return encode(stored) == encode(offered)  # a list in a note was a tuple before it was stored


def relocated(body: e.Body, seq_here: Callable[[int], int]) -> e.Body:
    """Return the entry with every seq in it as it is here."""
    replace = msgspec.structs.replace
    match body:
        case e.ToolFinished(started=int() as started) | e.LateResult(started=int() as started):
            return replace(body, started=seq_here(started))
        case e.Compacted():
            return replace(
                body,
                first=seq_here(body.first),
                through=seq_here(body.through),
                keep=tuple(map(seq_here, body.keep)),
                rest=tuple(map(seq_here, body.rest)),
            )
        case e.Rewound():
            return replace(
                body, through=seq_here(body.through), keep=tuple(map(seq_here, body.keep))
            )
        case e.Undone():
            return replace(body, seq=seq_here(body.seq))
        case e.Visibility():
            return replace(body, seq=seq_here(body.seq), entries=tuple(map(seq_here, body.entries)))
        case _:
            return body
