"""The sessions of one transaction: locked, assumed to be unchanged, or held by another process.

Rule 1: a session whose version is known from the transaction before is not locked at all: the
        statement that commits makes sure that the version is still the same.
Rule 2: other sessions are locked all at once, in one order, so that no two transactions wait for
        each other. An operation that turns out to need more begins the transaction anew.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final

from killick.stores.contract import RetryTransaction, SessionLocked
from killick.stores.postgres.connection import Connection, Link, run, run_alone
from killick.stores.postgres.reader import StoredSession
from killick.stores.postgres.statements import Bigints, PostgresQueries, columns, join, of

GONE: Final = -1
"""The version of a session that does not exist any more."""


class LockedLate(RetryTransaction):
    """Asks for a new transaction that locks `keys` before anything else."""

    def __init__(self, keys: set[int]) -> None:
        super().__init__(f"{len(keys)} sessions")
        self.keys = keys


class Outdated(LockedLate):
    """Another process has written to one of these sessions."""


class SessionLocks:
    """The sessions that a transaction has locked, and those that it assumes to be unchanged."""

    __slots__ = ("_checked", "_sql", "_wait_seconds", "assumed", "first", "held", "rows", "watched")

    def __init__(
        self,
        sql: PostgresQueries,
        *,
        first: Collection[int],
        held: Collection[int],
        wait_seconds: float,
    ) -> None:
        self._sql = sql
        self._wait_seconds = wait_seconds
        self.held = frozenset(held)
        """Locked by another process: an operation about one of them is put off."""
        self.first = frozenset(first) - self.held
        """To be locked when the transaction begins."""
        self.rows: dict[int, StoredSession | None] = {}
        """Locked, with what was read then; None for a session that does not exist."""
        self.assumed: dict[int, int] = {}
        """The versions that the commit has to check."""
        self._checked: dict[int, int] = {}
        self.watched: set[int] = set()
        """Sessions that another process follows, so that it wants to hear of the commit."""

    @property
    def keys(self) -> set[int]:
        return {*self.rows, *self.assumed, *self._checked, *self.first}

    def version(self, key: int) -> int | None:
        """Return a version that the server has vouched for, or None. Raises SessionLocked."""
        if key in self.rows:
            row = self.rows[key]
            return GONE if row is None else row.stamp
        if key in self.held and key not in self._checked:
            raise SessionLocked(self._wait_seconds)
        return self._checked.get(key)

    def take(self, connection: Connection, keys: Iterable[int]) -> None:
        """Lock these sessions, in the one order that every process keeps."""
        wanted = sorted(keys)
        if not wanted:
            return
        if len(wanted) == 1:
            locking = run(connection, self._sql.lock_session, of(wanted[0]), binary=True)
        else:
            locking = run(connection, self._sql.lock_sessions, columns(wanted), binary=True)
        self.rows = dict.fromkeys(wanted)
        for row in map(StoredSession._make, locking.fetchall()):
            key = join(row.tenant, row.session)
            self.rows[key] = row
            if row.watched:
                self.watched.add(key)

    def confirm(self) -> None:
        """Compare what was assumed with the rows that are locked now. Raises Outdated."""
        for key, version in self.assumed.items():
            row = self.rows[key]
            if row is None or row.stamp != version:
                raise Outdated(set(self.rows))
        self.assumed.clear()

    def assumption(self) -> dict[str, Any]:
        """Return the parameters of a statement that fails if an assumed version is outdated."""
        keys = sorted(self.assumed)
        known = Bigints(self.assumed[key] for key in keys)
        return {**columns(keys), "known": known, "count": len(keys)}

    def check(self, connection: Connection) -> Any:
        """Have the server refuse the transaction if an assumed version is outdated."""
        if not self.assumed:
            return None
        return run(connection, self._sql.check_sessions, self.assumption())

    def check_alone(self, line: Link) -> None:
        """Do the same outside of a transaction: nothing is locked afterwards."""
        if self.assumed:
            run_alone(line, self._sql.check_sessions, self.assumption())

    def checked(self, answer: Any) -> None:
        """Take the server's answer to `check`: all that was assumed is true, and locked."""
        if answer is None:
            return
        self.watch(answer.fetchone())
        self._checked.update(self.assumed)
        self.assumed.clear()

    def watch(self, row: Any) -> None:
        """Note which sessions are followed, from the row of a statement that checks versions."""
        _, tenants, sessions = row
        if tenants:
            self.watched.update(map(join, tenants, sessions))
