"""Opening a connection the one way we do, and SQLite's errors in our words."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

import apsw

from killick.errors import (
    KillickError,
    SqliteTooOld,
    StoreBusy,
    StoreDegraded,
    StoreError,
    StoreNotOurs,
    StoreReadOnly,
)

Durability = Literal["full", "normal"]

_SQLITE_OLDEST: Final = 3_051_003
"""Older ones, back to 3.7.0, can corrupt a WAL database that two connections write to."""

_CHECKPOINT_PAGES: Final = 4_000

_FORK_WAIT_SECONDS: Final = 5.0


def check_library(version: int | None = None) -> None:
    """Refuse a SQLite with the WAL-reset bug."""
    found = apsw.SQLITE_VERSION_NUMBER if version is None else version
    if found < _SQLITE_OLDEST:
        raise SqliteTooOld(
            f"SQLite {found} can corrupt a store that several connections write to; "
            "install apsw 3.51.3 or newer"
        )


def connect(
    path: Path, *, durability: Durability, wait_seconds: float, writable: bool
) -> apsw.Connection:
    """A connection with our settings. `writable` is for the writer; readers may only read."""
    connection = _open_file(path)
    connection.set_busy_timeout(int(wait_seconds * 1000))
    connection.pragma("trusted_schema", 0)
    connection.pragma("mmap_size", 0)
    if not writable:
        connection.pragma("query_only", 1)
        return connection
    connection.pragma("synchronous", durability.upper())
    # Four times SQLite's default: pages that change often are then copied back less often.
    connection.wal_autocheckpoint(_CHECKPOINT_PAGES)
    if sys.platform == "darwin" and durability == "full":
        connection.pragma("fullfsync", 1)
        connection.pragma("checkpoint_fullfsync", 1)
    return connection


def _open_file(path: Path) -> apsw.Connection:
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    if Path(f"{path}-wal").exists():
        return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    # Without a log nothing is outstanding, and nobody who could write one is expected here:
    # SQLite need not make the files beside the store, which it may not.
    address = f"file:{quote(str(path))}?immutable=1"
    return apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise SQLite's errors as ours, with the original as the cause."""
    try:
        yield
    except KillickError:
        raise
    except apsw.Error as error:
        raise in_our_words(error, what) from error


def in_our_words(error: apsw.Error, what: str) -> StoreError:
    """The error of ours that says what to do about one of SQLite's."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(
                f"{what}: the database is locked by another program that opened the file without "
                f"Killick ({error}); close it, then try again"
            )
        case apsw.FullError():
            return StoreDegraded(f"{what}: the disk is full; make room, then try again")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            return StoreReadOnly(f"{what}: the store may not be written ({error})")
        case apsw.CantOpenError():
            return StoreDegraded(
                f"{what}: {error}; the file, or one beside it, may not be read by this user, or "
                "this process has too many files open"
            )
        case apsw.NotADBError():
            return StoreNotOurs(f"{what}: the file is not a SQLite database")
        case apsw.CorruptError():
            return StoreDegraded(f"{what}: a page of the database is damaged ({error})")
        case _:
            return StoreDegraded(f"{what}: {error}; nothing was acknowledged, try again")


class Gate:
    """Lets fork() happen only while no thread is inside SQLite.

    A child that was forked while another thread held one of SQLite's own mutexes would wait for it
    for ever, because that thread does not exist there.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._inside = 0
        self._visitors: set[int] = set()
        self._shut = False

    def enter(self) -> None:
        """For the writer's thread, which nothing interrupts."""
        with self._mutex:
            while self._shut:
                self._changed.wait()
            self._inside += 1

    def leave(self) -> None:
        with self._mutex:
            self._inside -= 1
            if self._shut:
                self._changed.notify_all()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """The same on a thread that may be interrupted anywhere, so nothing is counted.

        Who was interrupted on the way in or out, and is still taken for inside, is not after the
        next time, nor when it is this thread that forks.
        """
        thread = threading.get_ident()
        self._come_in(thread)
        try:
            yield
        finally:
            self._go_out(thread)

    def _come_in(self, thread: int) -> None:
        with self._mutex:
            while self._shut:
                self._changed.wait()
            self._visitors.add(thread)

    def _go_out(self, thread: int) -> None:
        with self._mutex:
            self._visitors.discard(thread)
            if self._shut:
                self._changed.notify_all()

    def shut(self) -> None:
        with self._changed:
            self._shut = True
            self._visitors.discard(threading.get_ident())
            self._changed.wait_for(self._is_empty, timeout=_FORK_WAIT_SECONDS)

    def _is_empty(self) -> bool:
        return not self._inside and not self._visitors

    def open(self) -> None:
        with self._changed:
            self._shut = False
            self._changed.notify_all()

    def reset(self) -> None:
        """In the child: nobody else is there."""
        self.__init__()  # type: ignore[misc]


gate: Final = Gate()
