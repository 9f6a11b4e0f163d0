"""The PostgreSQL store: its connections and its one transaction helper; nothing is decided here.

One connection writes, for all callers of this process; a few read; one renews the lease and sends
notices; one listens while somebody waits. Each is opened again when it was lost.
"""

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final

import psycopg
from psycopg import errors as pg

from holdfast.errors import OutcomeUnknown, StoreError, StoreReadOnly
from holdfast.model.limits import LEASE_SECONDS, LOCK_WAIT_SECONDS, RECONNECT_SECONDS
from holdfast.stores.base import BackupReceipt, Restart, Traces
from holdfast.stores.postgres import care
from holdfast.stores.postgres.connection import (
    Durability,
    Line,
    Settings,
    connect,
    in_our_words,
    read_url,
    run,
    translated,
)
from holdfast.stores.postgres.keys import columns, new_number
from holdfast.stores.postgres.leases import Lease
from holdfast.stores.postgres.migrate import bring_up_to_date
from holdfast.stores.postgres.pool import Pool, patiently
from holdfast.stores.postgres.queries import queries
from holdfast.stores.postgres.rows import PostgresReader
from holdfast.stores.postgres.transaction import Evidence, LockedLate, PostgresTransaction
from holdfast.stores.postgres.watching import Watching

_LOSSES_MAX: Final = 5
"""How often in a row a transaction is begun anew because its connection was lost."""

_AGAIN: Final = (pg.DeadlockDetected, pg.SerializationFailure)


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
    ) -> None:
        self._address = read_url(url)
        self._settings = Settings(durability, wait_seconds)
        self._reconnect_seconds = reconnect_seconds
        self._sql = queries(self._address.schema)
        self._names: dict[int, str] = {}
        self._writer: Line | None = None
        self._first: frozenset[int] = frozenset()
        self._careful = False
        self._losses = 0
        self._unsure: set[int] = set()
        self._closed = False
        self._pid = os.getpid()
        self.holder = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(6)}"
        self._pool = Pool(self._reconnected, wait_seconds)
        self._lease = Lease(
            self._connect, self._sql, self._address.schema, self.holder, lease_seconds
        )
        self._watching = Watching(self._pool, self._connect, self._sql, self._address.schema)
        with translated(f"opening {self._address.shown}"):
            self._open()

    def _open(self) -> None:
        line = self._connect()
        try:
            bring_up_to_date(line, self._address.schema, self._address.shown)
            if not line.standby:
                self._lease.take(line)
        except BaseException:
            line.close()
            raise
        self._writer = line

    # -- connections ---------------------------------------------------------------------------

    def _connect(self) -> Line:
        return connect(self._address, self._settings)

    def _reconnected(self) -> Line:
        return patiently(self._connect, self._reconnect_seconds)

    def _writing_line(self) -> Line:
        if self._writer is None or self._writer.broken:
            self._writer = self._reconnected()
        if self._writer.standby:
            # It may have been promoted since.
            self._writer.close()
            self._writer = self._reconnected()
            if self._writer.standby:
                raise StoreReadOnly(f"{self._address.shown} is a standby in recovery")
        return self._writer

    # -- transactions --------------------------------------------------------------------------

    def writing(self) -> "_Writing":
        """The one place that begins and commits. Only the writer's thread comes here.

        If interrupted: rolled back, or committed as a whole; the commit is the last step.
        """
        return _Writing(self)

    def begin(self) -> PostgresTransaction:
        if self._unsure:
            with translated(f"writing to {self._address.shown}"):
                self._settle(None)
        first, self._first = self._first, frozenset()
        careful, self._careful = self._careful, False
        return PostgresTransaction(
            self._writing_line,
            self._sql,
            self._names,
            holder=self.holder,
            first=first,
            careful=careful,
        )

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
        self._names.update(tx.tenants)
        if tx.notices:
            self._lease.notify(tx.notices & tx.changed)

    def _failed(self, tx: PostgresTransaction, error: psycopg.Error) -> None:
        """The commit was refused, or the connection was lost and its outcome must be found out."""
        line = tx.begun
        if line is None or not line.broken:
            self.undo(tx)
            raise self.judge(tx, error) from error
        if not self._was_committed(tx, error):
            raise self.judge(tx, error) from error
        self._names.update(tx.tenants)

    def _was_committed(self, tx: PostgresTransaction, error: psycopg.Error) -> bool:
        """Find out, when it can be known to be over; it is over afterwards in any case."""
        self._unsure.update(tx.locked)
        try:
            return self._settle(tx.evidence)
        except (psycopg.Error, StoreError) as unreachable:
            raise OutcomeUnknown(
                f"the connection to {self._address.shown} was lost during a commit, and the server "
                f"cannot be asked what became of it ({unreachable}); it may be stored or not: "
                "repeat it with the same id, or read again"
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
        with line.connection.transaction():
            if line.pooled:
                run(line.connection, self._sql.set_locally, line.parameters)
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
        lost = line is not None and line.broken
        if isinstance(error, pg.DivisionByZero):
            self._first = frozenset(tx.locked)
            return Restart("somebody else has written")
        if isinstance(error, pg.UniqueViolation) and not tx.careful:
            self._careful = True
            self._first = frozenset(tx.locked)
            return Restart("something was there already")
        if (lost or isinstance(error, _AGAIN)) and self._losses < _LOSSES_MAX:
            self._losses += 1
            self._first = frozenset(tx.locked)
            return Restart("the connection was lost")
        self._losses = 0
        return self.explain(error)  # type: ignore[return-value]

    @contextmanager
    def reading(self) -> Iterator[PostgresReader]:
        """One consistent moment. Never held open across a yield to a caller."""
        with translated(f"reading {self._address.shown}"), self._pool.reading() as line:
            yield PostgresReader(line.connection, self._sql, self._names)

    def explain(self, error: BaseException) -> BaseException:
        if not isinstance(error, psycopg.Error):
            return error
        explained = in_our_words(error, f"writing to {self._address.shown}")
        explained.__cause__ = error
        return explained

    # -- others --------------------------------------------------------------------------------

    def change_mark(self) -> int:
        with translated(f"watching {self._address.shown}"):
            return self._watching.mark()

    def watch(self, keys: Collection[int]) -> None:
        self._watching.watch(keys)

    # -- care ----------------------------------------------------------------------------------

    def check(self) -> list[str]:
        with self.reading() as reader:
            return care.advice(reader.fetch(self._sql.server)[0])

    def reindex(self) -> None:
        """If interrupted: some indexes are made anew, the others are as they were."""
        with translated(f"looking after {self._address.shown}"):
            line = self._reconnected()
            try:
                run(line.connection, f'REINDEX SCHEMA CONCURRENTLY "{self._address.schema}"')
            finally:
                line.close()

    def scrub(self) -> bool:
        return True

    def find_traces(self, needles: Sequence[bytes]) -> Traces:
        return care.traces()

    def back_up(self, target: Path, progress: Callable[[int, int], None] | None) -> BackupReceipt:
        """Raises UsageError: the server does it."""
        return care.back_up(target)

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
