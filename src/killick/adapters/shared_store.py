"""Use a store that a framework's caller opened: its other face, a session for a subagent."""

from typing import Any, cast

from killick.adapters.awaited import Awaited
from killick.maintenance.erase import CareCore
from killick.model.sessions import Parent
from killick.session.aio import AsyncSession, AsyncStore, blocking
from killick.session.aio_blocks import AsyncTurn
from killick.session.core.session import SessionCore
from killick.session.core.store import StoreCore
from killick.session.sync import Session, Store


def _core_of(session: SessionCore) -> StoreCore:
    core = session.opening
    assert isinstance(core, StoreCore)
    return core


def session_of(turn: AsyncTurn) -> AsyncSession:
    """Return the session of a turn, on the turn's face."""
    core = turn._core.session
    if isinstance(turn, Awaited):
        return cast("AsyncSession", Awaited(Session(core)))
    return AsyncSession(core)


async def open_child(turn: AsyncTurn, call_id: str, *, title: str | None = None) -> AsyncSession:
    """Open the session of a subagent that runs for this call of this turn.

    If interrupted: it exists or it does not; call it again.
    """
    parent = turn._core.session
    face: Any = Store if isinstance(turn, Awaited) else AsyncStore
    store = face.__new__(face)  # the same opening of the store
    store._core = _core_of(parent)
    store._care = CareCore(store._core)
    opened: Any = Awaited(store) if isinstance(turn, Awaited) else store
    return cast(
        "AsyncSession",
        await opened.create_session(
            title=title,
            titled_by="import",
            type="subagent",
            parent=Parent(parent.id, turn.id),
            extra={"call_id": call_id},
        ),
    )


def both_faces(store: Store | AsyncStore) -> tuple[Store, AsyncStore]:
    """Return both faces of one opening of a store; closing either closes both."""
    if isinstance(store, AsyncStore):
        return blocking(store), store
    other = AsyncStore.__new__(AsyncStore)
    other._core, other._care = store._core, store._care
    return store, other
