"""Open a file and a connection the one way we do; translate SQLite's errors into ours."""

import os
import re
import sys
import threading
import time
import weakref
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
_FORK_LOOK_SECONDS: Final = 0.0005
"""How long fork() waits for threads inside SQLite; how long between two looks of who waits."""

LOG_BYTES: Final = 64 * 1024 * 1024
"""The log's file is cut to this when it begins anew: a slow reader may have let it grow."""


class Visit:
    """Stands for a thread that is inside SQLite, for as long as anything refers to it."""

    __slots__ = ("__weakref__", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_ident()


class Gate:
    """Lets fork() happen only while no thread is inside SQLite.

    A child that was forked while another thread held one of SQLite's own mutexes would wait for it
    for ever, because that thread does not exist there.

    No thread holds a lock here: a signal handler may write on a thread that it has interrupted at
    the gate, and would wait for the writer's thread, and that one for the lock. A visit ends when
    it is dropped, so one that is interrupted on its way in or out ends as well.
    """

    def __init__(self) -> None:
        self._visits: set[weakref.ref[Visit]] = set()
        self._shut = False

    def enter(self) -> Visit:
        """Come in; the visit lasts until the caller drops what is returned."""
        visit = Visit()
        reference = weakref.ref(visit, self._visits.discard)
        self._visits.add(reference)
        while self._shut and not self._is_inside(visit.thread, but=reference):
            self._visits.discard(reference)
            time.sleep(_FORK_LOOK_SECONDS)
            self._visits.add(reference)
        return visit

    @contextmanager
    def __call__(self) -> Iterator[None]:
        visit = self.enter()
        try:
            yield
        finally:
            del visit  # the frame may be kept by a traceback

    def shut(self) -> None:
        """Keep others out, and wait for those that are inside; not for the thread that forks."""
        self._shut = True
        deadline = time.monotonic() + _FORK_WAIT_SECONDS
        while self._is_inside() and time.monotonic() < deadline:
            time.sleep(_FORK_LOOK_SECONDS)

    def _is_inside(
        self, thread: int | None = None, *, but: "weakref.ref[Visit] | None" = None
    ) -> bool:
        """Return whether this thread is inside, or any but the one that asks."""
        visits = (reference() for reference in self._visits.copy() if reference is not but)
        inside = {visit.thread for visit in visits if visit is not None}
        return bool(inside - {threading.get_ident()}) if thread is None else thread in inside

    def open(self) -> None:
        self._shut = False

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
