"""Files that an operator makes as root in the folder of a service, whose user must use them."""

import contextlib
import os
from pathlib import Path


def open_or_make(path: Path, like: Path) -> int:
    """Open a file of this process's user alone; a new one of root's belongs to `like`'s owner."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        made = os.open(path, flags | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags, 0o600)
    give(made, like)
    return made


def give(made: int, like: Path) -> None:
    """Give a file that this process has just made to the owner of another, or of its folder.

    By its descriptor: a name could lead elsewhere by now. Where that cannot be done, it stays ours.
    """
    if os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):
        owner = like.stat() if like.exists() else like.parent.stat()
        os.fchown(made, owner.st_uid, owner.st_gid)
