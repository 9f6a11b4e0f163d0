"""Counting sessions: their figures are added to the sums by day, behind the writers."""

import time
from collections.abc import Iterable, Sequence
from typing import Final

from killick.errors import SessionDamaged
from killick.journal.kinds import TURNS, turn_identity
from killick.journal.sums import DAY_US, Active, Counted, Sums, add_turns, change
from killick.stores.contract import Reader, Transaction, Uncounted
from killick.stores.engine.state import EngineState

SLICE_SESSIONS: Final = 100
SLICE_SECONDS: Final = 0.005
"""About what one slice takes; then the next writer that waits for the lock has its turn."""


def count(reader: Reader, session: Uncounted) -> Counted:
    """Return what a session adds to the sums as it is now; only its new turns are read."""
    usage = tuple(reader.usage_of(session.key))
    if session.deleted:
        return Counted(usage=usage)
    key, base_seq, counted = session.key, session.base_seq, session.counted
    begun = (Active(session.created_at_us // DAY_US, sessions=1),)

    def is_own(turn_id: str) -> bool:
        start = reader.find_entry(key, turn_identity(turn_id)) if base_seq else None
        return not base_seq or (start is not None and start.seq > base_seq)

    try:
        entries = reader.marked_entries(key, TURNS, after=max(counted.seq, base_seq))
        days = add_turns(counted.days or begun, entries, is_own)
    except SessionDamaged:
        return Counted(usage=usage, days=begun)  # opening it says what is wrong with it
    return Counted(entries[-1].seq if entries else counted.seq, usage, days)


def uncounted_changes(reader: Reader, sessions: Iterable[Uncounted]) -> Sums:
    """Return what the sums would change by if these sessions were counted."""
    changes = Sums()
    for session in sessions:
        change(changes, session.counted, count(reader, session))
    return changes


def count_sessions(engine: EngineState, seconds: float = SLICE_SECONDS) -> bool:
    """Count some of the sessions that the sums lack; True if any were.

    If interrupted: rolled back with its transaction, and they are counted later.
    """
    end = time.monotonic() + seconds
    changes: dict[str, Sums] = {}
    sessions = engine.tx.take_uncounted(SLICE_SESSIONS)
    for session in sessions:
        counted = count(engine.tx, session)
        change(changes.setdefault(session.tenant, Sums()), session.counted, counted)
        engine.tx.save_counted(session.key, counted)
        if time.monotonic() >= end:
            break
    _save(engine.tx, changes)
    return bool(sessions)


def discount(engine: EngineState, keys: Sequence[int]) -> None:
    """Take sessions out of the sums that are being erased, before anything else of them goes."""
    changes: dict[str, Sums] = {}
    for key in keys:
        counted = engine.tx.counted_of(key)
        if counted != Counted():
            tenant = engine.tx.origin(key).tenant
            change(changes.setdefault(tenant, Sums()), counted, Counted())
            engine.tx.save_counted(key, None)
    _save(engine.tx, changes)


def empty_sums(engine: EngineState) -> None:
    """Forget the sums and what was counted, so that every session is counted anew."""
    engine.tx.empty_sums()


def _save(tx: Transaction, changes: dict[str, Sums]) -> None:
    for tenant, of_tenant in sorted(changes.items()):
        changed = of_tenant.changed()
        if changed.usage or changed.days:
            tx.add_to_sums(tenant, changed)
