"""Operations on what was made elsewhere: entries with their own times, and messages.

They come in whole turns. A turn that is imported was over before it came here, so no lease is taken
for it, and an import that dies leaves no turn behind that seems to run. Only a caller that follows
an agent, and says so by naming itself as the holder, leaves the last turn open: it runs here then,
as long as that holder lives.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import msgspec

from killick.errors import IdConflict, InvalidEntry, SessionNotFound, TurnNotFound
from killick.journal import checks, rules
from killick.journal.audit import audit_continuation
from killick.journal.chain import LinkedEntry
from killick.journal.codec import decode_body, encode
from killick.journal.due import nothing_due
from killick.journal.kinds import (
    HISTORY,
    TURNS,
    blobs_of,
    identity,
    keyed_id,
    message_identity,
    named_identity,
    result_identity,
    same_content,
    subject,
)
from killick.journal.turn_state import CallState, TurnState, fold_turn
from killick.journal.visibility import History, in_view
from killick.model import entries as e
from killick.model.messages import OWN_PROVIDER, Opaque, Part, Role, ToolResult
from killick.stores.engine.session_ops import create_session
from killick.stores.engine.state import EngineState, Receipt, SessionState
from killick.stores.engine.tool_ops import Giver, apply_late, finish_tool
from killick.stores.engine.turn_ops import close_turn, crashed, session_busy


def import_entries(
    engine: EngineState,
    session_id: str,
    tenant: str,
    entries: Sequence[e.Entry],
    holder: str | None = None,
) -> Receipt:
    """Append entries at the seqs that they name, all or none; return the last one's receipt.

    An entry at seq 1 begins the session. Entries that are there already, in these places,
    change nothing. A `LinkedEntry` keeps its link where it follows on the same link here.
    A turn that they leave open is run by the `holder`, and entries for a turn that it runs go on
    with that.
    """
    if holder is not None:
        entries = _held(entries, holder)
    existing = engine.tx.find_session(tenant, session_id)
    if existing is None:
        return _import_new(engine, session_id, tenant, entries, may_stay_open=holder is not None)
    state = engine.state(existing.key)
    row = state.row
    if entries[0].seq <= row.head:
        return _already(engine, state, entries)
    if state.turn is not None and state.turn.holder != holder:
        raise session_busy(row.id, state.turn.id, state.turn.holder)
    if entries[0].seq != row.head + 1:
        raise InvalidEntry(
            f"session {row.id!r} ends at seq {row.head}, and the entries begin at "
            f"{entries[0].seq}; import what lies between first"
        )
    _admit_import(engine, state, entries, may_stay_open=holder is not None)
    return _append_all(engine, state, entries)


def import_deltas(
    engine: EngineState,
    session_id: str,
    tenant: str,
    message_id: str,
    deltas: tuple[e.Delta, ...],
    holder: str,
) -> None:
    """Add to a message that streams in the turn which the `holder` runs here."""
    state = _run_by(engine, session_id, tenant, holder)
    seq = None if state is None or state.turn is None else state.turn.open_messages.get(message_id)
    if state is None or seq is None:
        raise InvalidEntry(f"message {message_id!r} does not stream in a turn that is held here")
    last = max((number for number, _ in engine.tx.deltas(state.row.key, seq)), default=0)
    masked = deltas if engine.redactor is None else engine.redactor.mask(deltas)
    engine.tx.put_deltas([(state.row.key, seq, last + 1, encode(masked))])


def end_imported(
    engine: EngineState,
    session_id: str,
    tenant: str,
    ending: e.TurnEnding,
    holder: str,
    at_us: int,
) -> bool:
    """End a turn that the `holder` runs here, with what streams in it; False if it is over."""
    state = _run_by(engine, session_id, tenant, holder)
    runs = state is not None and state.turn is not None and state.turn.id == ending.turn_id
    if runs and state is not None:
        close_turn(engine, state, ending, at_us)
    return runs


def _run_by(engine: EngineState, session_id: str, tenant: str, holder: str) -> SessionState | None:
    row = engine.tx.find_session(tenant, session_id)
    state = None if row is None else engine.state(row.key)
    is_ours = state is not None and state.turn is not None and state.turn.holder == holder
    return state if is_ours else None


def _held(entries: Sequence[e.Entry], holder: str) -> Sequence[e.Entry]:
    """Return the entries with the holder in the beginning of a turn that they leave open."""
    for at in reversed(range(len(entries))):
        body = entries[at].body
        if isinstance(body, e.TurnEnding):
            break
        if isinstance(body, e.TurnStarted):
            body = msgspec.structs.replace(body, holder=holder)
            begins = e.Entry(entries[at].seq, entries[at].at_us, body)
            return [*entries[:at], begins, *entries[at + 1 :]]
    return entries


def _import_new(
    engine: EngineState,
    session_id: str,
    tenant: str,
    entries: Sequence[e.Entry],
    *,
    may_stay_open: bool,
) -> Receipt:
    first = entries[0]
    if first.seq != 1:
        raise SessionNotFound(f"no session {session_id!r} that could go on at {first.seq}")
    if not isinstance(first.body, e.SessionCreated) or first.body.fork is not None:
        raise InvalidEntry("a journal begins with session_created, which names no fork")
    _admit_import(engine, None, entries, may_stay_open=may_stay_open)
    made = create_session(
        engine,
        session_id=session_id,
        tenant=tenant,
        created=first.body,
        at_us=first.at_us,
        copied=_linked(first),
    )
    assert made is not None
    return _append_all(engine, engine.state(made.key), entries[1:])


def _append_all(engine: EngineState, state: SessionState, entries: Sequence[e.Entry]) -> Receipt:
    followed = state.turn is not None
    streams = {} if state.turn is None else dict(state.turn.open_messages)
    if entries:
        # No worker continues what was begun elsewhere: it may be continued there.
        state.row.imported = entries[-1].seq
        state.row.due, state.row.due_us = nothing_due(state.row.due), None
        if not followed:
            state.row.holder = None
        engine.tx.save_session(state.row)
    for entry in entries:
        # What goes on with a turn that runs here happens now; all else was over before it came.
        followed = followed and state.turn is not None
        with nullcontext() if followed else engine.untold():
            receipt = engine.write(state, entry.body, entry.at_us, _linked(entry))
        assert not receipt.repeated
        if isinstance(entry.body, e.MessageEnded) and entry.body.id in streams:
            engine.drop_deltas(state, streams[entry.body.id])
        if isinstance(entry.body, e.TurnStarted):
            state.turn = TurnState(receipt.seq, entry.body)
        elif isinstance(entry.body, e.TurnEnding):
            state.turn = None
    return Receipt(state.row.head)


def _linked(entry: e.Entry) -> LinkedEntry | None:
    return entry if isinstance(entry, LinkedEntry) else None


def _admit_import(
    engine: EngineState,
    state: SessionState | None,
    entries: Sequence[e.Entry],
    *,
    may_stay_open: bool,
) -> None:
    """Refuse all that can be wrong before the first entry is written."""
    deleted = state is not None and state.row.about.deleted
    for entry in entries:
        if state is not None:
            _admit_place(engine, state, entry.body, deleted=deleted)
        deleted = isinstance(entry.body, e.Deleted) or (
            deleted and not isinstance(entry.body, e.Restored)
        )
    broken = audit_continuation(
        entries,
        turn_of=lambda turn_id: _turn_before(engine, state, turn_id),
        is_queued=lambda prompt_id: _is_queued(engine, state, prompt_id),
        running=None if state is None else _running(engine, state),
        may_stay_open=may_stay_open,
    )
    if broken:
        seq, what = broken[0]
        raise InvalidEntry(f"the entry for seq {seq} cannot follow there: {what}")


def _running(engine: EngineState, state: SessionState) -> TurnState | None:
    """Return the running turn, folded anew: what is asked must not change what the writer knows."""
    if state.turn is None:
        return None
    return fold_turn(engine.tx.entries(state.row.key, after=state.turn.seq - 1))


def _admit_place(engine: EngineState, state: SessionState, body: e.Body, *, deleted: bool) -> None:
    if deleted and not isinstance(body, e.Restored):
        raise checks.session_deleted(state.row.id)
    if engine.tx.find_entry(state.row.key, identity(body)) is not None:
        raise IdConflict(
            f"{e.kind_of(body)} {subject(body)!r} is recorded already in another place"
        )


def _turn_before(engine: EngineState, state: SessionState | None, turn_id: str) -> TurnState | None:
    if state is None:
        return None
    try:
        turn = engine.past_turn(state, turn_id)
    except TurnNotFound:
        return None
    for call in turn.unanswered():
        apply_late(engine, state, turn, call)
    return turn


def _is_queued(engine: EngineState, state: SessionState | None, prompt_id: str) -> bool:
    if state is None:
        return False
    name = named_identity(prompt_id, "prompt_queued")
    return engine.tx.find_entry(state.row.key, name) is not None


def _already(engine: EngineState, state: SessionState, entries: Sequence[e.Entry]) -> Receipt:
    """Return the last receipt if all entries are there already. Raises IdConflict."""
    for entry in entries:
        body = decode_body(encode(engine.redacted(entry.body)))
        stored = engine.tx.find_entry(state.row.key, identity(body))
        if stored is None or stored.seq != entry.seq or not same_content(stored.body, body):
            raise IdConflict(
                f"session {state.row.id!r} has another entry at seq {entry.seq}; fork it "
                "where the two part"
            )
    return Receipt(entries[-1].seq, repeated=True)


# -- messages ------------------------------------------------------------------------------------


class AddedUnit(msgspec.Struct, frozen=True):
    """A message without results, or one result: added by itself.

    `number` is that of the message it comes from. `named` says that its id is the caller's, so that
    a repeated write is recognised.
    """

    number: int
    id: str
    named: bool
    turn_id: str
    role: Role
    parts: tuple[Part, ...]
    model_call_id: str | None = None

    @property
    def result(self) -> ToolResult | None:
        part = self.parts[0] if len(self.parts) == 1 else None
        return part if isinstance(part, ToolResult) else None

    def message(self, turn_id: str, parts: tuple[Part, ...]) -> e.MessageRecorded:
        return e.MessageRecorded(
            id=self.id,
            turn_id=turn_id,
            role=self.role,
            parts=parts,
            model_call_id=self.model_call_id,
        )


class AddedUnits(msgspec.Struct, frozen=True):
    """The outcome of adding: a receipt for each unit, new turns, and results without a call."""

    receipts: list[Receipt]
    turns: list[str]
    unpaired: list[str]
    head: int


def add_messages(
    engine: EngineState, key: int, units: Sequence[AddedUnit], source: str, at_us: int
) -> AddedUnits:
    """Append messages from elsewhere as turns that are over, all or none.

    A user message begins a turn; what comes without one goes on with the newest.
    """
    state = engine.live(key)
    if state.turn is not None:
        if engine.tx.is_alive(state.turn.holder):
            raise session_busy(state.row.id, state.turn.id, state.turn.holder)
        close_turn(engine, state, crashed(state.turn.id), at_us)
    adding = _Addition(engine, state, source, at_us)
    with engine.untold():
        receipts = [adding.add(unit) for unit in units]
        adding.end_turn()
    return AddedUnits(receipts, adding.turns, adding.unpaired, state.row.head)


class _Addition:
    """One call of `add_messages`, inside its transaction."""

    def __init__(self, engine: EngineState, state: SessionState, source: str, at_us: int) -> None:
        self._engine = engine
        self._state = state
        self._source = source
        self._at_us = at_us
        self._asked = False  # the open turn has more than system messages
        self.turns: list[str] = []
        self.unpaired: list[str] = []

    def add(self, unit: AddedUnit) -> Receipt:
        result = unit.result
        if result is not None:
            return self._add_result(unit, result)
        repeated = self._engine.repeat(self._state, unit.message("", unit.parts))
        return repeated or self._add_message(unit, unit.parts)

    def _add_message(self, unit: AddedUnit, parts: tuple[Part, ...]) -> Receipt:
        if unit.role == "user" and self._asked:
            self.end_turn()
        turn = self._state.turn or self._begin_turn(unit)
        self._asked = self._asked or unit.role != "system"
        body = unit.message(turn.id, parts)
        rules.admit(turn, body)
        return self._engine.write(self._state, body, self._at_us)

    def _begin_turn(self, unit: AddedUnit) -> TurnState:
        state = self._state
        body = e.TurnStarted(
            turn_id=unit.turn_id,
            fence=state.row.fence + 1,
            holder=self._source,
            continues=None if unit.role in ("user", "system") else self._newest_turn(),
            starts="unseen",
        )
        receipt = self._engine.write(state, body, self._at_us)
        if receipt.repeated:
            raise IdConflict(f"turn {body.turn_id!r} exists already")
        state.turn = TurnState(receipt.seq, body)
        self.turns.append(body.turn_id)
        return state.turn

    def end_turn(self) -> None:
        if self._state.turn is not None:
            ended = e.TurnEnding(turn_id=self._state.turn.id, status="completed")
            close_turn(self._engine, self._state, ended, self._at_us)
        self._asked = False

    def _newest_turn(self) -> str | None:
        history, starts = self._starts()
        if not starts or not history.is_in_view(starts[-1].seq):
            return None
        body = starts[-1].body
        return body.turn_id if isinstance(body, e.TurnStarted) else None

    def _starts(self) -> tuple[History, list[e.Entry]]:
        tx, key = self._engine.tx, self._state.row.key
        turns = tx.marked_entries(key, TURNS)
        starts = [entry for entry in turns if isinstance(entry.body, e.TurnStarted)]
        return History(tx.marked_entries(key, HISTORY)), starts

    # -- results -------------------------------------------------------------------------------

    def _add_result(self, unit: AddedUnit, result: ToolResult) -> Receipt:
        repeated = self._repeat_of(unit, result)
        if repeated is not None:
            return repeated
        open_turn, key = self._state.turn, self._state.row.key
        for turn in self._turns_backwards():
            for call in turn.calls_of(result.call_id):
                if self._is_answered(call):
                    continue
                newest = call is turn.find_call(result.call_id)
                if open_turn is not None and turn.id == open_turn.id and newest:
                    return self._add_message(unit, unit.parts)
                receipt = finish_tool(
                    self._engine,
                    key,
                    turn.id,
                    call.call_id,
                    result,
                    None,
                    self._at_us,
                    Giver(call.message_id),
                )
                if unit.named:
                    self._engine.write(self._state, self._imported(unit), self._at_us)
                return receipt
        return self._known_result(result) or self._keep_unpaired(unit, result)

    def _repeat_of(self, unit: AddedUnit, result: ToolResult) -> Receipt | None:
        """Return the receipt of a result that was added under this id before."""
        engine, key = self._engine, self._state.row.key
        paired = engine.tx.find_entry(key, identity(self._imported(unit)))
        if paired is not None:
            return Receipt(paired.seq, repeated=True)
        stored = engine.tx.find_entry(key, message_identity(unit.id))
        kept = self._opaque(result)
        if stored is not None and same_content(stored.body, unit.message("", kept)):
            return Receipt(stored.seq, repeated=True)
        return engine.repeat(self._state, unit.message("", unit.parts))

    def _turns_backwards(self) -> Iterator[TurnState]:
        """Yield the turns that are in view, the newest first, as their entries tell."""
        if self._state.turn is not None:
            yield self._state.turn
        tx, key = self._engine.tx, self._state.row.key
        history, starts = self._starts()
        through = None
        for start in reversed(starts):
            entries = tx.entries(key, after=start.seq - 1, through=through)
            turn, through = fold_turn(in_view(history, entries)), start.seq - 1
            if turn is not None and (self._state.turn is None or turn.id != self._state.turn.id):
                yield turn

    def _is_answered(self, call: CallState) -> bool:
        name = result_identity(call.message_id, call.call_id)
        return call.answered or self._engine.tx.find_entry(self._state.row.key, name) is not None

    def _known_result(self, result: ToolResult) -> Receipt | None:
        """Return the receipt of this very result, if the newest call of its id has it."""
        offered = self._redacted(result)
        for turn in self._turns_backwards():
            if turn.calls_of(result.call_id):
                for entry in self._engine.tx.entries(self._state.row.key, after=turn.seq):
                    if offered in _results_of(entry.body, turn.id):
                        return Receipt(entry.seq, repeated=True)
                return None
        return None

    def _keep_unpaired(self, unit: AddedUnit, result: ToolResult) -> Receipt:
        row = self._state.row
        self.unpaired.append(result.call_id)
        for name in blobs_of(unit.message("", unit.parts)):
            if not self._engine.tx.refer(row.key, row.tenant, name):
                raise InvalidEntry(f"no blob {name!r} is stored; call store.put_blob(data) first")
        return self._add_message(unit, self._opaque(result))

    def _opaque(self, result: ToolResult) -> tuple[Part, ...]:
        return (Opaque(OWN_PROVIDER, encode(self._redacted(result))),)

    def _redacted(self, result: ToolResult) -> ToolResult:
        body = self._engine.redacted(e.ToolFinished(turn_id="", message_id="", result=result))
        assert isinstance(body, e.ToolFinished)
        return body.result

    def _imported(self, unit: AddedUnit) -> e.Imported:
        """Return the entry that says which result was taken for a call of an earlier turn."""
        entry_id = keyed_id("ent", self._state.row.id, f"added/{unit.id}")
        return e.Imported(id=entry_id, source=self._source, origin=unit.id)


def _results_of(body: e.Body, turn_id: str) -> Sequence[Part]:
    """Return the results of a turn's calls that an entry holds."""
    match body:
        case e.ToolFinished() | e.LateResult() if body.turn_id == turn_id:
            return (body.result,)
        case e.MessageRecorded() if body.turn_id == turn_id:
            return body.parts
        case _:
            return ()
