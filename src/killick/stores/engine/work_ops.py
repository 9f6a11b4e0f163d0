"""Operations on due work: taking a turn that broke, and beginning with what was taken."""

from killick.errors import InvalidEntry, WorkLost
from killick.journal.due import Due
from killick.stores.contract import check_doubt
from killick.stores.engine.state import EngineState, SessionState


def check_work(engine: EngineState, state: SessionState, token: str, continues: str | None) -> str:
    """Return the turn that this work goes on with. Raises WorkLost for a token that lapsed."""
    due = state.row.due
    if due is None or due.token != token:
        raise WorkLost(
            f"session {state.row.id!r} has no work {token!r} any more: it was begun, it lapsed and "
            "was taken by another, or a turn or a pause came first; take other work"
        )
    if has_lapsed(engine, due, engine.tx.now_us()):
        raise WorkLost(
            f"work {token!r} of session {state.row.id!r} has lapsed: its time is over, or its "
            "taker is gone; take it again"
        )
    if continues not in (None, due.turn_id):
        raise InvalidEntry(f"work {token!r} goes on with turn {due.turn_id!r}, not {continues!r}")
    return due.turn_id


def has_lapsed(engine: EngineState, due: Due, now_us: int) -> bool:
    """Return whether work that was taken may be taken by others. Raises HolderInDoubt."""
    if due.taker is None or now_us >= due.until_us:
        return True
    if not engine.tx.is_alive(due.taker):
        return True
    check_doubt(engine.tx, due.taker)
    return False
