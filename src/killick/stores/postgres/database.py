"""The PostgreSQL store: its connections and its one transaction helper; nothing is decided here.

One connection writes, for all callers of this process; a few read; one renews the lease and sends
notices; one listens while somebody waits. Each is opened again when it was lost.
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
from typing import Final

import psycopg
from psycopg import errors as pg

from killick.errors import OutcomeUnknown, StoreError, StoreReadOnly
from killick.model.limits import ANSWER_SECONDS, LEASE_SECONDS, LOCK_WAIT_SECONDS, RECONNECT_SECONDS
from killick.stores.contract import BackupReceipt, Pace, RetryTransaction, Traces
from killick.stores.postgres import maintain
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
from killick.stores.postgres.keys import columns, join, new_number
from killick.stores.postgres.leases import Lease
from killick.stores.postgres.migrate import bring_up_to_date, find_schema
from killick.stores.postgres.notify import Watching
from killick.stores.postgres.pool import Pool, patiently
from killick.stores.postgres.reader import PostgresReader
from killick.stores.postgres.schema import queries
from killick.stores.postgres.transaction import Evidence, LockedLate, PostgresTransaction

LOG: Final = logging.getLogger("killick")

_LOSSES_MAX: Final = 5
"""How often in a row a transaction is begun anew because its connection was lost."""

_AGAIN: Final = (pg.DeadlockDetected, pg.SerializationFailure)

_QUEUE_SECONDS: Final = 1.0
"""How long a transaction stands in line for its sessions before it goes on without those that
somebody keeps."""

_IDLE_SECONDS: Final = 10.0
"""After which the server ends a transaction of a writer that was frozen, and lets its locks go."""

_LOOK_SECONDS: Final = 0.05
"""Between two looks whether they are free again."""


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

    def __init__(
        self,
        url: str,
        *,
        durability: Durability = "full",
        wait_seconds: float = LOCK_WAIT_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
        reconnect_seconds: float = RECONNECT_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._address = read_url(url)
        self._settings = ConnectionSettings(durability, wait_seconds, answer_seconds)
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
        with translated(f"opening {self._address.shown}"):
            self._open(lease_seconds)

    def _open(self, lease_seconds: float) -> None:
        line = self._connect_writer()
        try:
            self._address = address = find_schema(line, self._address)
            self._sql = queries(address.schema)
            self._pool = Pool(self._reconnected, self._settings.wait_seconds)
            self._lease = Lease(self._connect, self._sql, address, self.holder, lease_seconds)
            self._watching = Watching(self._pool, self._connect, self._sql, address.schema)
            bring_up_to_date(line, address, self._settings.wait_seconds)
            if not line.standby:
                self._lease.take(line)
        except BaseException:
            line.close()
            raise
        self._writer = line

    # -- connections ---------------------------------------------------------------------------

    def _connect(self) -> Link:
        return connect(self._address, self._settings)

    def _connect_writer(self) -> Link:
        asked = self._settings
        queueing = min(asked.wait_seconds, _QUEUE_SECONDS)
        settings = ConnectionSettings(
            asked.durability, queueing, asked.answer_seconds, _IDLE_SECONDS
        )
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
        """The one place that begins and commits. Only the writer's thread comes here.

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
        return PostgresTransaction(
            self._writing_line,
            self._sql,
            self._names,
            holder=self.holder,
            first=first,
            careful=careful,
            held=self._held.keys() | self._unsure,
            wait_seconds=self._settings.wait_seconds,
        )

    def _look_at_held(self) -> None:
        """Which sessions are free again; what is known of those that were in doubt is not true."""
        self._unsure = set(self._find_held(self._unsure, restamp=True))
        now = time.monotonic()
        held = self._find_held(self._held)
        self._held = {
            key: (stamp, since)
            for key, (stamp, since) in self._held.items()
            # Nobody keeps one whose stamp has moved: many pass through it, and whoever does not
            # stand in line with them never comes to it.
            if key in held and (held[key] == stamp or now - since < _QUEUE_SECONDS)
        }
        self._look_at = now + _LOOK_SECONDS

    def _find_held(self, keys: Collection[int], *, restamp: bool = False) -> dict[int, int]:
        """Which of these somebody else has locked, with their stamps; others may get new ones."""
        if not keys:
            return {}
        line = self._writing_line()
        with line.connection.transaction():
            if line.pooled:
                run(line.connection, self._sql.set_locally, line.parameters)
            rows = run(line.connection, self._sql.held_sessions, columns(sorted(keys))).fetchall()
            held = {join(*row[:2]): row[2] for row in rows}
            if restamp:
                free = columns(sorted(set(keys) - held.keys()))
                run(line.connection, self._sql.restamp, {**free, "stamp": new_number()})
        return held

    def lock_first(self, keys: Collection[int]) -> None:
        """The next transaction begins with locking these."""
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
            self._lease.notify(tx.notices & tx.changed)

    def _failed(self, tx: PostgresTransaction, error: psycopg.Error) -> None:
        """The commit was refused, or the connection was lost and its outcome must be found out."""
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
        self._names.update(tx.tenants)

    def _was_committed(self, tx: PostgresTransaction, error: psycopg.Error) -> bool:
        """Find out, when it can be known to be over; it is over afterwards in any case."""
        self._unsure.update(tx.locked)
        self._look_at = 0.0
        deadline = time.monotonic() + self._reconnect_seconds
        while True:
            try:
                return self._settle(tx.evidence)
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

    def _settle(self, evidence: Evidence | None) -> bool:
        """Whether the transaction that left this behind was committed.

        It may hold its sessions: then whoever locks them next waits for its end. It may not even
        have come to the server: then it is refused when it comes, because the stamps are others. A
        transaction without entries changes nothing when it is made again.
        """
        line = self._writing_line()
        keys = sorted(self._unsure)
        found = None
        # It may well be at work still, so this waits longer than in line; and hears the answer.
        seconds = min(self._settings.wait_seconds, self._settings.answer_seconds / 2)
        waiting = {**line.parameters, "lock_timeout": f"{max(1, int(seconds * 1000))}ms"}
        with line.connection.transaction():
            run(line.connection, self._sql.set_locally, waiting)
            run(line.connection, self._sql.lock_sessions, columns(keys)).fetchall()
            if evidence is not None:
                found = run(line.connection, evidence.sql, evidence.bindings).fetchone()
            if found is None:
                restamped = {**columns(keys), "stamp": new_number()}
                run(line.connection, self._sql.restamp, restamped)
        self._unsure.clear()
        return evidence is not None and found is not None and found[0] == evidence.answer

    def undo(self, tx: PostgresTransaction) -> None:
        line = tx.begun
        if line is None or line.broken:
            return
        try:
            line.connection.execute("ROLLBACK")
        except psycopg.Error:
            line.close()

    def judge(self, tx: PostgresTransaction, error: psycopg.Error) -> Exception:
        """What becomes of a transaction of which nothing is stored: run again, or refused."""
        line = tx.begun
        if line is not None and ends_connection(error):
            line.close()
        lost = line is not None and line.broken
        if isinstance(error, pg.DivisionByZero):
            self._first = frozenset(tx.locked)
            return RetryTransaction("somebody else has written")
        if isinstance(error, pg.UniqueViolation) and not tx.careful:
            self._careful = True
            self._first = frozenset(tx.locked)
            return RetryTransaction("something was there already")
        if isinstance(error, pg.LockNotAvailable) and self._goes_on_without(tx):
            self._first = frozenset(tx.locked)
            return RetryTransaction("somebody keeps a session locked")
        if isinstance(error, Silent):
            # One more try, on a connection that answers; if that is silent too, all of it is.
            self._losses = max(self._losses, _LOSSES_MAX - 1)
        if (lost or isinstance(error, _AGAIN)) and self._losses < _LOSSES_MAX:
            self._losses += 1
            self._first = frozenset(tx.locked)
            LOG.info("transaction retried", extra={"error": str(error), "losses": self._losses})
            return RetryTransaction("the connection was lost")
        self._losses = 0
        self._queueing_since = None
        return self.explain(error)  # type: ignore[return-value]

    def _goes_on_without(self, tx: PostgresTransaction) -> bool:
        """Whether it is known what was waited for in vain, or it was not for too long yet."""
        now = time.monotonic()
        try:
            held = self._find_held(tx.locked)
        except (psycopg.Error, StoreError):
            held = {}  # a whole table is locked, or the server went away: the next try tells
        self._held.update({key: (stamp, now) for key, stamp in held.items()})
        self._look_at = now + _LOOK_SECONDS
        self._queueing_since = self._queueing_since or now
        return bool(held) or now - self._queueing_since < self._settings.wait_seconds

    @contextmanager
    def reading(self) -> Iterator[PostgresReader]:
        """One consistent moment. Never held open across a yield to a caller."""
        self._lease.check()
        with translated(f"reading {self._address.shown}"), self._pool.reading() as line:
            yield PostgresReader(line.connection, self._sql, self._names)

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

    def watch(
        self, followed: Collection[int], running: Collection[int], notice: Callable[[], None]
    ) -> None:
        self._watching.watch(followed, running, notice)

    def pace(self) -> Pace:
        return self._watching.pace()

    # -- care ----------------------------------------------------------------------------------

    def check(self) -> list[str]:
        with self.reading() as reader:
            return maintain.advice(reader.fetch(self._sql.server)[0])

    def reindex(self) -> None:
        """If interrupted: some indexes are made anew, the others are as they were."""
        with translated(f"looking after {self._address.shown}"):
            line = self._reconnected()
            line.connection.unhurried = True
            try:
                run(line.connection, f'REINDEX SCHEMA CONCURRENTLY "{self._address.schema}"')
            finally:
                line.close()

    def scrub(self) -> bool:
        return True

    def find_traces(self, needles: Sequence[bytes]) -> Traces:
        return maintain.traces()

    def back_up(self, target: Path, progress: Callable[[int, int], None] | None) -> BackupReceipt:
        """Raises UsageError: the server does it."""
        return maintain.back_up(target)

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
