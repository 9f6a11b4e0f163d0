"""The state that all operations of the engine are functions of.

An append must not read its session anew, so the writer keeps a `SessionState` for each: its row,
and its running turn folded. Other processes write too, so a state is only valid while the session's
version is the same; else it is read again, or caught up with. A commit may fail, so the states that
a transaction touched are forgotten when it is rolled back, and streams get back what was taken from
them. A state is a cache and never written back: the operation that appends an entry also saves what
is derived from it.

`Op` is one operation on its way through the writer, with its outcome.
"""

import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from killick.errors import IdConflict, InvalidEntry, SessionNotFound, TurnNotFound
from killick.journal import checks
from killick.journal.assembly import merge
from killick.journal.chain import LinkedEntry, body_hash, link_of
from killick.journal.codec import CodecError, encode, read_back
from killick.journal.kinds import (
    KINDS,
    TAGS,
    blobs_of,
    digest,
    ending_identity,
    identity,
    named_identity,
    same_content,
    subject,
    turn_identity,
)
from killick.journal.news import Answers, answers_of, lines_of
from killick.journal.redaction import Redactor, failed
from killick.journal.summary import advance, spent_by
from killick.journal.tally import Tally
from killick.journal.turn_state import TurnState, fold_turn
from killick.model import entries as e
from killick.model.limits import BODY_BYTES_INLINE, BODY_BYTES_MAX
from killick.stores.buffers import StreamBuffer
from killick.stores.contract import Claim, Flush, Reader, SessionRow, Transaction

T = TypeVar("T")
Linked = LinkedEntry | None


class Receipt(msgspec.Struct, frozen=True):
    """The outcome of a write: the entry's seq, and whether it was there before."""

    seq: int
    repeated: bool = False


class StoreBodyFirst(Exception):
    """A body is too large for the shared commit; store it first, then come back."""

    def __init__(self, tenant: str, digest: str, data: bytes) -> None:
        super().__init__(digest)
        self.tenant = tenant
        self.digest = digest
        self.data = data


class SessionState:
    """One session as the writer knows it: its row, and the running turn folded."""

    __slots__ = ("last", "row", "turn", "version")

    def __init__(self, row: SessionRow, turn: TurnState | None, version: int) -> None:
        self.row = row
        self.turn = turn
        self.version = version
        self.last = ""  # the identity of the last entry that was folded, if this writer wrote it

    def claimed(self, claim: Claim) -> TurnState:
        """Return the running turn if the claim is its own. Raises TurnEnded, StaleFence."""
        return checks.check_claim(self.turn, claim.turn_id, claim.fence, self.row.fence)


_STATES_MAX = 4_096
"""Sessions without a running turn that are known at once, beside those with one."""


