"""Use a store that a framework's caller opened: its other face, a session for a subagent."""

from killick.maintenance.erase import CareCore
from killick.model.sessions import Parent
from killick.session.aio import AsyncSession, AsyncStore, blocking
from killick.session.aio_blocks import AsyncTurn
from killick.session.core.session import SessionCore
from killick.session.core.store import StoreCore
from killick.session.sync import Session, Store
from killick.session.sync_blocks import Turn


def _core_of(session: SessionCore) -> StoreCore:
    core = session.opening
    assert isinstance(core, StoreCore)
    return core


async def open_child(turn: AsyncTurn, call_id: str, *, title: str | None = None) -> AsyncSession:
    """Open the session of a subagent that runs for this call of this turn.

    If interrupted: it exists or it does not; call it again.
    """
    parent = turn._core.session
    store = AsyncStore.__new__(AsyncStore)  # the same opening of the store
    store._core = _core_of(parent)
    store._care = CareCore(store._core)
    return await store.create_session(
        title=title,
        titled_by="import",
        type="subagent",
        parent=Parent(parent.id, turn.id),
        extra={"call_id": call_id},
    )


def open_child_blocking(turn: Turn, call_id: str, *, title: str | None = None) -> Session:
    """Open the same on the synchronous face. If interrupted: it exists or it does not."""
    parent = turn._core.session
    store = Store.__new__(Store)
    store._core = _core_of(parent)
    store._care = CareCore(store._core)
    return store.create_session(
        title=title,
        titled_by="import",
        type="subagent",
        parent=Parent(parent.id, turn.id),
        extra={"call_id": call_id},
    )


def both_faces(store: Store | AsyncStore) -> tuple[Store, AsyncStore]:
    """Return both faces of one opening of a store; closing either closes both."""
    if isinstance(store, AsyncStore):
        return blocking(store), store
    other = AsyncStore.__new__(AsyncStore)
    other._core, other._care = store._core, store._care
    return store, other
