"""Tell whether a log belongs to its file, and put a backup in a store's place.

SQLite finds a log by its name alone. A backup that is copied over a store that crashed lies beside
the log of the file before it, and SQLite mixes the two. So every store has a generation: a number
in its file's header (`user_version`, which nothing else here uses), new for each backup. The lock
file holds the generation of the file that was written last. The two are compared before SQLite
opens the file, from the file's bytes: SQLite would answer from the log.

A restored backup waits as `work.db-restoring` until it takes its place. That file is there from
one moment to the next, whole and checked; from then on the store is the restored one, and the
process that opens it next finishes what is left to do.
"""

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import apsw

from killick.errors import StoreReplaced

_HEADER: Final = 100
_MAGIC: Final = b"SQLite format 3\0"
_USER_VERSION: Final = slice(60, 64)
_LOGS: Final = ("-wal", "-journal")


def new_generation() -> int:
    """Return a number that no other file has; 0 is that of files from before there were any."""
    return secrets.randbelow(2**31 - 1) + 1


def read_generation(path: Path) -> int | None:
    """Return the generation in a file's header; None for an empty file, or no database.

    The file is read through SQLite's own layer: a process that opens and closes a database file in
    any other way gives up the locks that SQLite holds on it.
    """
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    opened = apsw.VFSFile("", str(path), flags)
    try:
        if opened.xFileSize() < _HEADER:
            return None
        header = opened.xRead(_HEADER, 0)
    finally:
        opened.xClose()
    if not header.startswith(_MAGIC):
        return None
    return int.from_bytes(header[_USER_VERSION], "big")


def check_log(path: Path, generation: int | None, written: int | None, *, alone: bool) -> None:
    """Refuse a file that took the place of the one `written` last, if its log is still there.

    `alone` is False if others have the store open; then they have the file before this one open.
    """
    if written is None or generation == written:
        return
    if has_log(path):
        raise StoreReplaced(
            f"{path} was replaced, and {path.name}-wal beside it is the log of the file before: "
            "opened together they would be mixed; move the log away and open the store again, or "
            "put a backup in place with 'killick restore-backup FILE', which keeps both"
        )
    if not alone:
        raise StoreReplaced(
            f"{path} was replaced while another process has it open; end that process, then open "
            "the store again"
        )


def check_readable(path: Path, written: int | None) -> None:
    """Refuse to read a file beside a log of another, or one that a restore is to replace."""
    if restoring(path).exists():
        raise StoreReplaced(
            f"restoring a backup to {path} was interrupted; open it once where it may be written"
        )
    check_log(path, read_generation(path), written, alone=True)


def has_log(path: Path) -> bool:
    """True if the last process to close the store has left SQLite's log behind."""
    try:
        return Path(f"{path}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def renew(connection: apsw.Connection) -> None:
    """Give a file that no other process has open a generation of its own, and a log from now on.

    A backup that is put in place a second time then differs from what the first one has become.
    The header is written without a log: in it the number would be hidden from `read_generation`.
    If interrupted: the file has the old generation or the new one, and no log.
    """
    if connection.pragma("journal_mode", "delete") == "delete":
        connection.pragma("user_version", new_generation())
        connection.pragma("journal_mode", "wal")


# -- restoring ---------------------------------------------------------------------------------


def restoring(path: Path) -> Path:
    """Return the name under which a backup waits to take a store's place."""
    return Path(f"{path}-restoring")


def finish_restore(path: Path) -> Path | None:
    """Put a backup that waits in the store's place; the name that the replaced file has now.

    The caller has the turn to write, and no process has the store open. Returns None if none waits
    or no store was there. The log goes first: at no moment does it lie beside the restored file.
    If interrupted: some steps are done, and the next call does the others.
    """
    waiting = restoring(path)
    if not waiting.exists():
        return None
    at = datetime.fromtimestamp(waiting.stat().st_mtime, UTC)
    kept = Path(f"{path}-replaced-{at:%Y%m%dT%H%M%S}-{read_generation(waiting) or 0:08x}")
    for suffix in _LOGS:
        log = Path(f"{path}{suffix}")
        if log.exists():
            log.rename(f"{kept}{suffix}")
    Path(f"{path}-shm").unlink(missing_ok=True)
    sync_folder(path.parent)
    if path.exists() and path.stat().st_size and not kept.exists():
        path.rename(kept)
    waiting.replace(path)
    sync_folder(path.parent)
    return kept if kept.exists() else None


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
