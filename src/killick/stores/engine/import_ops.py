"""Operations on entries that were made elsewhere, with their own times: imports.

They come in whole turns. A turn that is imported was over before it came here, so no lease is taken
for it, and an import that dies leaves no turn behind that seems to run.
"""

from collections.abc import Sequence

from killick.errors import IdConflict, InvalidEntry, SessionNotFound, TurnNotFound
from killick.journal import checks
from killick.journal.audit import audit_continuation
from killick.journal.codec import decode_body, encode
from killick.journal.kinds import identity, named_identity, same_content, subject
from killick.journal.turn_state import TurnState
from killick.model import entries as e
from killick.stores.engine.session_ops import create_session
from killick.stores.engine.state import EngineState, Receipt, SessionState
from killick.stores.engine.turn_ops import session_busy


def import_entries(
    engine: EngineState, session_id: str, tenant: str, entries: Sequence[e.Entry]
) -> Receipt:
    """Append entries at the seqs that they name, all or none; return the last one's receipt.

    An entry at seq 1 begins the session. Entries that are there already, in these places,
    change nothing.
    """
    existing = engine.tx.find_session(tenant, session_id)
    if existing is None:
        return _import_new(engine, session_id, tenant, entries)
    state = engine.state(existing.key)
    row = state.row
    if entries[0].seq <= row.head:
        return _already(engine, state, entries)
    if state.turn is not None:
        raise session_busy(row.id, state.turn.id, state.turn.holder)
    if entries[0].seq != row.head + 1:
        raise InvalidEntry(
            f"session {row.id!r} ends at seq {row.head}, and the entries begin at "
            f"{entries[0].seq}; import what lies between first"
        )
    _admit_import(engine, state, entries)
    return _append_all(engine, state, entries)


def _import_new(
    engine: EngineState, session_id: str, tenant: str, entries: Sequence[e.Entry]
) -> Receipt:
    first = entries[0]
    if first.seq != 1:
        raise SessionNotFound(f"no session {session_id!r} that could go on at {first.seq}")
    if not isinstance(first.body, e.SessionCreated) or first.body.fork is not None:
        raise InvalidEntry("a journal begins with session_created, which names no fork")
    _admit_import(engine, None, entries)
    made = create_session(
        engine, session_id=session_id, tenant=tenant, created=first.body, at_us=first.at_us
    )
    assert made is not None
    return _append_all(engine, engine.state(made.key), entries[1:])


def _append_all(engine: EngineState, state: SessionState, entries: Sequence[e.Entry]) -> Receipt:
    for entry in entries:
        receipt = engine.write(state, entry.body, entry.at_us)
        assert not receipt.repeated
        if isinstance(entry.body, e.TurnStarted):
            state.turn = TurnState(receipt.seq, entry.body)
        elif isinstance(entry.body, e.TurnEnding):
            state.turn = None
    return Receipt(state.row.head)


def _admit_import(
    engine: EngineState, state: SessionState | None, entries: Sequence[e.Entry]
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
    )
    if broken:
        seq, what = broken[0]
        raise InvalidEntry(f"the entry for seq {seq} cannot follow there: {what}")


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
        return engine.past_turn(state, turn_id)
    except TurnNotFound:
        return None


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
