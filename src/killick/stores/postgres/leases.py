"""The lease of one opening: a thread renews it, and tells other processes of commits.

It has a connection of its own. A notice is best effort: it is sent after the commit, for many
commits at once, and never inside of a transaction that writes, where it would take a lock on the
whole database. A process that misses one finds the change by polling.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

import psycopg

from killick.errors import KillickError, StoreNewer
from killick.stores.log import log
from killick.stores.postgres.connection import Address, Link, run
from killick.stores.postgres.migrate import check_allowed
from killick.stores.postgres.statements import PostgresQueries, split

_RETRY_SECONDS: Final = 1.0
_GATHER_SECONDS: Final = 0.005
"""Between two notices: what is committed meanwhile goes in one."""


class Lease:
    """Keeps one holder's right to run turns, for as long as the server can be reached."""

    def __init__(
        self,
        connect: Callable[[], Link],
        sql: PostgresQueries,
        address: Address,
        holder: str,
        seconds: float,
    ) -> None:
        self._connect = connect
        self._sql = sql
        self._address = address
        self._refused: str | None = None
        self._holder = holder
        self._seconds = seconds
        self._line: Link | None = None
        self._mutex = threading.Lock()
        self._wake = threading.Event()
        self._notices: set[int] = set()
        self._closed = False
        self._thread: threading.Thread | None = None

    def take(self, line: Link) -> None:
        """Take the lease, on a connection that is there anyway, and start the thread."""
        run(line.connection, self._sql.forget_holders)
        self._renew(line)
        self._thread = threading.Thread(target=self._run, name="killick-lease", daemon=True)
        self._thread.start()

    def notify(self, keys: Collection[int]) -> None:
        """Tell the followers of these sessions that something was committed. Does not wait."""
        with self._mutex:
            self._notices.update(keys)
        self._wake.set()

    def release(self) -> None:
        """Give the lease back; if the server cannot be reached, it runs out."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        renewed = time.monotonic()
        due, lost = renewed + self._seconds / 3, False
        while not self._closed and self._refused is None:
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()
            renewing = time.monotonic() >= due
            try:
                self._work(renewing=renewing)
            except (psycopg.Error, KillickError):
                self._drop()
                if renewing:
                    due = time.monotonic() + min(_RETRY_SECONDS, self._seconds / 3)
                if not lost and time.monotonic() - renewed > self._seconds:
                    lost = True
                    log(logging.WARNING, "lease lost", holder=self._holder)
                continue
            if renewing:
                renewed, lost = time.monotonic(), False
                due = renewed + self._seconds / 3
        self._end()

    def _work(self, *, renewing: bool) -> None:
        with self._mutex:
            notices, self._notices = self._notices, set()
        if not renewing and not notices:
            return
        if self._line is None or self._line.broken:
            self._line = self._connect()
            # In time for another try before the lease has run out.
            connection = self._line.connection
            connection.answer_seconds = min(connection.answer_seconds, self._seconds / 3)
        if renewing:
            self._renew(self._line)
        if notices and not self._closed:
            channels = [channel(self._address.schema, key) for key in notices]
            run(self._line.connection, self._sql.notify, {"channels": channels})
            time.sleep(_GATHER_SECONDS)

    def _renew(self, line: Link) -> None:
        lease = {"holder": self._holder, "seconds": self._seconds}
        row = run(line.connection, self._sql.renew, lease).fetchone()
        assert row is not None
        oldest, version = row
        try:
            check_allowed(oldest, version, self._address.shown)
        except StoreNewer as newer:
            self._refused = str(newer)
            raise

    def check(self) -> None:
        """Raises StoreNewer: a newer version has since changed what this one cannot use."""
        if self._refused is not None:
            raise StoreNewer(self._refused)

    def _end(self) -> None:
        try:
            if self._line is None or self._line.broken:
                self._line = self._connect()
            run(self._line.connection, self._sql.release, {"holder": self._holder})
        except (psycopg.Error, KillickError):
            pass  # it runs out
        self._drop()

    def _drop(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


def channel(schema: str, key: int) -> str:
    """Return the channel that announces changes of one session; at most 63 bytes."""
    tenant, session = split(key)
    return f"hf_{schema[:24]}_{tenant:x}_{session:x}"
