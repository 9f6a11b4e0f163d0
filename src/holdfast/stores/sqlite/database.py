"""The SQLite store: rows in and out, one transaction helper, nothing decided here."""

import contextlib
import os
import re
import weakref
import zlib
from binascii import unhexlify
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import apsw

from holdfast.errors import SessionDamaged, StoreBusy, StoreDegraded, StoreError, StoreReadOnly
from holdfast.journal.codec import (
    CodecError,
    decode,
    decode_body,
    decode_deltas,
    encode,
    to_bytes,
    to_text,
)
from holdfast.model.entries import Delta, Entry
from holdfast.model.limits import LOCK_WAIT_SECONDS
from holdfast.model.sessions import Description, SessionInfo
from holdfast.stores.base import Listing, SessionRow
from holdfast.stores.sqlite import files
from holdfast.stores.sqlite.connection import (
    Durability,
    check_library,
    connect,
    gate,
    in_our_words,
    translated,
)
from holdfast.stores.sqlite.lockfile import LockFile, locker_of
from holdfast.stores.sqlite.migrate import bring_up_to_date
from holdfast.stores.sqlite.queries import SQL

_READERS_IDLE: Final = 4
_MINTED: Final = re.compile(rb"[a-z]+_([0-9a-f]{12})[0-9a-f]{20}/")
_TURNS: Final = ("/turn", "/turn-end")
_EVERYTHING: Final = 2**62