class EngineState:
    """The transaction, and the sessions that the writer thread knows."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        self.redactor = redactor
        self.tx: Transaction
        self._states: dict[int, SessionState] = {}  # the one that was used last comes last
        self._tallies: dict[int, Tally] = {}  # likewise
        self._states_max = _STATES_MAX
        self._touched: set[int] = set()
        self._changed: set[int] = set()
        self._taken: list[tuple[StreamBuffer, bool]] = []
        self._read_before: dict[str, TurnState] = {}
        self.telling = True
        """Whether entries add lines to the feed; what is brought in from elsewhere is no news."""
        self.appended = 0
        """Entries that were written here, which the search index does not have yet."""
        self.uncounted = False
        """Whether figures of sessions have changed here since the writer looked."""

    # -- around a transaction ------------------------------------------------------------------

    def begin(self, tx: Transaction) -> None:
        self.tx = tx
        self._touched.clear()
        self._taken.clear()
        if len(self._states) > self._states_max:
            self._age()

    def _age(self) -> None:
        """Forget the half that was used longest ago, but for sessions in which a turn runs."""
        idle = [key for key, state in self._states.items() if state.turn is None]
        for key in idle[: max(0, len(idle) - _STATES_MAX // 2)]:
            del self._states[key]
        self._states_max = len(self._states) + _STATES_MAX // 2  # not at every transaction

    @contextmanager
    def untold(self) -> Iterator[None]:
        """Write what happened elsewhere or before: it adds no lines to the feed."""
        self.telling = False
        try:
            yield
        finally:
            self.telling = True

    def committed(self) -> None:
        """Settle the streams: what was taken from them is durable."""
        self._changed |= self._touched
        for buffer, _ in self._taken:
            buffer.settle()
        # The next transaction may fail before it begins: it has nothing to give back.
        self._taken.clear()

    def take_changed(self) -> set[int]:
        """Return the sessions that commits were about since this was asked last."""
        changed, self._changed = self._changed, set()
        return changed

    def rolled_back(self) -> None:
        """Forget sessions whose state holds entries that are not in the journal after all."""
        for key in self._touched:
            self._states.pop(key, None)
        self._tallies.clear()
        self.give_back(0)

    def savepoint(self) -> int:
        """Return where an operation begins, for `give_back` if it is refused."""
        return len(self._taken)

    def give_back(self, savepoint: int) -> None:
        """Return to streams what was taken from them since the savepoint."""
        while len(self._taken) > savepoint:
            buffer, was_closed = self._taken.pop()
            buffer.give_back()
            buffer.closed = was_closed

    def need(self, keys: Collection[int]) -> None:
        """Name the sessions of an operation on several, before it reads or writes."""
        unknown = [key for key in keys if key not in self._states]
        if unknown:
            self.tx.need(unknown)

    # -- sessions and turns --------------------------------------------------------------------

    def state(self, key: int) -> SessionState:
        """Return the session as of this transaction. Raises SessionNotFound."""
        known = self._states.get(key)
        version = self.tx.version(key, None if known is None else known.version)
        self._touched.add(key)
        if known is not None:
            self._states[key] = self._states.pop(key)
            if known.version == version:
                return known
        row = self.tx.session(key)
        if row is None:
            raise SessionNotFound("the session does not exist any more; it was erased")
        if known is not None and known.row.turn_seq == row.turn_seq and self._goes_on(known, row):
            return self._catch_up(known, row, version)
        state = SessionState(row, self._fold_running(row), version)
        self._states[key] = state
        return state

    def _goes_on(self, known: SessionState, row: SessionRow) -> bool:
        """True if the journal begins with the entries that are known."""
        if known.turn is None or not self.tx.may_lose_end:
            return True
        last = self.tx.find_entry(row.key, known.last) if known.last else None
        return last is not None and last.seq == known.row.head

    def _catch_up(self, known: SessionState, row: SessionRow, version: int) -> SessionState:
        """Fold only the entries that other processes appended: the same turn runs, or none."""
        if known.turn is not None and known.row.head < row.head:
            for entry in self.tx.entries(row.key, after=known.row.head):
                known.turn.apply(entry.seq, entry.body)
        known.row, known.version, known.last = row, version, ""
        return known

    def _fold_running(self, row: SessionRow) -> TurnState | None:
        if row.turn_seq is None:
            return None
        entries = self.tx.entries(row.key, after=row.turn_seq - 1)
        return fold_turn(entries)

    def adopt(self, row: SessionRow) -> SessionState:
        """Return the state of a session that this transaction has created."""
        state = SessionState(row, None, self.tx.version(row.key))
        self._states[row.key] = state
        self._touched.add(row.key)
        return state

    def forget(self, key: int) -> None:
        """Read the session again when an operation next needs it."""
        self._states.pop(key, None)

    def live(self, key: int) -> SessionState:
        """Return the state of a session that is not deleted."""
        state = self.state(key)
        if state.row.about.deleted_at_us is not None:
            raise checks.session_deleted(state.row.id)
        return state

    def past_turn(self, state: SessionState, turn_id: str) -> TurnState:
        return read_turn(self.tx, state.row, turn_id)

    def tally(self, row: SessionRow) -> Tally:
        """Return what a session's own entries have spent; only new ones are read."""
        known = self._tallies.get(row.key)
        if known is None or known.seq > row.head or self.tx.may_lose_end:
            if len(self._tallies) >= _STATES_MAX:
                del self._tallies[next(iter(self._tallies))]
            known = Tally()
        self._tallies.pop(row.key, None)
        self._tallies[row.key] = known
        after = max(known.seq, row.base_seq)
        return known.take(self.tx.entries(row.key, after=after) if after < row.head else ())

    # -- entries -------------------------------------------------------------------------------

    def write(
        self, state: SessionState, body: e.Body, at_us: int, copied: Linked = None
    ) -> Receipt:
        """Append one entry, unless it is there already.

        One that was `copied` keeps its link where it follows on the same one here. Raises
        IdConflict, and InvalidEntry for a body that could not be read back as it is.
        """
        if self.redactor is not None:
            body = self.redactor.body(body)
            copied = copied if copied is not None and copied.body == body else None
        try:
            data = encode(body)
            body = read_back(body, data)
        except (CodecError, TypeError, ValueError, RecursionError) as error:
            raise InvalidEntry(f"this {e.kind_of(body)} cannot be recorded: {error}") from error
        if len(data) > BODY_BYTES_MAX:
            raise InvalidEntry(
                f"the entry has {len(data)} bytes; at most {BODY_BYTES_MAX} are stored in one"
            )
        for name in blobs_of(body):
            if not self.tx.refer(state.row.key, state.row.tenant, name):
                raise InvalidEntry(f"no blob {name!r} is stored; call store.put_blob(data) first")
        receipt = self._put(state, body, data, at_us, copied)
        return receipt if receipt.repeated else self._derive(state, receipt, body, at_us)

    def write_plain(self, state: SessionState, body: e.MessageRecorded, at_us: int) -> Receipt:
        """Append a message of words, for which `checks.is_plain`, to the turn that runs.

        Where no worker may continue that, it changes nothing but the turn's messages.
        """
        row, turn, data = state.row, state.turn, encode(body)
        plain = turn is not None and body.turn_id == turn.id and row.due is None and not row.due_us
        if not plain or len(data) > BODY_BYTES_INLINE or self.redactor is not None:
            return self.write(state, body, at_us)
        assert turn is not None
        receipt = self._put(state, body, data, at_us)
        if not receipt.repeated:
            turn.messages[body.id] = receipt.seq
        return receipt

    def write_closing(self, state: SessionState, body: e.Body, at_us: int) -> Receipt:
        """Append an entry of a turn that is being closed, which no rule may refuse.

        A blob that does not exist stays a name; the text around it is not lost for it. Raises
        IdConflict when something else is recorded in its place.
        """
        try:
            body = self.redacted(body)
        except InvalidEntry:
            body = failed(body)
        for name in blobs_of(body):
            self.tx.refer(state.row.key, state.row.tenant, name)
        receipt = self._put(state, body, encode(body), at_us)
        return receipt if receipt.repeated else self._derive(state, receipt, body, at_us)

    def redacted(self, body: e.Body) -> e.Body:
        return body if self.redactor is None else self.redactor.body(body)

    def _put(
        self, state: SessionState, body: e.Body, data: bytes, at_us: int, copied: Linked = None
    ) -> Receipt:
        """Put an entry into the journal; what is derived from it is saved by `_derive`."""
        row, tx = state.row, self.tx
        key, seq = row.key, row.head + 1
        large = self._large_body(row, data) if len(data) > BODY_BYTES_INLINE else None
        inline = data if large is None else b""
        kind = KINDS[type(body)]
        name = kind.identity(body)
        if copied is not None and copied.before == row.link:
            link = copied.link
        else:
            hashed = body_hash(data) if large is None else bytes.fromhex(large[3:])
            tag = TAGS.get(type(body)) or e.kind_of(body)
            link = link_of(row.link, row.id, seq, at_us, tag, name, hashed)
        inherited = row.base is not None and tx.find_entry(key, name) is not None
        if inherited or not tx.insert_entry(
            key, seq, name, at_us, inline, blob=large, mark=kind.lookup, link=link
        ):
            repeat = self._repeat_of(state, body)
            assert repeat is not None
            return repeat
        row.head, row.link = seq, link
        state.version, state.last = tx.version(key), name
        self.appended += 1
        return Receipt(seq)

    def _derive(self, state: SessionState, new: Receipt, body: e.Body, at_us: int) -> Receipt:
        """Save what is derived from the journal, in the transaction that appends to it."""
        row, tx, kind, seq = state.row, self.tx, KINDS[type(body)], new.seq
        before = row.about
        if advance(row, seq, at_us, body):
            tx.save_session(row)
            self.uncounted = True
            if (before.tags, before.models) != (row.about.tags, row.about.models):
                tx.save_labels(row)
        if kind.in_usage:
            self._spend(state, body, at_us)
        if kind.in_news:
            self._tell(state, seq, body, before.status)
        if state.turn is not None:
            state.turn.apply(seq, body)
        return new

    def _spend(self, state: SessionState, body: e.Body, at_us: int) -> None:
        """Add up what a model call costs, in the transaction that records it."""
        call = None
        if isinstance(body, e.ModelCallEnded) and state.turn is not None:
            call = state.turn.model_calls.get(body.id)
        spent = spent_by(at_us, body, call)
        if spent is not None:
            self.tx.spend(state.row.key, spent)
            self.uncounted = True

    def _tell(self, state: SessionState, seq: int, body: e.Body, status: str | None) -> None:
        """Mark the lines that the entry answers, and add its own to the feed if it is news."""
        key = state.row.key
        answers = answers_of(body, status)
        if answers is not None:
            self._answer(key, answers)
        if not self.telling:
            return
        for number, line in enumerate(lines_of(state.turn, body)):
            self.tx.put_news(key, seq, number, line)

    def _answer(self, key: int, answers: Answers) -> None:
        seqs: list[int] | None = None
        if answers.approval is not None:
            asked = self.tx.find_entry(key, named_identity(answers.approval, "approval_asked"))
            seqs = [] if asked is None else [asked.seq]
        elif answers.once_known:
            lines = [news for news in self.tx.news_of(key) if news.line.kind in answers.kinds]
            waiting = {news.seq for news in lines if news.line.waits}
            seqs = [seq for seq in sorted(waiting) if self._is_known(key, seq)]
        self.tx.answer_news(key, answers.kinds, seqs)

    def _is_known(self, key: int, seq: int) -> bool:
        """Tell whether every outcome of the turn that ended at this seq is known by now."""
        (ending,) = self.tx.entries(key, after=seq - 1, through=seq)
        if not isinstance(ending.body, e.TurnEnding):
            return False
        turn = self._read_before.pop(ending.body.turn_id, None)
        if turn is not None:
            for entry in self.tx.entries(key, after=seq):
                turn.apply(entry.seq, entry.body)
        else:
            start = self.tx.find_entry(key, turn_identity(ending.body.turn_id))
            turn = None if start is None else fold_turn(self.tx.entries(key, after=start.seq - 1))
        return turn is not None and not turn.has_unknown

    @contextmanager
    def knowing(self, turn: TurnState | None) -> Iterator[None]:
        """Have a turn, folded through its ending, that need not be read again meanwhile."""
        if turn is not None:
            self._read_before[turn.id] = turn
        try:
            yield
        finally:
            self._read_before.clear()

    def _large_body(self, row: SessionRow, data: bytes) -> str:
        name = digest(data)
        if not self.tx.refer(row.key, row.tenant, name):
            raise StoreBodyFirst(row.tenant, name, data)
        return name

    def repeat(self, state: SessionState, body: e.Body) -> Receipt | None:
        """Return the receipt of an entry that is recorded already. Raises IdConflict."""
        return self._repeat_of(state, self.redacted(body))

    def _repeat_of(self, state: SessionState, body: e.Body) -> Receipt | None:
        stored = self.tx.find_entry(state.row.key, identity(body))
        if stored is None:
            return None
        if not same_content(stored.body, body):
            raise IdConflict(
                f"{e.kind_of(body)} {subject(body)!r} is recorded already at seq {stored.seq}, "
                "with other content; use another id, or read what is stored"
            )
        return Receipt(stored.seq, repeated=True)

    # -- deltas --------------------------------------------------------------------------------

    def deltas(
        self, state: SessionState, seq: int | None, buffer: StreamBuffer | None
    ) -> list[e.Delta]:
        """Return all deltas of a stream, to be folded into the entry that ends it."""
        if seq is None:
            return []
        stored = self.stored_deltas(state, seq)
        return stored if buffer is None else [*stored, *self.take(buffer, last=True)]

    def stored_deltas(self, state: SessionState, seq: int) -> list[e.Delta]:
        """Return the deltas of a stream that are on the disk."""
        flushes = self.tx.deltas(state.row.key, seq)
        return [delta for _, flush in flushes for delta in flush]

    def drop_deltas(self, state: SessionState, seq: int) -> None:
        self.tx.drop_deltas(state.row.key, seq)

    def flush_of(self, buffer: StreamBuffer) -> Flush | None:
        """Return the row of what a stream was given since its last flush."""
        deltas = self.take(buffer, last=False)
        if not deltas:
            return None
        merged = merge(deltas) if len(deltas) > 1 else tuple(deltas)
        if self.redactor is not None:
            merged = self.redactor.mask(merged)
        return buffer.key, buffer.seq, buffer.number, encode(merged)

    def take(self, buffer: StreamBuffer, *, last: bool) -> Sequence[e.Delta]:
        """Take what a stream holds; the `last` time it is closed as well."""
        self._taken.append((buffer, buffer.closed))
        buffer.closed = buffer.closed or last
        return buffer.take()


