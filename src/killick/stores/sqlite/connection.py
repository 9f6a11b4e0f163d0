"""Open a file and a connection the one way we do; translate SQLite's errors into ours."""

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EPERM, EROFS
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

import apsw

from killick.errors import (
    SqliteTooOld,
    StoreBusy,
    StoreDegraded,
    StoreError,
    StoreNotOurs,
    StoreOnNetwork,
    StoreReadOnly,
)
from killick.stores.owner import open_or_make

Durability = Literal["full", "normal"]

_SQLITE_OLDEST: Final = 3_051_003
"""Older ones, back to 3.7.0, can corrupt a WAL database that two connections write to."""

_CHECKPOINT_PAGES: Final = 4_000

_FORK_WAIT_SECONDS: Final = 5.0

LOG_BYTES: Final = 64 * 1024 * 1024
"""The log's file is cut to this when it begins anew: a slow reader may have let it grow."""


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
        """Enter on the writer thread, which nothing interrupts."""
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
        """Enter on a thread that may be interrupted anywhere, so it is named, not counted.

        A thread that was interrupted on its way in or out, and is still taken for inside, is not
        after its next visit, nor when it is the thread that forks.
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
        """Begin anew in the child, which has no other threads."""
        self.__init__()  # type: ignore[misc]


gate: Final = Gate()


def check_library(version: int | None = None) -> None:
    """Refuse a SQLite with the WAL-reset bug."""
    actual = apsw.SQLITE_VERSION_NUMBER if version is None else version
    if actual < _SQLITE_OLDEST:
        raise SqliteTooOld(
            f"SQLite {actual} can corrupt a store that several connections write to; "
            "install apsw 3.51.3 or newer"
        )


def connect(
    path: Path, *, durability: Durability, wait_seconds: float, writable: bool
) -> apsw.Connection:
    """Return a connection with our settings; only the writer's is `writable`."""
    connection = _open_file(path)
    connection.set_busy_timeout(int(wait_seconds * 1000))
    connection.pragma("trusted_schema", 0)
    connection.pragma("mmap_size", 0)
    if not writable:
        connection.pragma("query_only", 1)
        return connection
    connection.pragma("synchronous", durability.upper())
    connection.pragma("secure_delete", 1)  # deleted rows and freed pages are zero at once
    # Four times SQLite's default: pages that change often are then copied back less often.
    connection.wal_autocheckpoint(_CHECKPOINT_PAGES)
    connection.pragma("journal_size_limit", LOG_BYTES)
    if sys.platform == "darwin" and durability == "full":
        connection.pragma("fullfsync", 1)
        connection.pragma("checkpoint_fullfsync", 1)
    return connection


def _open_file(path: Path) -> apsw.Connection:
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    if Path(f"{path}-wal").exists():
        return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    # Without a log nothing is outstanding, and no process that could write one is expected here:
    # SQLite need not make the files beside the store, which it may not.
    address = f"file:{quote(str(path))}?immutable=1"
    return apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def translate_error(error: apsw.Error, what: str) -> StoreError:
    """Return the error of ours that says what to do about one of SQLite's."""
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


_NETWORK: Final = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "smb2", "9p", "afs", "ceph", "glusterfs"),
        *("lustre", "ncpfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone"),
        *("fuse.gcsfuse", "beegfs"),
    )
)

Inode = tuple[int, int]


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Raise what the system refuses as our error, with the file and what to do."""
    try:
        yield
    except OSError as error:
        message = f"cannot open {path}: {error.strerror} ({error.filename})"
        if error.errno in (EACCES, EPERM, EROFS):
            raise StoreReadOnly(
                f"{message}; writing to a store writes to the files beside it: change its "
                "permissions, or name another file"
            ) from error
        raise StoreError(message) from error


def prepare(path: Path, *, network: bool) -> Path:
    """Return the real path of the store's file, made with mode 0600 if it is not there yet."""
    path = check_name(path, network=network)
    if not path.exists():
        os.close(open_or_make(path, path.parent))
    return path


def check_name(path: Path, *, network: bool) -> Path:
    """Return the real path of the store's file. Raises StoreError if no store may lie there."""
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise StoreError(f"the folder {path.parent} does not exist; make it first")
    if path.is_dir():
        raise StoreNotOurs(f"{path} is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise StoreNotOurs(f"{path} is a device or a pipe; name a file")
    if not network:
        refuse_network(path)
    if (
        path.exists() and path.stat().st_nlink > 1
    ):  # each name has a log of its own: what is in one is not in another
        raise StoreError(
            f"{path} has a second name, a hard link, and what is written under one would be lost "
            "under the other; remove one of the names, or use a symbolic link"
        )
    return path


def refuse_network(path: Path, mounts: str | None = None) -> None:
    """Raise StoreOnNetwork: SQLite's locks do not hold across hosts and corrupt a store there."""
    kind = file_system(path, _read_mounts() if mounts is None else mounts)
    if kind in _NETWORK:
        raise StoreOnNetwork(
            f"{path} lies on a network file system ({kind}), where SQLite's locks cannot be "
            "trusted; use a local disk, or pass network=True if only one host ever opens it"
        )


def file_system(path: Path, mounts: str) -> str | None:
    """Return the type of the file system that a path lies on, from the text of mountinfo."""
    best, kind = -1, None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        inside = str(path) == point or str(path).startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), right.split()[0]
    return kind


def inode(path: Path) -> Inode:
    status = path.stat()
    return status.st_dev, status.st_ino


def change_mark(path: Path) -> int:
    """Return a number that moves when the store was written to, without opening it."""
    marks: list[tuple[int, int] | None] = []
    for file in (path, Path(f"{path}-wal")):
        try:
            status = file.stat()
        except FileNotFoundError:
            marks.append(None)
        else:
            marks.append((status.st_mtime_ns, status.st_size))
    return hash(tuple(marks))


def is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _read_mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
