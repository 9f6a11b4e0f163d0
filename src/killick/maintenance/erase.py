"""Erasing, with proof that nothing is left; backups; finding sessions."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from killick.errors import (
    SearchDamaged,
    SessionAmbiguous,
    UsageError,
)
from killick.journal import checks
from killick.journal.chain import LinkedEntry
from killick.journal.codec import encode
from killick.journal.kinds import blobs_of
from killick.maintenance.examine import (
    Finding,
    Salvaged,
    about_erasure,
    about_file,
    about_sums,
    examine,
    readable,
    salvage,
)
from killick.maintenance.prove import ExpectedLink, Verified, linked_entries, prove
from killick.maintenance.retention import RetentionCore, key_of
from killick.model import entries as e
from killick.model.sessions import SessionInfo
from killick.session.core.figures import check_sums, rebuild_sums
from killick.session.core.queries import Progress, empty_index, rebuild_search
from killick.session.core.session import find_row, info_of, not_found, read_deltas
from killick.session.core.store import StoreCore
from killick.session.drive.steps import Flow, read, work, write
from killick.session.runtime import Runtime
from killick.stores import engine as ops
from killick.stores.contract import BackupReceipt, Reader, SessionRow
from killick.stores.engine.session_ops import has_forks

FRAGMENTS_MAX: Final = 64
"""Each costs one pass over each copy of the store."""

_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]{12,48}')
"""What JSON writes as it is, long enough to be told from anything else."""


def fragments(bodies: Iterable[e.Body], blobs: Iterable[bytes] = ()) -> list[bytes]:
    """Pieces of these entries' texts and of blobs, evenly spread, and every one only once."""
    pieces = list(dict.fromkeys([*_of_texts(bodies), *_of_blobs(blobs)]))
    step = max(1, -(-len(pieces) // FRAGMENTS_MAX))
    return pieces[::step]


def _of_texts(bodies: Iterable[e.Body]) -> Iterator[bytes]:
    for body in bodies:
        if isinstance(body, e.Unknown):
            continue
        for text in _texts(msgspec.to_builtins(body)):
            pieces = _PLAIN.findall(encode(text))
            yield from pieces[:1]
            yield from pieces[-1:]


def _texts(value: Any) -> Iterator[str]:
    """Yield every text of a person, a model or a tool; kinds, ids and hashes are ours."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, str):
                if name in _WRITTEN:
                    yield inner
            else:
                yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


_WRITTEN: Final = frozenset(
    {"text", "arguments", "content", "output", "summary", "title", "data", "detail"}
)


def _of_blobs(blobs: Iterable[bytes]) -> Iterator[bytes]:
    for data in blobs:
        middle = len(data) // 2
        piece = data[middle : middle + 32] if len(data) > 64 else data[:32]
        if len(piece) >= 12 and len(set(piece)) > 4:
            yield piece


_NEAREST: Final = 5

UNVERIFIED: Final = (
    "backups and copies of the store that were made elsewhere",
    "replicas of the disk, and snapshots of the file system",
    "archives of the store's log",
    "blocks of the disk that the file no longer uses",
)
"""What no search of the store's files can tell."""


VERIFY_LATER: Final = (
    "look whether bytes are left: 'killick verify --erased', or store.verify_erased()"
)
"""For a caller who does not wait for that."""


class Erasure(msgspec.Struct, frozen=True):
    """A report on what was erased, and on what was looked at to be sure.

    `verified` is True if no byte is left in `files` that no stored row accounts for: `pages` were
    looked at, and `cleared` bytes set to zero. It is None until the file was read, and where the
    store's own files cannot be looked at: on a server, whose operator is told in `to_do` what is
    left. `remaining` counts, for each copy of the store beside it, pieces of the erased text that
    stand there, out of `pieces` that were looked for. `unverified` is what cannot be looked at from
    here. `store` tells this store from others.
    """

    sessions: tuple[str, ...]
    entries: int
    blobs: int
    files: tuple[str, ...]
    pieces: int
    remaining: dict[str, int]
    verified: bool | None
    unverified: tuple[str, ...] = UNVERIFIED
    to_do: tuple[str, ...] = ()
    store: int = 0
    pages: int = 0
    cleared: int = 0


class CareCore(RetentionCore):
    """Looks after one store, as flows for both faces."""

    def __init__(self, store: StoreCore) -> None:
        self._store = store

    @property
    def _runtime(self) -> Runtime:
        return self._store.runtime()

    # -- finding -------------------------------------------------------------------------------

    def resolve(self, text: str) -> Flow[str]:
        """The id that this is, or the one id that begins like it."""
        checks.check_text(text, "an id")
        tenant = self._runtime.tenant
        return (yield from read(lambda reader: resolve(reader, tenant, text)))

    # -- erasing -------------------------------------------------------------------------------

    def erase(self, session_id: str, *, forks: bool, verify: bool) -> Flow[Erasure]:
        """Remove sessions for good, then see that nothing of them is left in any file."""
        runtime, tenant = self._runtime, self._runtime.tenant
        copies = yield from work(lambda database: database.copies())
        doomed = yield from read(
            lambda reader: _doomed(reader, tenant, session_id, forks=forks, pieces=bool(copies))
        )
        if doomed is None:  # it was interrupted before its bytes were gone
            return (yield from self._finish((session_id,), None, verify=verify))
        at, rows = runtime.clock(), doomed.rows
        keys = [row.key for row in rows]
        yield from work(lambda database: database.check_room(keys))
        gone = yield from write(lambda engine: ops.erase(engine, keys, at))
        for row in rows:
            runtime.verified.pop(row.key, None)
        ids = tuple(row.id for row in rows)
        return (yield from self._finish(ids, doomed.pieces, gone, verify=verify))

    def verify_erased(self, session_id: str | None, receipt: Erasure | None) -> Flow[Erasure]:
        """Look again whether anything is left of what was erased, and finish what was not.

        Raises UsageError for a session that was not erased, and for a receipt of another store.
        """
        tenant = self._runtime.tenant
        sessions = yield from read(
            lambda reader: _erased_sessions(reader, tenant, session_id, receipt)
        )
        files = () if receipt is None else receipt.files
        return (yield from self._finish(sessions, None, files=files))

    def _finish(
        self,
        sessions: tuple[str, ...],
        pieces: list[bytes] | None,
        gone: tuple[int, int] = (0, 0),
        *,
        verify: bool = True,
        files: tuple[str, ...] = (),
    ) -> Flow[Erasure]:
        """Remove the rows that are left of erased sessions, and clear what no row accounts for.

        Without pieces to look for, a copy beside the store cannot be judged. If interrupted: the
        receipts say that it is not done, and this may be done again.
        """
        tenant = self._runtime.tenant
        store = yield from read(lambda reader: reader.store_number())
        waiting = yield from read(lambda reader: reader.unscrubbed(tenant))
        entries, blobs = gone
        for key in (yield from read(lambda reader: reader.half_erased(tenant))):
            more = True
            while more:
                step = yield from _erase_rows(key)
                entries, blobs, more = entries + step[0], blobs + step[1], step[2]
        if not verify:
            return Erasure(
                sessions, entries, blobs, (), 0, {}, None, to_do=(VERIFY_LATER,), store=store
            )
        swept = yield from work(lambda database: database.sweep(files), exclusive=True)
        copies = yield from work(lambda database: database.find_traces(pieces or []))
        remaining = {file: len(which) for file, which in copies.found.items()}
        unknown = copies.files if pieces is None else ()
        verified = swept.clean if not remaining and not unknown else False
        if verified is not False:  # the rest of a server's is not ours to do, or to look at
            at, done = self._runtime.clock(), sessions if copies.files else waiting
            yield from write(lambda engine: ops.scrubbed(engine, tenant, done, at))
        return Erasure(
            sessions=sessions,
            entries=entries,
            blobs=blobs,
            files=(*swept.files, *copies.files),
            pieces=len(pieces or ()),
            remaining=remaining,
            verified=verified,
            unverified=(*UNVERIFIED, *swept.unverified, *unknown),
            to_do=swept.to_do,
            store=store,
            pages=swept.pages,
            cleared=swept.cleared,
        )

    # -- backups -------------------------------------------------------------------------------

    def back_up(
        self, target: str | os.PathLike[str], progress: Progress | None, *, renew: bool
    ) -> Flow[BackupReceipt]:
        path = Path(target).expanduser()
        return (yield from work(lambda database: database.back_up(path, progress, renew=renew)))

    # -- damage --------------------------------------------------------------------------------

    def check_file(self) -> Flow[list[Finding]]:
        """Return what the database itself finds wrong with the file, and sums that are wrong."""
        lines = yield from work(lambda database: database.check())
        left = yield from read(lambda reader: reader.unscrubbed(self._runtime.tenant))
        sums = yield from check_sums()
        return [*map(about_file, lines), *map(about_erasure, left), *map(about_sums, sums)]

    def rebuild_search(self, *, substrings: bool | None, progress: Progress | None) -> Flow[int]:
        return rebuild_search(self._store, substrings=substrings, progress=progress)

    def rebuild_sums(self) -> Flow[None]:
        return rebuild_sums(self._store)

    def rebuild_indexes(self) -> Flow[None]:
        yield from work(lambda database: database.reindex(), exclusive=True)

    def session_ids(self) -> Flow[list[str]]:
        tenant = self._runtime.tenant
        return (yield from read(lambda reader: _ids(reader, tenant)))

    def session_info(self, session_id: str) -> Flow[SessionInfo]:
        """Return what a list says of a session, without opening it."""
        tenant = self._runtime.tenant
        return (yield from read(lambda reader: _info(reader, tenant, session_id)))

    def salvage(self, session_id: str) -> Flow[Salvaged]:
        """A session as far as it can be read, deleted ones too."""
        tenant = self._runtime.tenant
        return (yield from read(lambda reader: salvage(reader, key_of(reader, tenant, session_id))))

    def verify(self, session_id: str, expect: ExpectedLink | None) -> Flow[Verified]:
        """Prove one session by its links."""
        tenant = self._runtime.tenant
        return (
            yield from read(
                lambda reader: prove(reader, key_of(reader, tenant, session_id), expect)
            )
        )

    def linked_entries(self, session_id: str, after: int, limit: int) -> Flow[list[LinkedEntry]]:
        """Return entries with their links, of a deleted session too."""
        tenant = self._runtime.tenant
        return (
            yield from read(
                lambda reader: linked_entries(
                    reader, key_of(reader, tenant, session_id), after, limit
                )
            )
        )

    def was_erased(self, session_id: str) -> Flow[bool]:
        tenant = self._runtime.tenant
        return (yield from read(lambda reader: reader.was_erased(tenant, session_id)))

    def examine(self, session_id: str, *, rebuild: bool) -> Flow[list[Finding]]:
        """Find what is wrong with one session, and with what is derived from it."""
        runtime = self._runtime
        key = yield from read(lambda reader: key_of(reader, runtime.tenant, session_id))
        findings = yield from read(lambda reader: examine(reader, key))
        if not rebuild or not any(finding.kind == "derived" for finding in findings):
            return findings
        yield from write(lambda engine: ops.rebuild(engine, key))
        return [
            msgspec.structs.replace(finding, mended=True) if finding.kind == "derived" else finding
            for finding in findings
        ]


# -- finding -------------------------------------------------------------------------------------


def resolve(reader: Reader, tenant: str, text: str) -> str:
    """Raises SessionAmbiguous or SessionNotFound, with the nearest candidates."""
    ids = reader.find_ids(tenant, text, _NEAREST + 1) if text else []
    if text in ids:
        return text
    if len(ids) == 1:
        return ids[0]
    if ids:
        more = " …" if len(ids) > _NEAREST else ""
        raise SessionAmbiguous(
            f"{text!r} begins several ids: {', '.join(ids[:_NEAREST])}{more}; write more of it",
            candidates=tuple(ids[:_NEAREST]),
        )
    raise not_found(reader, tenant, text)


def _info(reader: Reader, tenant: str, session_id: str) -> SessionInfo:
    return info_of(find_row(reader, tenant, session_id))


def _ids(reader: Reader, tenant: str) -> list[str]:
    rows = (reader.origin(key) for key in reader.session_keys())
    return [row.id for row in rows if row.tenant == tenant]


# -- erasing ---------------------------------------------------------------------------------------


def _rows(reader: Reader, tenant: str, session_id: str) -> list[SessionRow]:
    """The session and all that is made of it, forks first."""
    keys = [key_of(reader, tenant, session_id)]
    for key in keys:
        keys += reader.forks_of(key)
    return [reader.origin(key) for key in reversed(keys)]


def _erase_rows(key: int) -> Flow[tuple[int, int, bool]]:
    """Take one step; a search index that its words cannot be taken out of is begun anew."""
    try:
        return (yield from write(lambda engine: ops.erase_rows(engine, key)))
    except SearchDamaged:
        yield from empty_index()
    return 0, 0, True


class _Doomed(msgspec.Struct, frozen=True):
    """Sessions that are about to be erased, and pieces of their texts."""

    rows: list[SessionRow]
    pieces: list[bytes]


def _doomed(
    reader: Reader, tenant: str, session_id: str, *, forks: bool, pieces: bool
) -> _Doomed | None:
    if reader.find_key(tenant, session_id) is None and session_id in reader.unscrubbed(tenant):
        return None
    rows = _rows(reader, tenant, session_id)
    if len(rows) > 1 and not forks:
        raise has_forks(session_id, reader, [row.key for row in rows[:-1]])
    bodies, blobs = list[e.Body](), list[bytes]()
    for row in rows if pieces else ():
        entries, _ = readable(reader, row)
        bodies += [entry.body for entry in entries]
        bodies += _streaming(reader, row.key, entries)
        names = {name for entry in entries for name in blobs_of(entry.body)}
        blobs += [data for name in sorted(names) if (data := reader.blob(tenant, name)) is not None]
    return _Doomed(rows, fragments(bodies, blobs))


def _erased_sessions(
    reader: Reader, tenant: str, session_id: str | None, receipt: Erasure | None
) -> tuple[str, ...]:
    """Return the sessions of a receipt, or this one, or all whose erasure is not finished."""
    if receipt is not None and receipt.store != reader.store_number():
        raise UsageError("the receipt is not of this store; nothing was looked at")
    if receipt is None and session_id is None:
        return tuple(reader.unscrubbed(tenant))
    sessions = receipt.sessions if receipt is not None else (session_id or "",)
    for each in sessions:
        if not reader.was_erased(tenant, each):
            raise UsageError(f"session {each!r} was not erased from this store")
    return sessions


def _streaming(reader: Reader, key: int, entries: list[e.Entry]) -> Iterator[e.Body]:
    """The text of streams that are still open, as the entries that it would become."""
    for entry in entries:
        if isinstance(entry.body, e.MessageStarted | e.ToolStarted):
            deltas = tuple(read_deltas(reader, key, entry.seq))
            yield e.LateText(turn_id="", message_id="", deltas=deltas)
