"""A connection that does not wait for ever: who says nothing for too long is hung up on.

TCP notices a machine that is gone. It does not notice a server that accepts and is silent: its
processes are frozen, its disk hangs, or something in between swallows what it says.
"""

import contextlib
import os
import socket
import time
from collections.abc import Generator, Iterator
from typing import Any, Final, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo

from killick.model.limits import ANSWER_SECONDS

T = TypeVar("T")

_STATE: Final = "SELECT 1 FROM pg_stat_activity WHERE pid = %(pid)s AND state NOT LIKE 'idle%%'"


class Silent(psycopg.OperationalError):
    """The server has said nothing for as long as it may; the connection is closed."""


class _Pipeline(psycopg.Pipeline):
    """Ends with a Sync and nothing after it.

    psycopg sends a Flush behind it. A server that reads that after it was done takes its client to
    be at work, and never ends the transaction of one that was frozen.
    """

    def _exit_gen(self) -> Generator[Any, Any, None]:
        try:
            self._enqueue_sync()
            yield from self._communicate_gen()
        finally:
            yield from self._fetch_gen(flush=False)


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """One whose server must say something in time, while somebody waits for it."""

    answer_seconds: float = ANSWER_SECONDS
    """For how long it may be silent."""

    unhurried = False
    """Whether what it was asked takes as long as it takes, while the server is at it."""

    conninfo = ""
    server_pid: int | None = None
    """The server's process behind it; None if a pooler gives each transaction to another."""

    _hung_up = False

    @contextlib.contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        """Statements that go together; ours are never nested."""
        assert self._pipeline is None
        self._pipeline = _Pipeline(self)
        try:
            with self._pipeline as entered:
                yield entered
        finally:
            self._pipeline = None

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Every wait of psycopg's comes here, whatever it is for."""
        seconds = self.answer_seconds
        try:
            return super().wait(self._listening(gen, seconds), *args, **kwargs)
        except psycopg.OperationalError as error:
            if not self._hung_up:
                raise
            self.close()
            raise Silent(f"the server has not answered for {seconds:g} s") from error

    def _listening(self, gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
        """Passes on what the wait is about, and looks at the clock when nothing came."""
        heard = time.monotonic()
        at_work = True
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() - heard > seconds:
                    # What it was done with a moment ago may be on its way: that is seen twice.
                    was_at_work, at_work = at_work, self.unhurried and self._is_at_work()
                    if not (self.unhurried and (at_work or was_at_work)):
                        self._hang_up()
                    heard = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as done:
            value: T = done.value
            return value

    def _is_at_work(self) -> bool:
        """Ask the same server, on another connection, whether it is at work on this one."""
        info = self.info
        there: dict[str, Any] = {"host": info.host, "hostaddr": info.hostaddr, "port": info.port}
        there = {name: value for name, value in there.items() if value}
        try:
            address = make_conninfo(self.conninfo, **{**there, "target_session_attrs": "any"})
            with Connection.connect(address, autocommit=True) as another:
                another.answer_seconds = self.answer_seconds
                found = another.execute(_STATE, {"pid": self.server_pid}).fetchone()
        except (psycopg.Error, OSError):
            return False
        return self.server_pid is None or found is not None

    def _hang_up(self) -> None:
        """End it as the network would: libpq finds the end of the connection by itself."""
        if self._hung_up:
            return
        self._hung_up = True
        with (
            contextlib.suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(self.fileno())) as end,
        ):
            end.shutdown(socket.SHUT_RDWR)
