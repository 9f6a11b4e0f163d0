"""The PostgreSQL store: its connections, its commits, and what becomes of one that failed.

One connection writes, for all callers of this process; a few read; one keeps the lock, renews the
lease and sends notices; one listens while a caller waits. Each is opened again when it was lost.
"""

import contextlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import psycopg
from msgspec.structs import replace
from psycopg import errors as pg

from killick.errors import OutcomeUnknown, StoreError, StoreReadOnly, UsageError
from killick.model.limits import ANSWER_SECONDS, LEASE_SECONDS, LOCK_WAIT_SECONDS, RECONNECT_SECONDS
from killick.stores.contract import BackupReceipt, Pace, ReadInterrupted, RetryTransaction, Traces
from killick.stores.log import log
from killick.stores.postgres.connection import (
    ConnectionSettings,
    Durability,
    Link,
    Silent,
    connect,
    ends_connection,
    read_url,
    run,
    translate_error,
    translated,
)
from killick.stores.postgres.holders import Looks
from killick.stores.postgres.leases import Lease
from killick.stores.postgres.locks import LockedLate, SessionLocks
from killick.stores.postgres.migrate import bring_up_to_date, find_schema
from killick.stores.postgres.notify import Watching
from killick.stores.postgres.pool import Pool, patiently
from killick.stores.postgres.reader import PostgresReader
from killick.stores.postgres.row_security import grant, is_bound
from killick.stores.postgres.statements import columns, join, new_number, queries, tenant_number
from killick.stores.postgres.transaction import PostgresTransaction

_LOSSES_MAX: Final = 5
"""How often in a row a transaction is begun anew because its connection was lost."""

_AGAIN: Final = (pg.DeadlockDetected, pg.SerializationFailure)

_QUEUE_SECONDS: Final = 1.0
"""How long a transaction waits for its sessions before it goes on without those that another
process keeps locked."""

_IDLE_SECONDS: Final = 10.0
"""After which the server ends a transaction of a writer that was frozen, and lets its locks go."""

_LOOK_SECONDS: Final = 0.05
"""Between two looks whether they are free again."""

_UNVERIFIED: Final = (
    "the server's files, until its vacuum has reused the space of removed rows",
    "the server's write-ahead log, its archive, and standbys",
)
"""Places that may hold erased bytes and cannot be looked at from here."""

_TO_DO: Final = (
    "vacuum the tables of the store's schema: VACUUM (FULL) writes them anew, a plain one lets "
    "the space of removed rows be written over",
    "wait until the server has recycled its write-ahead log (CHECKPOINT, pg_switch_wal), and "
    "remove its archive of that time",
    "remove backups from before, and see that standbys have followed",
)
"""For the operator of the server, after an erasure."""


class _Writing:
    """One transaction."""

    __slots__ = ("_database", "_tx")

    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database

    def __enter__(self) -> PostgresTransaction:
        self._tx = self._database.begin()
        return self._tx

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        database, tx = self._database, self._tx
        if error is None:
            database.commit(tx)
            return
        database.undo(tx)
        cause = error if isinstance(error, psycopg.Error) else error.__cause__
        if isinstance(error, LockedLate):
            database.lock_first(error.keys)
        elif isinstance(cause, psycopg.Error):
            raise database.judge(tx, cause) from cause


