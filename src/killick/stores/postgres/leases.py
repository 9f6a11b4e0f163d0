"""The lease of one opening: a thread renews it, and tells other processes of commits.

It has a connection of its own, and on it the lock that says that this process lives, unless a
pooler is in between. When that connection is lost, the lock is free until it is taken again on the
next one: so the thread sleeps where it hears of the loss, and connects again at once. The lease is
renewed with it, by which others see that the loss was no death.

A notice is best effort: it is sent after the commit, for many commits at once, and never inside of
a transaction that writes, where it would take a lock on the whole database. A process that misses
one finds the change by polling.
"""

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Final

import psycopg

from killick.errors import KillickError, StoreNewer
from killick.stores.log import log
from killick.stores.postgres.connection import Address, Link, run, run_alone
from killick.stores.postgres.migrate import check_allowed
from killick.stores.postgres.statements import PostgresQueries, split

_RETRY_SECONDS: Final = (0.05, 1.0)
"""Until a lost connection is tried again: while the lease lasts, and after it."""

_CALLS: Final = 4096
_GATHER_SECONDS: Final = 0.005
"""Between two notices: what is committed meanwhile goes in one."""


class Ear:
    """A thread's place to sleep: until its server sends something, or a caller wakes it.

    Raises OSError if the process has no file descriptor left.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._inner, self._outer = socket.socketpair()
        for end in (self._inner, self._outer):
            end.settimeout(0)
        self._selector.register(self._inner, selectors.EVENT_READ)
        self._line: int | None = None
        self._called = False

    def call(self) -> None:
        """Wake the thread. Does not wait."""
        if not self._called:
            self._called = True
            with contextlib.suppress(OSError):  # it has ended
                self._outer.send(b"!")

    def turn_to(self, line: Link | None) -> None:
        """Listen to this connection from now on, and to no other."""
        if self._line is not None:
            self._selector.unregister(self._line)
        self._line = None if line is None else line.connection.fileno()
        if self._line is not None:
            self._selector.register(self._line, selectors.EVENT_READ)

    def wait(self, seconds: float, *, gather_seconds: float = 0.0) -> bool:
        """Sleep; return whether the server has sent something, or has hung up."""
        ready = [key.fileobj for key, _ in self._selector.select(max(0.0, seconds))]
        if self._inner in ready:
            time.sleep(gather_seconds)
            self._inner.recv(_CALLS)
            self._called = False  # and what was wanted before this is found now
            ready.remove(self._inner)
        return bool(ready)

    def close(self) -> None:
        for end in (self._selector, self._inner, self._outer):
            end.close()


class Lease:
    """Keeps one holder's right to run turns, for as long as the server can be reached."""

    def __init__(
        self,
        connect: Callable[[], Link],
        sql: PostgresQueries,
        address: Address,
        holder: str,
        seconds: float,
        tenant: int | None = None,
    ) -> None:
        self._connect = connect
        self._tenant = tenant
        self._sql = sql
        self._address = address
        self._refused: str | None = None
        self._holder = holder
        self._seconds = seconds
        self._line: Link | None = None
        self._ear: Ear
        self._notices: deque[int] = deque()
        self._closed = False
        self._thread: threading.Thread | None = None

    def take(self, line: Link) -> None:
        """Take the lock and the lease, and start the thread.

        Where no connection is left for the lock, the lease is taken on the one that is there
        anyway, and counts alone until the thread has got one.
        """
        run_alone(line, self._sql.forget_holders)
        self._ear = Ear()
        try:
            self._take(line)
        except BaseException:
            self._drop()
            self._ear.close()
            raise
        self._thread = threading.Thread(target=self._run, name="killick-lease", daemon=True)
        self._thread.start()

    def _take(self, line: Link) -> None:
        try:
            self._renew(self._open())
        except psycopg.Error:
            self._drop()
            self._renew(line)

    def notify(self, keys: Collection[int]) -> None:
        """Tell the followers of these sessions that something was committed. Does not wait."""
        if self._thread is None:
            return  # it was a standby when it was opened: others find out by polling
        self._notices.extend(keys)
        self._ear.call()

    def release(self) -> None:
        """Give the lease back; if the server cannot be reached, it runs out."""
        self._closed = True
        if self._thread is not None:
            self._ear.call()
            self._thread.join(5)

    def _run(self) -> None:
        renewed = time.monotonic()
        due, lost = renewed + self._seconds / 3, False
        while not self._closed and self._refused is None:
            heard = self._ear.wait(due - time.monotonic())
            # Between two statements a server speaks only to say that it ends the connection, or of
            # a setting that has changed: the next statement tells.
            renewing = heard or time.monotonic() >= due
            try:
                self._work(renewing=renewing)
            except (psycopg.Error, KillickError):
                self._drop()
                over = time.monotonic() - renewed > self._seconds
                due = time.monotonic() + min(_RETRY_SECONDS[over], self._seconds / 3)
                if not lost and over:
                    lost = True
                    log(logging.WARNING, "lease lost", holder=self._holder)
                continue
            if renewing:
                renewed, lost = time.monotonic(), False
                due = renewed + self._seconds / 3
        self._end()

    def _work(self, *, renewing: bool) -> None:
        notices = {self._notices.popleft() for _ in range(len(self._notices))}
        if not renewing and not notices:
            return
        line = self._line
        if line is None or line.broken:
            line, renewing = self._open(), True
        if renewing:
            self._renew(line)
        if notices and not self._closed:
            channels = [channel(self._address.schema, key) for key in notices]
            run(line.connection, self._sql.notify, {"channels": channels})
            time.sleep(_GATHER_SECONDS)

    def _open(self) -> Link:
        """Connect, and take the lock. If interrupted: the lock is free, or this connection's."""
        self._drop()
        line = self._line = self._connect()
        # In time for another try before the lease has run out.
        connection = line.connection
        connection.answer_seconds = min(connection.answer_seconds, self._seconds / 3)
        self._ear.turn_to(line)
        if not line.pooled:
            run(connection, self._sql.lock_holder, {"holder": self._holder})
        return line

    def _renew(self, line: Link) -> None:
        """Renew the lease, and say whether it has a lock. If interrupted: both or neither."""
        locked = line is self._line and not line.pooled
        lease = {
            "holder": self._holder,
            "seconds": self._seconds,
            "locked": locked,
            "tenant": self._tenant,
        }
        row = run_alone(line, self._sql.renew, lease).fetchone()
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
            line = self._line
            if line is None or line.broken:
                line = self._line = self._connect()
            run_alone(line, self._sql.release, {"holder": self._holder})
        except (psycopg.Error, KillickError):
            pass  # it runs out
        self._drop()
        self._ear.close()

    def _drop(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            self._ear.turn_to(None)
            line.close()


def channel(schema: str, key: int) -> str:
    """Return the channel that announces changes of one session; at most 63 bytes."""
    tenant, session = split(key)
    return f"hf_{schema[:24]}_{tenant:x}_{session:x}"
