"""What a list says of one session, without opening it: of a deleted or damaged one too."""

from holdfast.errors import SessionNotFound
from holdfast.model.sessions import SessionInfo
from holdfast.session.core import _info
from holdfast.session.store import Store
from holdfast.stores.base import Reader


def session_info(store: Store, session_id: str) -> SessionInfo:
    """Raises SessionNotFound; SessionDamaged if not even the list can be read."""
    runtime = store._core.runtime()

    def read(reader: Reader) -> SessionInfo:
        row = reader.find_session(runtime.tenant, session_id)
        if row is None:
            raise SessionNotFound(f"no session {session_id!r} in this store")
        return _info(row)

    found: SessionInfo = runtime.read(read)
    return found
