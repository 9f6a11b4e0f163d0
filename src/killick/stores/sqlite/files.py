"""Where a store's file lies, and whether SQLite can be trusted there.

Beside `work.db` lie `work.db-wal` and `work.db-shm` (SQLite's own), `work.db-lock` (ours) and,
after a migration, `work.db-backup-N`. Never copy the file alone while it is open: SQLite's online
backup makes a whole copy.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EPERM, EROFS
from pathlib import Path
from typing import Final

from killick.errors import (
    StoreDegraded,
    StoreError,
    StoreNotOurs,
    StoreOnNetwork,
    StoreReadOnly,
    StoreReplaced,
)

_NETWORK: Final = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "smb2",
        "9p",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "ncpfs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.gcsfuse",
        "beegfs",
    ]
)

Inode = tuple[int, int]


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Say of what the system refuses which file it was, and what to do."""
    try:
        yield
    except OSError as error:
        said = f"cannot open {path}: {error.strerror} ({error.filename})"
        if error.errno in (EACCES, EPERM, EROFS):
            raise StoreReadOnly(
                f"{said}; whoever writes to a store writes to the files beside it: change its "
                "permissions, or name another file"
            ) from error
        raise StoreError(said) from error


def prepare(path: Path, *, network: bool) -> Path:
    """The real path of the store's file, made with mode 0600 if it is not there yet."""
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise StoreError(f"the folder {path.parent} does not exist; make it first")
    if path.is_dir():
        raise StoreNotOurs(f"{path} is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise StoreNotOurs(f"{path} is a device or a pipe; name a file")
    if not network:
        refuse_network(path)
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    if path.stat().st_nlink > 1:  # each name has a log of its own: what is in one is not in another
        raise StoreError(
            f"{path} has a second name, a hard link, and what is written under one would be lost "
            "under the other; remove one of the names, or use a symbolic link"
        )
    return path


def refuse_network(path: Path, mounts: str | None = None) -> None:
    """SQLite's locks do not hold across hosts: a store there is corrupted, sooner or later."""
    kind = file_system(path, _read_mounts() if mounts is None else mounts)
    if kind in _NETWORK:
        raise StoreOnNetwork(
            f"{path} lies on a network file system ({kind}), where SQLite's locks cannot be "
            "trusted; use a local disk, or pass network=True if only one host ever opens it"
        )


def file_system(path: Path, mounts: str) -> str | None:
    """The type of the file system that a path lies on, from the text of mountinfo."""
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


def check_same(path: str, opened: Inode) -> None:
    """Notice that the file was replaced or deleted under an open store."""
    try:
        now = os.stat(path)  # noqa: PTH116  (on the way of every write: a Path costs twice)
    except FileNotFoundError:
        raise StoreReplaced(
            f"{path} was deleted while it was open; nothing more is written to it"
        ) from None
    except OSError as error:
        raise StoreDegraded(f"{path} cannot be reached: {error.strerror}; try again") from error
    if (now.st_dev, now.st_ino) != opened:
        raise StoreReplaced(
            f"{path} was replaced by another file while it was open; close this store and open "
            "the new one"
        )


def change_mark(path: Path) -> int:
    """A number that moves when the store was written to, for those who may not open it to ask."""
    marks: list[tuple[int, int] | None] = []
    for file in (path, Path(f"{path}-wal")):
        try:
            found = file.stat()
        except FileNotFoundError:
            marks.append(None)
        else:
            marks.append((found.st_mtime_ns, found.st_size))
    return hash(tuple(marks))


def has_log(path: Path) -> bool:
    """Whether the last to close the store has left SQLite's log behind."""
    try:
        return Path(f"{path}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _read_mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
