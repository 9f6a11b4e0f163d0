"""A connection that does not wait for ever: who says nothing for too long is hung up on.

TCP notices a machine that is gone. It does not notice a server that accepts and is silent: its
processes are frozen, its disk hangs, or something in between swallows what it says.
"""

import contextlib
import os
import socket
import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

from holdfast.model.limits import ANSWER_SECONDS

T = TypeVar("T")


class Silent(psycopg.OperationalError):
    """The server has said nothing for as long as it may; the connection is closed."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """One whose server must say something in time, while somebody waits for it."""

    answer_seconds: float = ANSWER_SECONDS
    """For how long it may be silent."""

    unhurried = False
    """Whether what it was asked takes as long as it takes."""

    _hung_up = False

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