class SqliteReader:
    """Reads on one connection, inside the transaction that whoever made it has opened."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._execute = connection.execute

    def find_session(self, tenant: str, session_id: str) -> SessionRow | None:
        return self._row(SQL.find_session, (to_bytes(tenant), to_bytes(session_id)))

    def session(self, key: int) -> SessionRow | None:
        return self._row(SQL.session, (key,))

    def _row(self, sql: str, bindings: Sequence[Any]) -> SessionRow | None:
        row = self._execute(sql, bindings).fetchone()
        if row is None:
            return None
        return SessionRow(
            key=row[0],
            id=to_text(row[1]),
            tenant=to_text(row[2]),
            fence=row[3],
            turn_seq=row[4],
            stop_seq=row[5],
            queue_seq=row[6],
            created_at_us=row[7],
            updated_at_us=row[8],
            about=self._about(row[0], row[9]),
            head=row[10],
        )

    def _about(self, key: int, data: bytes) -> Description:
        try:
            return decode(data, Description)
        except ValueError as error:
            raise self._damaged(key, None, error) from error

    def sessions(self, listing: Listing) -> list[SessionInfo]:
        before_us, before_id = listing.before or (_EVERYTHING, "")
        rows = self._execute(
            SQL.sessions,
            {
                "tenant": to_bytes(listing.tenant),
                "deleted": listing.deleted,
                "archived": listing.archived,
                "before_us": before_us,
                "before_id": to_bytes(before_id),
                "limit": listing.limit,
            },
        )
        return [
            SessionInfo(
                id=to_text(row[0]),
                about=_shown(row[1]),
                tenant=to_text(row[2]),
                created_at_us=row[3],
                updated_at_us=row[4],
            )
            for row in rows
        ]

    def entries(
        self, key: int, *, after: int = 0, through: int | None = None, limit: int | None = None
    ) -> list[Entry]:
        last = _EVERYTHING if through is None else through
        most = -1 if limit is None else limit
        entries = self._entries(key, SQL.entries, (key, after, last, most), after)
        if entries and entries[-1].seq != after + len(entries):
            gap = next(n for n, entry in enumerate(entries, after + 1) if entry.seq != n)
            raise self._damaged(key, gap, CodecError("an entry is missing"))
        return entries

    def newest_entries(self, key: int, *, before: int | None, limit: int) -> list[Entry]:
        below = _EVERYTHING if before is None else before
        return self._entries(key, SQL.newest_entries, (key, below, limit), None)[::-1]

    def turn_entries(self, key: int) -> list[Entry]:
        return self._entries(key, SQL.turn_entries, (key,), None)

    def find_entry(self, key: int, identity: str) -> Entry | None:
        found = self._entries(key, SQL.find_entry, (identity_key(key, identity),), None)
        return found[0] if found else None

    def _entries(
        self, key: int, sql: str, bindings: Sequence[Any], near: int | None
    ) -> list[Entry]:
        entries: list[Entry] = []
        crc32 = zlib.crc32
        seq = near
        try:
            fetched: list[Any] = self._execute(sql, bindings).fetchall()
            for seq, at_us, crc, body, blob in fetched:
                if blob is not None:
                    body = self._execute(SQL.blob_by_key, (blob,)).get
                if crc32(body) != crc:
                    raise CodecError("its checksum does not match")  # noqa: TRY301
                entries.append(Entry(seq, at_us, decode_body(body)))
        except (CodecError, TypeError, apsw.CorruptError) as error:
            raise self._damaged(key, seq, error) from error
        return entries

    def _damaged(self, key: int, seq: int | None, error: Exception) -> SessionDamaged:
        found = self._execute("SELECT id FROM sessions WHERE key = ?", (key,)).get
        session_id = to_text(found) if isinstance(found, bytes) else f"number {key}"
        return SessionDamaged(
            f"session {session_id!r} is damaged near seq {seq}: {error}; other sessions are "
            "unaffected",
            session_id=session_id,
            seq=seq,
        )

    def deltas(self, key: int, seq: int, *, after: int = 0) -> list[tuple[int, Sequence[Delta]]]:
        rows: list[Any] = self._execute(SQL.deltas, (key, seq, after)).fetchall()
        try:
            return [(number, decode_deltas(body)) for number, body in rows]
        except ValueError as error:
            raise self._damaged(key, seq, error) from error

    def blob(self, tenant: str, digest: str) -> bytes | None:
        data = self._execute(SQL.blob, (to_bytes(tenant), to_bytes(digest))).get
        assert data is None or isinstance(data, bytes)
        return data

    def has_blob(self, tenant: str, digest: str) -> bool:
        return self._execute(SQL.blob_key, (to_bytes(tenant), to_bytes(digest))).get is not None

    def counts(self) -> dict[str, int]:
        return {
            "sessions": self._count(SQL.count_sessions),
            "entries": self._count(SQL.count_entries),
            "deltas": self._count(SQL.count_deltas),
            "blobs": self._count(SQL.count_blobs),
        }

    def _count(self, sql: str) -> int:
        count = self._execute(sql).get
        assert isinstance(count, int)
        return count


class SqliteTransaction(SqliteReader):
    """Reads and writes on the writer's connection."""

    def __init__(self, connection: apsw.Connection, database: "SqliteDatabase") -> None:
        super().__init__(connection)
        self._database = database
        self.writes = 0

    def others_wrote(self) -> bool:
        return self._database.version_moved(self.connection)

    def create_session(self, row: SessionRow) -> int:
        self._write(
            SQL.create_session,
            (
                to_bytes(row.tenant),
                to_bytes(row.id),
                row.fence,
                row.created_at_us,
                row.updated_at_us,
                row.about.archived,
                row.about.deleted,
                encode(row.about),
            ),
        )
        return self.connection.last_insert_rowid()

    def save_session(self, row: SessionRow) -> None:
        self._write(
            SQL.save_session,
            (
                row.fence,
                row.turn_seq,
                row.stop_seq,
                row.queue_seq,
                row.updated_at_us,
                row.about.archived,
                row.about.deleted,
                encode(row.about),
                row.key,
            ),
        )

    def insert_entry(
        self, key: int, seq: int, identity: str, at_us: int, body: bytes, blob: str | None
    ) -> bool:
        stored = self._stored_blob(key, blob) if blob is not None else None
        crc = zlib.crc32(body) if stored is None else stored[1]
        try:
            self._execute(
                SQL.insert_entry,
                (
                    key,
                    seq,
                    identity_key(key, identity),
                    at_us,
                    crc,
                    body,
                    stored and stored[0],
                    1 if identity.endswith(_TURNS) else None,
                ),
            )
        except apsw.CorruptError as error:
            self.writes += 1  # whatever it has left behind must not be committed with the others
            raise self._damaged(key, seq, error) from error
        inserted = self.connection.changes() == 1
        self.writes += inserted
        return inserted

    def _stored_blob(self, key: int, digest: str) -> tuple[int, int]:
        tenant = self._execute("SELECT tenant FROM sessions WHERE key = ?", (key,)).get
        blob_key = self._execute(SQL.blob_key, (tenant, to_bytes(digest))).get
        data = self._execute(SQL.blob_by_key, (blob_key,)).get
        assert isinstance(blob_key, int)
        assert isinstance(data, bytes)
        return blob_key, zlib.crc32(data)

    def put_deltas(self, key: int, seq: int, number: int, data: bytes) -> None:
        self._write(SQL.put_deltas, (key, seq, number, data))

    def drop_deltas(self, key: int, seq: int) -> None:
        self._write(SQL.drop_deltas, (key, seq))

    def put_blob(self, tenant: str, digest: str, data: bytes, holder: str) -> None:
        self._write(SQL.put_blob, (to_bytes(tenant), to_bytes(digest), holder, data))

    def refer(self, key: int, tenant: str, digest: str) -> bool:
        blob_key = self._execute(SQL.blob_key, (to_bytes(tenant), to_bytes(digest))).get
        if blob_key is None:
            return False
        self._write(SQL.refer, (blob_key, key))
        return True

    def collect_blobs(self) -> int:
        gone = 0
        loose: list[Any] = self._execute(SQL.loose_blobs).fetchall()
        for key, holder in loose:
            if not self._database.is_alive(holder):
                self._write(SQL.drop_blob, (key,))
                gone += 1
        return gone

    def _write(self, sql: str, bindings: Sequence[Any]) -> None:
        self.writes += 1
        self._execute(sql, bindings)


