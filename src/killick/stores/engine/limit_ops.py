"""Operations on limits of spending: the beginning of a model call, which they may refuse."""

from collections.abc import Iterator, Sequence
from typing import Final

from killick.errors import LimitReached, UsageError
from killick.journal.tally import Tally, reached
from killick.model import entries as e
from killick.model.sessions import Limits
from killick.stores.contract import Claim, Listing, SessionRow
from killick.stores.engine.state import EngineState, Receipt, SessionState
from killick.stores.engine.turn_ops import append

_CHILDREN: Final = 1_000


def begin_call(
    engine: EngineState,
    key: int,
    claim: Claim,
    bodies: Sequence[e.Body],
    at_us: int,
    entry_id: str,
) -> Receipt | LimitReached:
    """Append the beginning of a model call, unless a limit is reached; that is recorded then."""
    state = engine.live(key)
    if state.turn is not None and state.turn.id == claim.turn_id:
        hit = _hit(engine, state, at_us)
        if hit is not None:
            state.claimed(claim)
            engine.write(state, _entry(entry_id, claim.turn_id, hit), at_us)
            return hit
    return append(engine, key, claim, bodies, at_us)[-1]


def _entry(entry_id: str, turn_id: str, hit: LimitReached) -> e.LimitHit:
    return e.LimitHit(
        id=entry_id,
        turn_id=turn_id,
        limit=hit.limit,
        amount=hit.amount,
        spent=hit.spent,
        estimated=hit.estimated,
        of=hit.of,
    )


def _hit(engine: EngineState, state: SessionState, at_us: int) -> LimitReached | None:
    assert state.turn is not None
    row = state.row
    if state.turn.limits is not None:
        entries = engine.tx.entries(row.key, after=state.turn.seq - 1)
        hit = _check(state.turn.limits, Tally().take(entries), at_us, None, row.id)
        if hit is not None:
            return hit
    for ancestor in _ancestors(engine, row):
        if ancestor.about.limits is not None:
            tally = _total(engine, ancestor, {ancestor.id}, row.id, at_us)
            hit = _check(ancestor.about.limits, tally, at_us, ancestor.id, row.id)
            if hit is not None:
                return hit
    return None


def _check(
    limits: Limits, tally: Tally, at_us: int, of: str | None, session_id: str
) -> LimitReached | None:
    if limits.cost is not None and tally.lacks_cost:
        raise UsageError(
            "cost is limited, and the journal has none: record usage with its cost, or limit tokens"
        )
    hit = reached(limits, tally, at_us)
    if hit is None:
        return None
    name, amount, spent, estimated = hit
    whose = "the turn" if of is None else f"session {of!r}"
    guess = f", {estimated} calls of it estimated" if estimated else ""
    return LimitReached(
        f"{whose} may spend {amount:g} {name} and has spent {spent:g}{guess}; session.limit(…) "
        "changes what a session may spend",
        limit=name,
        amount=amount,
        spent=spent,
        estimated=estimated,
        of=of,
        session_id=session_id,
    )


def _ancestors(engine: EngineState, row: SessionRow) -> Iterator[SessionRow]:
    """Yield the session, and the sessions that it counts towards."""
    seen: set[str] = set()
    next_: SessionRow | None = row
    while next_ is not None and next_.id not in seen:
        seen.add(next_.id)
        yield next_
        parent = next_.about.parent
        next_ = None if parent is None else engine.tx.find_session(row.tenant, parent.session_id)


def _total(engine: EngineState, row: SessionRow, seen: set[str], caller: str, at_us: int) -> Tally:
    """Return what a session and all its children have spent; one of them is the caller."""
    tally = engine.tally(row)
    for deleted in (False, True):
        listing = Listing(
            tenant=row.tenant, parent=row.id, archived=None, deleted=deleted, limit=_CHILDREN
        )
        for info in engine.tx.sessions(listing):
            child = engine.tx.find_session(row.tenant, info.id)
            if child is not None and child.id not in seen:
                seen.add(child.id)
                spent = _total(engine, child, seen, caller, at_us)
                tally = tally.plus(spent, at_us if child.id == caller else 0)
    return tally