class PostgresDatabase:
    """One opening of one store on a server."""

    unfolded = False

    def __init__(
        self,
        url: str,
        *,
        durability: Durability = "full",
        wait_seconds: float = LOCK_WAIT_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
        reconnect_seconds: float = RECONNECT_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
        tenant: str | None = None,
    ) -> None:
        self._address = read_url(url)
        number = None if tenant is None else tenant_number(tenant)
        self._settings = ConnectionSettings(durability, wait_seconds, answer_seconds, tenant=number)
        self._reconnect_seconds = reconnect_seconds
        self._names: dict[int, str] = {}
        self._writer: Link | None = None
        self._first: frozenset[int] = frozenset()
        self._careful = False
        self._losses = 0
        self._unsure: set[int] = set()
        self._held: dict[int, tuple[int, float]] = {}
        self._look_at = 0.0
        self._queueing_since: float | None = None
        self._closed = False
        self._pid = os.getpid()
        self.holder = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(6)}"
        self._looks = Looks(self.holder)
        with translated(f"opening {self._address.shown}"):
            self._open(lease_seconds)

    def _open(self, lease_seconds: float) -> None:
        line = self._connect_writer()
        try:
            self._address = address = find_schema(line, self._address)
            self._sql = queries(address.schema)
            self._pool = Pool(self._reconnected, self._settings.wait_seconds)
            self._lease = Lease(
                self._connect, self._sql, address, self.holder, lease_seconds,
                self._settings.tenant,
            )  # fmt: skip
            self._watching = Watching(self._pool, self._connect, self._sql, address.schema)
            bring_up_to_date(line, address, self._settings.wait_seconds)
            self._bind(line)
            if not line.standby:
                self._lease.take(line)
        except BaseException:
            line.close()
            raise
        self._writer = line

    def _bind(self, line: Link) -> None:
        """Find out whether row security binds this role. Raises UsageError without a tenant."""
        if not is_bound(line, self._address.schema):
            return
        if self._settings.tenant is None:
            raise UsageError(
                f"{self._address.shown}: row security binds this role to one tenant at a time; "
                'name it: Store(url, tenant="…"), or KILLICK_TENANT for the command'
            )
        self._settings = replace(self._settings, bound=True)
        line.bound = True

    # -- connections ---------------------------------------------------------------------------

    def _connect(self) -> Link:
        return connect(self._address, self._settings)

    def _connect_writer(self) -> Link:
        asked = self._settings
        queueing = min(asked.wait_seconds, _QUEUE_SECONDS)
        settings = replace(asked, wait_seconds=queueing, idle_seconds=_IDLE_SECONDS)
        return connect(self._address, settings)

    def _reconnected(self) -> Link:
        return patiently(self._connect, self._reconnect_seconds)

    def _writing_line(self) -> Link:
        if self._writer is None or self._writer.broken:
            self._writer = patiently(self._connect_writer, self._reconnect_seconds)
        if self._writer.standby:
            # It may have been promoted since.
            self._writer.close()
            self._writer = patiently(self._connect_writer, self._reconnect_seconds)
            if self._writer.standby:
                raise StoreReadOnly(f"{self._address.shown} is a standby in recovery")
        self._writer.connection.unhurried = False
        return self._writer

    # -- transactions --------------------------------------------------------------------------

    def writing(self) -> "_Writing":
        """Begin and commit a transaction; only the writer thread does.

        If interrupted: rolled back, or committed as a whole; the commit is the last step.
        """
        return _Writing(self)

    def begin(self) -> PostgresTransaction:
        self._lease.check()
        if (self._unsure or self._held) and time.monotonic() >= self._look_at:
            with translated(f"writing to {self._address.shown}"):
                self._look_at_held()
        first, self._first = self._first, frozenset()
        careful, self._careful = self._careful, False
        held, seconds = self._held.keys() | self._unsure, self._settings.wait_seconds
        locks = SessionLocks(self._sql, first=first, held=held, wait_seconds=seconds)
        return PostgresTransaction(
            self._writing_line, self._sql, self._names, locks, looks=self._looks, careful=careful
        )

    def _look_at_held(self) -> None:
        """Find out which sessions are free again; those that were in doubt get new versions."""
        self._unsure = set(self._find_held(self._unsure, restamp=True))
        now = time.monotonic()
        held = self._find_held(self._held)
        self._held = {
            key: (version, since)
            for key, (version, since) in self._held.items()
            # One whose version has moved is not kept: many transactions pass through it, and one
            # that does not wait in line with them never comes to it.
            if key in held and (held[key] == version or now - since < _QUEUE_SECONDS)
        }
        self._look_at = now + _LOOK_SECONDS

    def _find_held(self, keys: Collection[int], *, restamp: bool = False) -> dict[int, int]:
        """Return the versions of those that another process has locked; others may get new ones."""
        if not keys:
            return {}
        line = self._writing_line()
        with line.connection.transaction():
            if line.pooled:
                run(line.connection, self._sql.set_locally, line.parameters)
            rows = run(line.connection, self._sql.held_sessions, columns(sorted(keys))).fetchall()
            held = {join(tenant, session): version for tenant, session, version in rows}
            if restamp:
                free = columns(sorted(set(keys) - held.keys()))
                run(line.connection, self._sql.restamp, {**free, "stamp": new_number()})
        return held

    def lock_first(self, keys: Collection[int]) -> None:
        """Make the next transaction begin with locking these."""
        self._first = frozenset(keys)

    def commit(self, tx: PostgresTransaction) -> None:
        if tx.idle:
            return
        try:
            tx.commit()
        except psycopg.Error as error:
            self._failed(tx, error)
            return
        except LockedLate as late:
            self.undo(tx)
            self.lock_first(late.keys)
            raise
        except BaseException:
            self.undo(tx)
            raise
        self._losses = 0
        self._queueing_since = None
        self._names.update(tx.tenants)
        if tx.notices:
            self._lease.notify(tx.notices)

    def _failed(self, tx: PostgresTransaction, error: psycopg.Error) -> None:
        """Raise what a refused commit means; find out what became of one whose connection broke."""
        line = tx.begun
        if line is not None and ends_connection(error):
            # The error can come before the connection is known to be broken: nothing more is
            # believed of it.
            line.close()
        if line is None or not line.broken:
            self.undo(tx)
            raise self.judge(tx, error) from error
        if not self._was_committed(tx, error):
            raise self.judge(tx, error) from error
        self._losses = 0
        self._names.update(tx.tenants)

    def _was_committed(self, tx: PostgresTransaction, error: psycopg.Error) -> bool:
        """Find out whether it was committed; afterwards it is over in any case."""
        self._unsure.update(tx.locked)
        self._look_at = 0.0
        deadline = time.monotonic() + self._reconnect_seconds
        while True:
            try:
                return self._settle(tx)
            except (psycopg.Error, StoreError) as unreachable:
                lost = isinstance(unreachable, psycopg.Error) and ends_connection(unreachable)
                if lost and self._writer is not None:
                    self._writer.close()
                if lost and time.monotonic() < deadline:
                    time.sleep(_LOOK_SECONDS)
                    continue
                raise OutcomeUnknown(
                    f"the connection to {self._address.shown} was lost during a commit, and the "
                    f"server cannot be asked what became of it ({unreachable}); it may be stored "
                    "or not: repeat it with the same id, or read again"
                ) from error

    def _settle(self, tx: PostgresTransaction) -> bool:
        """Return whether a transaction was committed, of which no answer came.

        It may hold its sessions: then locking them waits for its end. It may not even have come to
        the server: then it is refused when it comes, because the versions are others. A transaction
        without entries changes nothing when it is made again. Sessions that are in doubt from
        before get new versions whatever the answer: it says nothing of theirs.
        """
        line, evidence = self._writing_line(), tx.evidence
        keys = sorted(self._unsure)
        answer = None
        # It may well be at work still, so this waits longer than in line; and hears the answer.
        seconds = min(self._settings.wait_seconds, self._settings.answer_seconds / 2)
        waiting = {**line.parameters, "lock_timeout": f"{max(1, int(seconds * 1000))}ms"}
        with line.connection.transaction():
            run(line.connection, self._sql.set_locally, waiting)
            run(line.connection, self._sql.lock_sessions, columns(keys)).fetchall()
            if evidence is not None:
                answer = run(line.connection, evidence.sql, evidence.bindings).fetchone()
            doubtful = keys if answer is None else sorted(self._unsure.difference(tx.locked))
            if doubtful:
                restamped = {**columns(doubtful), "stamp": new_number()}
                run(line.connection, self._sql.restamp, restamped)
        self._unsure.clear()
        return evidence is not None and answer is not None and answer[0] == evidence.answer

    def undo(self, tx: PostgresTransaction) -> None:
        line = tx.begun
        if line is None or line.broken:
            return
        try:
            line.connection.execute("ROLLBACK")
        except psycopg.Error:
            line.close()

    def judge(self, tx: PostgresTransaction, error: psycopg.Error) -> Exception:
        """Decide about a transaction of which nothing is stored: it is run again, or refused."""
        why = self._reason_to_retry(tx, error)
        if why is not None:
            self._first = frozenset(tx.locked)
            return RetryTransaction(why)
        self._losses = 0
        self._queueing_since = None
        return self.explain(error)  # type: ignore[return-value]

    def _reason_to_retry(self, tx: PostgresTransaction, error: psycopg.Error) -> str | None:
        if isinstance(error, pg.DivisionByZero):
            return "another process has written"
        if isinstance(error, pg.UniqueViolation) and not tx.careful:
            self._careful = True
            return "something was there already"
        if isinstance(error, pg.LockNotAvailable) and self._goes_on_without(tx):
            return "another process keeps a session locked"
        if isinstance(error, Silent):
            # One more try, on a connection that answers; if that is silent too, all of it is.
            self._losses = max(self._losses, _LOSSES_MAX - 1)
        if tx.begun is not None and ends_connection(error):
            tx.begun.close()
        lost = tx.begun is not None and tx.begun.broken
        if (lost or isinstance(error, _AGAIN)) and self._losses < _LOSSES_MAX:
            self._losses += 1
            log(logging.INFO, "transaction retried", error=str(error), losses=self._losses)
            return "the connection was lost"
        return None

    def _goes_on_without(self, tx: PostgresTransaction) -> bool:
        """Return whether the held sessions are known, or the wait was not too long yet."""
        now = time.monotonic()
        try:
            held = self._find_held(tx.locked)
        except (psycopg.Error, StoreError):
            held = {}  # a whole table is locked, or the server went away: the next try tells
        self._held.update({key: (version, now) for key, version in held.items()})
        self._look_at = now + _LOOK_SECONDS
        self._queueing_since = self._queueing_since or now
        return bool(held) or now - self._queueing_since < self._settings.wait_seconds

    @contextmanager
    def reading(self) -> Iterator[PostgresReader]:
        """Read one consistent moment. Never held open across a yield to a caller."""
        self._lease.check()
        what = f"reading {self._address.shown}"
        with translated(what), self._pool.reading() as line:
            try:
                yield PostgresReader(line.connection, self._sql, self._names, self._looks)
            except psycopg.Error as error:
                if isinstance(error, Silent) or not ends_connection(error):
                    raise
                raise ReadInterrupted(str(translate_error(error, what))) from error

    def explain(self, error: BaseException) -> BaseException:
        if not isinstance(error, psycopg.Error):
            return error
        explained = translate_error(error, f"writing to {self._address.shown}")
        explained.__cause__ = error
        return explained

    # -- others --------------------------------------------------------------------------------

    def change_mark(self) -> int:
        with translated(f"watching {self._address.shown}"):
            return self._watching.mark()

    def changed(self, followed: Collection[int]) -> Collection[int]:
        return self._watching.changed(followed)

    def watch(
        self, followed: Collection[int], running: Collection[int], notice: Callable[[], None]
    ) -> None:
        self._watching.watch(followed, running, notice)

    def pace(self) -> Pace:
        return self._watching.pace()

    # -- care ----------------------------------------------------------------------------------

    def check(self) -> list[str]:
        with self.reading() as reader:
            return advice(reader.fetch(self._sql.server)[0])

    def grant(self, role: str, tenant: str | None) -> None:
        """Give a role of the server what a store needs, bound by row security.

        If interrupted: all of it is given, or nothing.
        """
        with translated(f"opening {self._address.shown}"):
            line = self._reconnected()
            try:
                grant(line.connection, self._address.schema, role, tenant)
            finally:
                line.close()

    def reindex(self) -> None:
        """Make all indexes anew.

        If interrupted: some indexes are made anew, the others are as they were.
        """
        with translated(f"looking after {self._address.shown}"):
            line = self._reconnected()
            line.connection.unhurried = True
            try:
                run(line.connection, f'REINDEX SCHEMA CONCURRENTLY "{self._address.schema}"')
            finally:
                line.close()

    def copies(self) -> tuple[str, ...]:
        return ()

    def check_room(self, keys: Sequence[int]) -> None:
        """Do nothing: a server that has no room refuses the transaction."""

    def sweep(self, files: Sequence[str] = ()) -> Traces:
        """See which files the server keeps the store in: removed rows stay in them.

        VACUUM (FULL) gives every table and index new ones. If none of those that the store had when
        something was erased is in use, that is done.
        """
        with self.reading() as reader:
            now = tuple(name for (name,) in reader.fetch(self._sql.server_files))
        done = bool(files) and not set(files) & set(now)
        left = (_UNVERIFIED, _TO_DO)
        unverified, to_do = (each[1:] if done else each for each in left)
        return Traces(files=now, unverified=unverified, to_do=to_do)

    def find_traces(self, needles: Sequence[bytes]) -> Traces:
        return Traces()

    def back_up(
        self, target: Path, progress: Callable[[int, int], None] | None, *, renew: bool = False
    ) -> BackupReceipt:
        """Raises UsageError: the server does it."""
        raise UsageError(
            f"nothing was written to {target}: a store on PostgreSQL is backed up by its server "
            "(pg_dump --schema, pg_basebackup); `killick copy` makes a file of it"
        )

    def hurry(self, seconds: float) -> None:
        """Do nothing: what others have locked is gone around when it is indexed."""

    def close(self) -> None:
        """Let go of everything; what was acknowledged is stored already."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:
            return  # the connections are the parent's
        self._watching.close()
        self._lease.release()
        self._pool.close()
        if self._writer is not None:
            with contextlib.suppress(psycopg.Error):
                self._writer.close()


def advice(row: Any) -> list[str]:
    """Say which settings of the server weaken a promise, in lines that begin with `server:`."""
    fsync, full_pages, commits, named, standby, replicas = row
    lines = []
    if fsync != "on":
        lines.append("fsync is off, so what was acknowledged is lost when the machine goes down")
    if full_pages != "on":
        lines.append("full_page_writes is off; a torn page cannot be mended after a crash")
    if standby:
        lines.append("it is a standby in recovery; nothing can be written here")
    if replicas and not named:
        lines.append(
            "its standbys follow asynchronously; after a failover the newest entries of a session "
            "may be missing, always from its end"
        )
    if commits in ("off", "local") and named:
        lines.append(
            f"synchronous_commit is {commits} there; a store that asks for full durability waits "
            "for the standbys all the same"
        )
    return [f"server: {line}" for line in lines]