class _Writing:
    """One transaction. A class, because on this path a generator would be felt."""

    __slots__ = ("_connection", "_database")

    def __init__(self, database: "SqliteDatabase") -> None:
        self._database = database

    def __enter__(self) -> SqliteTransaction:
        tx = self._database.begin()
        self._connection = tx.connection
        return tx

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        database, connection, failed = self._database, self._connection, error
        try:
            if failed is None:
                database.commit(connection)
        except BaseException as caught:  # noqa: BLE001  (undone, then raised below)
            failed = caught
        try:
            if failed is not None:
                database.undo(connection, failed)
        finally:
            database.end()
        if isinstance(failed, apsw.Error):
            raise database.explain(failed) from failed
        if failed is not None and failed is not error:
            raise failed


class SqliteDatabase:
    """One opening of one store file."""

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability = "full",
        wait_seconds: float = LOCK_WAIT_SECONDS,
        network: bool = False,
    ) -> None:
        check_library()
        self.path = files.prepare(path, network=network)
        self._durability = durability
        self._wait_seconds = wait_seconds
        self._readers: list[apsw.Connection] = []
        self._writer: apsw.Connection | None = None
        self._watching: apsw.Connection | None = None
        self._watchings = 0
        self._version: int | None = None
        self._poisoned: StoreError | None = None
        self._closed = False
        self._pid = os.getpid()
        self.read_only = not files.is_writable(self.path)
        self._lock: LockFile | None = None
        self._inode = files.inode(self.path)
        _databases.add(self)
        if self.read_only:
            self.holder = "read-only"
            return
        self._lock = LockFile.open(Path(f"{self.path}-lock"))
        try:
            self._open_writer()
            self.holder = self._lock.take_holder()
        except BaseException:
            self._lock.close()
            raise

    # -- transactions --------------------------------------------------------------------------

    def writing(self) -> "_Writing":
        """The one place that begins and commits. Only the writer's thread comes here.

        If interrupted: rolled back, or committed as a whole; the commit is the last step.
        """
        return _Writing(self)

    def begin(self) -> SqliteTransaction:
        if self._lock is None:
            raise StoreReadOnly(f"{self.path} or its folder may not be written by this user")
        files.check_same(self.path, self._inode)
        self._lock.acquire_turn(self._wait_seconds)
        gate.enter()
        try:
            connection = self._sound_connection()
            connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self.end()
            if isinstance(error, apsw.Error):
                raise self.explain(error) from error
            raise
        return SqliteTransaction(connection, self)

    def commit(self, connection: apsw.Connection) -> None:
        connection.execute("COMMIT")
        self._version = connection.data_version()

    def end(self) -> None:
        gate.leave()
        assert self._lock is not None
        self._lock.release_turn()

    def undo(self, connection: apsw.Connection, error: BaseException) -> None:
        """Roll back; a connection that failed at I/O, or cannot roll back, is not used again."""
        if connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except apsw.Error as failed:
                self._poisoned = in_our_words(failed, "rolling back")
        cause = error if isinstance(error, apsw.Error) else error.__cause__
        if isinstance(cause, apsw.IOError | apsw.NotADBError):
            self._poisoned = in_our_words(cause, "writing")

    def _sound_connection(self) -> apsw.Connection:
        """The writer's connection, opened and verified again after a failure.

        After a failed fsync the kernel may have dropped what it could not write and call the next
        fsync a success. So nothing more is acknowledged on that connection: the file is opened
        anew, its structure checked, and every page that is only in the log written again into the
        database and synced there.
        """
        if self._poisoned is not None:
            self._discard_writer()
            connection = self._connect(writable=True)
            try:
                self._verify(connection)
            except BaseException:
                connection.close(force=True)
                raise
            self._writer, self._poisoned, self._version = connection, None, None
        if self._writer is None:
            self._writer, self._version = self._connect(writable=True), None
        return self._writer

    def _verify(self, connection: apsw.Connection) -> None:
        # Entries and deltas are verified whenever they are read: damage to one session must not
        # keep the others from being written. What all sessions share is checked here.
        for table in ("meta", "sessions"):
            verdict = connection.pragma("quick_check", table)
            if verdict != "ok":
                raise StoreDegraded(f"{self.path} did not pass its check: {verdict}")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    @contextmanager
    def reading(self) -> Iterator[SqliteReader]:
        """One consistent moment. Never held open across a yield to a caller."""
        files.check_same(self.path, self._inode)
        with gate(), translated(f"reading {self.path}"):
            connection = self._take_reader()
            try:
                connection.execute("BEGIN")
                yield SqliteReader(connection)
            finally:
                self._give_back(connection)

    def _take_reader(self) -> apsw.Connection:
        try:
            return self._readers.pop()
        except IndexError:
            return self._connect(writable=False)

    def _give_back(self, connection: apsw.Connection) -> None:
        # A read transaction has nothing to keep, so ending it is always a rollback.
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            connection.close()
            return
        if len(self._readers) < _READERS_IDLE and not self._closed:
            self._readers.append(connection)
        else:
            connection.close()

    # -- others --------------------------------------------------------------------------------

    def explain(self, error: BaseException) -> BaseException:
        if not isinstance(error, apsw.Error):
            return error
        explained = self._in_our_words(error, f"writing to {self.path}")
        explained.__cause__ = error
        return explained

    def _in_our_words(self, error: apsw.Error, what: str) -> StoreError:
        if isinstance(error, apsw.BusyError):
            owner = locker_of(Path(f"{self.path}-shm"))
            return StoreBusy(
                f"{what}: waited {self._wait_seconds:g} s for SQLite's lock, held by {owner}; end "
                "it or let it finish, then try again"
            )
        return in_our_words(error, what)

    def is_alive(self, holder: str) -> bool:
        return self._lock is None or self._lock.is_alive(holder)

    def version_moved(self, connection: apsw.Connection) -> bool:
        """Whether anybody else has committed since this connection's own last commit."""
        return self._version != connection.data_version()

    def change_mark(self) -> int:
        files.check_same(self.path, self._inode)
        with gate(), translated(f"watching {self.path}"):
            # The number is only comparable on one connection, so watching has one of its own.
            if self._watching is None:
                self._watching = self._connect(writable=False)
                self._watchings += 1
            return self._watchings << 32 | int(self._watching.pragma("data_version"))

    # -- opening and closing -------------------------------------------------------------------

    def _connect(self, *, writable: bool) -> apsw.Connection:
        return connect(
            self.path,
            durability=self._durability,
            wait_seconds=self._wait_seconds,
            writable=writable,
        )

    def _open_writer(self) -> None:
        assert self._lock is not None
        self._lock.acquire_turn(self._wait_seconds)
        try:
            with gate(), translated(f"opening {self.path}"):
                self._writer = self._connect(writable=True)
                bring_up_to_date(self._writer, self.path)
        except BaseException:
            self._discard_writer()
            raise
        finally:
            self._lock.release_turn()

    def _discard_writer(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close(force=True)

    def close(self) -> None:
        """Let go of everything; what was acknowledged is on the disk already."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:
            return  # nothing was inherited that could be closed
        try:
            # What was acknowledged is on the disk; a checkpoint that fails now can be made later.
            with gate(), contextlib.suppress(apsw.Error):
                while self._readers:
                    self._readers.pop().close()
                if self._watching is not None:
                    self._watching.close()
                self._discard_writer()
        finally:
            if self._lock is not None:
                self._lock.release_holder(self.holder)
                self._lock.close()

    def let_go(self) -> None:
        """Close every connection, before fork(); each is opened again when it is needed.

        A child that inherits a connection inherits SQLite's belief that its locks are held, while
        the kernel gives them to the parent alone. Nothing may be open when the two part.
        """
        connections = (*self._readers, self._writer, self._watching)
        self._readers, self._writer, self._watching = [], None, None
        for connection in connections:
            if connection is not None:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.close(force=True)


def identity_key(session: int, identity: str) -> bytes:
    """An identity as the index holds it; the schema says why it has this shape."""
    data = to_bytes(identity)
    hashed = blake2b(data, digest_size=14, key=session.to_bytes(8)).digest()
    minted = _MINTED.match(data)
    return (unhexlify(minted[1]) if minted is not None else hashed[:6]) + hashed


def _shown(about: bytes) -> Description:
    """A damaged session is listed all the same, and says so when it is opened."""
    try:
        return decode(about, Description)
    except ValueError:
        return Description(extra={"damaged": True})


_databases: "weakref.WeakSet[SqliteDatabase]" = weakref.WeakSet()


def _before_fork() -> None:
    gate.shut()
    for database in list(_databases):
        database.let_go()


def _after_fork_in_child() -> None:
    gate.reset()
    LockFile.forget_inherited()


os.register_at_fork(
    before=_before_fork, after_in_parent=gate.open, after_in_child=_after_fork_in_child
)