def read_turn(reader: Reader, row: SessionRow, turn_id: str) -> TurnState:
    """Fold a turn from its entries, up to its ending if it has ended. Raises TurnNotFound."""
    start = reader.find_entry(row.key, turn_identity(turn_id))
    if start is None:
        raise TurnNotFound(f"session {row.id!r} has no turn {turn_id!r}")
    end = reader.find_entry(row.key, ending_identity(turn_id))
    through = None if end is None else end.seq
    turn = fold_turn(reader.entries(row.key, after=start.seq - 1, through=through))
    assert turn is not None
    return turn


def ended_turn(reader: Reader, row: SessionRow, turn_id: str) -> list[tuple[TurnState, TurnState]]:
    """Return a turn, twice, if it is there and has ended: no entry is added to it then."""
    if reader.find_entry(row.key, ending_identity(turn_id)) is None:
        return []
    turn = read_turn(reader, row, turn_id)
    return [(turn, deepcopy(turn))]


class WaitingCaller(Protocol):
    """A caller that does not block: its event loop is told of the outcome."""

    @property
    def loop(self) -> "Loop": ...


class Loop(Protocol):
    """An event loop in which callers wait; one call tells it of all that a commit has answered."""

    def wake(self, waiting: Sequence[Any]) -> None: ...


