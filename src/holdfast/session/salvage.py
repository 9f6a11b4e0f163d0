"""What can still be read of a session that is damaged: everything before the first bad entry.

Opening a damaged session raises, so that no program goes on with a part of a conversation as if it
were the whole. A person who looks at it wants the part, and to be told that it is one.
"""

import msgspec

from holdfast.errors import SessionDamaged, SessionNotFound
from holdfast.model import entries as e
from holdfast.model.sessions import SessionInfo
from holdfast.session.core import _info as info_of
from holdfast.session.store import Store
from holdfast.stores.base import Reader, SessionRow
from holdfast.views.timeline import TimedTurn, timeline
from holdfast.views.transcript import Shown, transcript


class Salvaged(msgspec.Struct, frozen=True):
    """A session as far as it can be read. `damage` says where it ends, None that it is whole."""

    info: SessionInfo
    entries: list[e.Entry]
    shown: list[Shown]
    turns: list[TimedTurn]
    damage: SessionDamaged | None


def salvage(store: Store, session_id: str) -> Salvaged:
    """Read a session up to its first bad entry. Raises SessionDamaged if not even that is known."""
    runtime = store._core.runtime()

    def read(reader: Reader) -> Salvaged:
        row = _row(reader, runtime.tenant, session_id)
        entries, damage = _readable(reader, row)
        return Salvaged(
            info=info_of(row),
            entries=entries,
            shown=transcript(entries, lambda seq: _deltas(reader, row.key, seq)),
            turns=timeline(entries),
            damage=damage,
        )

    salvaged: Salvaged = runtime.read(read)
    return salvaged


def session_info(store: Store, session_id: str) -> SessionInfo:
    """What a list says of a session, without opening it; also of one that is deleted."""
    runtime = store._core.runtime()
    found: SessionInfo = runtime.read(
        lambda reader: info_of(_row(reader, runtime.tenant, session_id))
    )
    return found


def _row(reader: Reader, tenant: str, session_id: str) -> SessionRow:
    row = reader.find_session(tenant, session_id)
    if row is None:
        raise SessionNotFound(f"no session {session_id!r} in this store")
    return row


def _readable(reader: Reader, row: SessionRow) -> tuple[list[e.Entry], SessionDamaged | None]:
    first: SessionDamaged | None = None
    through: int | None = None
    while through != 0:
        try:
            return reader.entries(row.key, through=through), first
        except SessionDamaged as damage:
            if damage.seq is None or (through is not None and damage.seq > through):
                raise
            first, through = damage, damage.seq - 1
    return [], first


def _deltas(reader: Reader, key: int, seq: int) -> list[e.Delta]:
    try:
        return [delta for _, flush in reader.deltas(key, seq) for delta in flush]
    except SessionDamaged:
        return []  # the entries say what they say; what streamed last cannot be read
