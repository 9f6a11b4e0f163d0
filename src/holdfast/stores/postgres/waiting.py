"""A connection that does not wait for ever: who says nothing for too long is hung up on.

TCP notices a machine that is gone. It does not notice a server that accepts and is silent: its
processes are frozen, its disk hangs, or something in between swallows what it says.
"""

import contextlib
import os
import socket
import time
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import psycopg

from holdfast.model.limits import ANSWER_SECONDS

T = TypeVar("T")


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
    """Whether what it was asked takes as long as it takes."""

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
        if self.unhurried:
            return super().wait(gen, *args, **kwargs)
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
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() - heard > seconds:
                    self._hang_up()
                wanted = gen.send(ready)
        except StopIteration as done:
            value: T = done.value
            return value

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
