"""A few connections for readers, opened when they are needed and kept while they are sound.

A pool of our own: it has no threads, so there is nothing to be lost in a fork, and a reader that
opens a connection gets the error that came of it.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

import psycopg

from killick.errors import StoreBusy
from killick.stores.postgres.connection import Link, Silent, refuses_encryption, set_tenant

_KEPT: Final = 4
_MOST: Final = 16

T = TypeVar("T")


class Pool:
    """Lends connections that are inside of a read transaction."""

    def __init__(self, connect: Callable[[], Link], wait_seconds: float) -> None:
        self._connect = connect
        self._wait_seconds = wait_seconds
        self._idle: list[Link] = []
        self._free: SimpleQueue[None] = SimpleQueue()  # a signal handler may read, inside too
        for _ in range(_MOST):
            self._free.put(None)
        self._closed = False

    @contextmanager
    def reading(self) -> Iterator[Link]:
        """Lend a connection that sees one consistent moment."""
        with self._slot():
            line, _ = self._answering(_begin)
            try:
                yield line
            finally:
                self._give_back(line)

    def ask(self, question: Callable[[Link], T]) -> T:
        """Ask something so small that it needs no transaction; perhaps more than once."""
        with self._slot():
            line, answer = self._answering(question)
            self._keep(line)
            return answer

    @contextmanager
    def _slot(self) -> Iterator[None]:
        try:
            self._free.get(timeout=self._wait_seconds)
        except Empty:
            raise StoreBusy(
                f"waited {self._wait_seconds:g} s for one of {_MOST} connections that read"
            ) from None
        try:
            yield
        finally:
            self._free.put(None)

    def _answering(self, question: Callable[[Link], T]) -> tuple[Link, T]:
        """Return a connection and its answer. A kept connection may be gone; a new one is not."""
        while True:
            try:
                line, kept = self._idle.pop(), True
            except IndexError:
                line, kept = self._connect(), False
            try:
                return line, question(line)
            except Silent:
                self._drop_idle()  # the others would be as silent, one after the other
                raise
            except psycopg.Error:
                line.close()
                if not kept:
                    raise
            except BaseException:
                line.close()
                raise

    def _give_back(self, line: Link) -> None:
        # A read transaction has nothing to keep, so ending it is always a rollback.
        line.connection.unhurried = False
        try:
            line.connection.execute("ROLLBACK")
        except psycopg.Error:
            line.close()
            return
        except BaseException:
            line.close()
            raise
        self._keep(line)

    def _keep(self, line: Link) -> None:
        if len(self._idle) >= _KEPT:
            line.close()
            return
        self._idle.append(line)
        if self._closed:
            self._drop_idle()

    def close(self) -> None:
        self._closed = True
        self._drop_idle()

    def _drop_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()


def _begin(line: Link) -> None:
    line.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    set_tenant(line)


def patiently(connect: Callable[[], Link], seconds: float) -> Link:
    """Try to connect again and again: a server that restarts, or is replaced, takes a moment.

    Raises the last error when the time is over, and at once what waiting does not mend.
    """
    deadline = time.monotonic() + seconds
    pause = 0.05
    while True:
        try:
            return connect()
        except psycopg.OperationalError as error:
            if not _may_pass(error) or time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 0.5)


def _may_pass(error: psycopg.OperationalError) -> bool:
    """Return whether waiting may help: a wrong password, user or certificate stays wrong."""
    state, message = error.sqlstate or "", str(error)
    if refuses_encryption(error):
        return False
    return not (state[:2] in ("28", "3D") or "password" in message or "does not exist" in message)