class Op(Generic[T]):
    """One operation on its way through the writer, and its outcome."""

    __slots__ = ("apply", "done", "error", "finished", "value", "waiting")

    def __init__(
        self, apply: Callable[[EngineState], T], waiting: WaitingCaller | None = None
    ) -> None:
        self.apply = apply
        self.value: T
        self.error: BaseException | None = None
        self.finished = False
        self.waiting = waiting
        if waiting is None:
            # A bare lock is the one primitive whose wait a signal can interrupt without harm.
            self.done = threading.Lock()
            self.done.acquire()

    def wait(self, timeout: float = -1) -> bool:
        """Block until the outcome is known; False when the time ran out first."""
        if not self.done.acquire(timeout=timeout):
            return False
        self.done.release()
        return True

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self.value


class DropCallback(weakref.ref[Any]):
    """Puts itself into the writer's queue when its referent is gone.

    No line of Python runs then, so no signal handler can: a caller that is interrupted while it
    leaves a block, however often, drops the block, and that is enough.
    """

    __slots__ = ("apply",)
    apply: Callable[[EngineState], Any]


def finish(ops: Sequence[Op[Any]]) -> None:
    """Release the callers of operations whose outcomes are final."""
    loops: dict[int, tuple[Loop, list[WaitingCaller]]] = {}
    last: Loop | None = None
    for op in ops:
        op.finished = True
        waiting = op.waiting
        if waiting is None:
            op.done.release()
            continue
        loop = waiting.loop
        if loop is not last:
            last, together = loops.setdefault(id(loop), (loop, []))
        together.append(waiting)
    for loop, answered in loops.values():
        loop.wake(answered)
