"""The thread that listens to the server's notices, while callers here wait for some sessions.

It sleeps until the server sends something or a caller wakes it. Once in half a minute it asks the
writers of followed sessions to go on sending notices.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import psycopg

from killick.errors import KillickError
from killick.stores.contract import Pace
from killick.stores.postgres.connection import Link, run, run_alone
from killick.stores.postgres.leases import Ear, channel
from killick.stores.postgres.pool import Pool
from killick.stores.postgres.statements import PostgresQueries, columns, of, split

_ASKED_SECONDS: Final = 60.0
"""For how long the writers of a session are asked to send notices; asked again at half of it."""

_GATHER_SECONDS: Final = 0.010
"""Turns come and go: all that begin or end within this time are one change of the channels."""

_BUSY_SECONDS: Final = (0.005, 0.5)
"""Until a session whose row is being written is asked for again: at first, and at most."""

_RETRY_SECONDS: Final = (0.05, 5.0)
"""Until a connection that was lost is opened again: at first, and at most."""


class Wanted(NamedTuple):
    """The sessions whose notices are wanted, and those of them whose writers must be asked."""

    keys: frozenset[int]
    followed: frozenset[int]


class Listener:
    """One thread and one connection, from the first waiting caller until none is left.

    Raises OSError if the process has no file descriptor left.
    """

    def __init__(
        self,
        connect: Callable[[], Link],
        sql: PostgresQueries,
        schema: str,
        *,
        wanted: Callable[["Listener"], Wanted | None],
        notice: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._sql = sql
        self._schema = schema
        self._wanted = wanted
        self._notice = notice
        self._line: Link | None = None
        self._heard: frozenset[int] = frozenset()
        self._asked: frozenset[int] = frozenset()
        self._asked_at = 0.0
        self._busy, self._retry = _BUSY_SECONDS[0], _RETRY_SECONDS[0]
        self._announced = False
        self.deaf = False
        """Whether nothing will ever be heard: a pooler is in between."""
        self._ear = Ear()
        self._thread = threading.Thread(target=self._run, name="killick-listener", daemon=True)
        self._thread.start()

    def serves(self, wanted: Wanted) -> bool:
        """Return whether the server announces all of this, as far as is known here."""
        recently = time.monotonic() - self._asked_at < _ASKED_SECONDS
        asked = wanted.followed <= self._asked and (recently or not wanted.followed)
        return wanted.keys <= self._heard and asked

    def call(self) -> None:
        """Make the thread look at what is wanted. Does not wait."""
        self._ear.call()

    def join(self, seconds: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (wanted := self._wanted(self)) is not None:
                self._round(wanted)
        finally:
            self._drop()
            self._ear.close()

    def _round(self, wanted: Wanted) -> None:
        try:
            self._hear(self._prepare(wanted))
            self._retry = _RETRY_SECONDS[0]
        except (psycopg.Error, KillickError, OSError):
            self._drop()
            self._notice()  # from now on nothing is announced: callers must poll
            self._wait(self._retry)
            self._retry = min(self._retry * 2, _RETRY_SECONDS[1])

    def _prepare(self, wanted: Wanted) -> float:
        """Listen to what is wanted; return for how long nothing else is to be done."""
        if self._line is None:
            self._open()
        assert self._line is not None
        if self.deaf:
            return 0.0
        served = self.serves(wanted)
        self._tune(self._line, wanted.keys)
        if wanted.followed == self._asked and self._left() > 0:
            seconds = self._left()
        elif self._ask(self._line, wanted.followed):
            self._asked, self._asked_at = wanted.followed, time.monotonic()
            self._busy, seconds = _BUSY_SECONDS[0], self._left()
        else:
            seconds = self._busy
            self._busy = min(self._busy * 2, _BUSY_SECONDS[1])
        if self._announced or (not served and self.serves(wanted)):
            self._announced = False
            self._notice()  # what came before is found by polling once more
        return seconds

    def _left(self) -> float:
        return self._asked_at + _ASKED_SECONDS / 2 - time.monotonic()

    def _open(self) -> None:
        self._line = self._connect()
        self.deaf = self._line.pooled
        self._line.connection.add_notify_handler(self._take)
        self._ear.turn_to(self._line)

    def _take(self, _notice: psycopg.Notify) -> None:
        self._announced = True

    def _tune(self, line: Link, keys: frozenset[int]) -> None:
        for key in self._heard - keys:
            run(line.connection, f'UNLISTEN "{channel(self._schema, key)}"')
        for key in keys - self._heard:
            run(line.connection, f'LISTEN "{channel(self._schema, key)}"')
        self._heard = keys

    def _ask(self, line: Link, followed: frozenset[int]) -> bool:
        """Ask their writers for notices; False when some rows were locked by a writer."""
        if not followed:
            return True
        asked = {**columns(sorted(followed)), "seconds": _ASKED_SECONDS}
        row = run(line.connection, self._sql.want_notice, asked).fetchone()
        assert row is not None
        return bool(row[0] == 0)

    def _hear(self, seconds: float) -> None:
        """Sleep until the server sends something or the time is over; pass on that it did."""
        if self._wait(seconds) and self._line is not None:
            server = self._line.connection.pgconn
            server.consume_input()
            while server.notifies() is not None:
                self._announced = True
                server.consume_input()
            if self._announced:
                self._announced = False
                self._notice()

    def _wait(self, seconds: float) -> bool:
        """Wait; return whether the server has sent something."""
        return self._ear.wait(seconds, gather_seconds=_GATHER_SECONDS)

    def _drop(self) -> None:
        line, self._line = self._line, None
        self._heard = self._asked = frozenset()
        if line is not None:
            self._ear.turn_to(None)
            with contextlib.suppress(psycopg.Error):
                line.close()


_POLLED: Final = Pace(busy=0.2, quiet=0.2, news=0.5)
_ANNOUNCED: Final = Pace(busy=0.2, quiet=1.0, news=0.5)
_FEW: Final = 4
_NOTHING: Final = Wanted(frozenset(), frozenset())


class Watching:
    """The change mark of one opening."""

    def __init__(
        self, pool: Pool, connect: Callable[[], Link], sql: PostgresQueries, schema: str
    ) -> None:
        self._pool = pool
        self._connect = connect
        self._sql = sql
        self._schema = schema
        self._wanted = _NOTHING
        self._mutex = threading.RLock()  # a signal handler may enter a turn on a thread inside
        self._listener: Listener | None = None
        self._deaf = False
        self._closed = False
        self._rows: dict[int, list[Any]] = {}
        self._told: dict[int, list[Any]] = {}

    def watch(
        self, followed: Collection[int], running: Collection[int], notice: Callable[[], None]
    ) -> None:
        with self._mutex:
            every = frozenset(followed) - {0}
            self._wanted = Wanted(every.union(running) - {0}, every)
            listener = self._listener
            # Nothing is done about what is not wanted any more: the next turn may want it again.
            if listener is not None and not listener.serves(self._wanted):
                listener.call()
            if listener is None and self._wanted.keys and not (self._deaf or self._closed):
                self._listen(notice)

    def _listen(self, notice: Callable[[], None]) -> None:
        # Without a free file descriptor, callers poll until one finds a descriptor again.
        with contextlib.suppress(OSError):
            self._listener = Listener(
                self._connect, self._sql, self._schema, wanted=self._still_wanted, notice=notice
            )

    def _still_wanted(self, listener: Listener) -> Wanted | None:
        with self._mutex:
            self._deaf = self._deaf or listener.deaf
            if self._wanted.keys and not (self._deaf or self._closed):
                return self._wanted
            self._listener = None
            return None

    def pace(self) -> Pace:
        listener = self._listener
        served = listener is not None and listener.serves(self._wanted)
        return _ANNOUNCED if served else _POLLED

    def mark(self) -> int:
        """Return a number that is another one when a watched session has changed."""
        keys = sorted(self._wanted.keys)
        if not keys:
            return 0
        rows = self._pool.ask(lambda line: self._ask(line, keys))
        self._rows = {number: marks for number, *marks in rows}
        return int.from_bytes(blake2b(repr(rows).encode(), digest_size=7).digest())

    def _ask(self, line: Link, keys: list[int]) -> list[Any]:
        if len(keys) > _FEW:
            return run_alone(line, self._sql.marks, columns(keys)).fetchall()
        cursors = [run_alone(line, self._sql.marks_of_one, of(key)) for key in keys]
        return [row for cursor in cursors for row in cursor.fetchall()]

    def changed(self, followed: Collection[int]) -> list[int]:
        """Return the sessions that had other marks when this was asked last."""
        before, self._told = self._told, self._rows
        numbers = ((key, split(key)[1]) for key in followed)
        return [
            key
            for key, number in numbers
            if number not in before or before[number] != self._rows.get(number)
        ]

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            listener = self._listener
        if listener is not None:
            listener.call()
            listener.join(5)
