"""Look after a store's file: checks, backups, room on its disk, copies beside it."""

import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw
import msgspec

from killick.errors import StoreDegraded, UsageError
from killick.stores.contract import BackupReceipt, Traces
from killick.stores.owner import give
from killick.stores.sqlite import renewal
from killick.stores.sqlite.generation import new_generation, sync_folder

_PIECE: Final = 4 * 1024 * 1024
_PAGES_A_STEP: Final = 4_096

_CHECK_CACHE_KIB: Final = 64 * 1024
"""A check looks every row of an index up in its table, in any order: pages are needed again."""

_ROOM_BYTES: Final = 16 * 1024 * 1024
"""What the log of an erasure may take, beside the erased rows themselves."""

Progress = Callable[[int, int], None]
"""Called with how much is done, of how much."""


def check(connection: apsw.Connection, *, quick: bool = False) -> list[str]:
    """Return what SQLite finds wrong with the file; nothing when it is sound.

    Each table is checked apart: a damaged page of one ends its check and hides nothing of others.
    A quick check does not compare tables with their indexes.
    """
    pragma = "quick_check" if quick else "integrity_check"
    connection.pragma("cache_size", -_CHECK_CACHE_KIB)
    try:
        tables = [name for (name,) in connection.execute(_TABLES)]
    except apsw.Error as error:
        return [str(error)]
    lines: dict[str, None] = {}
    for table in tables:
        try:
            for (text,) in connection.execute(f"PRAGMA {pragma}('{table}')"):
                lines.update(dict.fromkeys(str(text).splitlines()))
        except apsw.Error as error:
            lines[f"{table}: {error}"] = None
    return [line for line in lines if line != "ok" and not line.startswith("*** in database")]


_TABLES: Final = "SELECT name FROM sqlite_schema WHERE type = 'table'"


def copies(path: Path) -> list[Path]:
    """Return copies beside the store: of before a migration or a restore, or made by hand."""
    kinds = ("backup", "replaced")
    return [file for kind in kinds for file in sorted(path.parent.glob(f"{path.name}-{kind}-*"))]


def find_traces(path: Path, needles: Sequence[bytes]) -> Traces:
    """Return the copies of a store in which these bytes stand."""
    there = [file for file in copies(path) if file.stat().st_size]
    by_file = {file.name: _find(file, needles) for file in there}
    return Traces(
        files=tuple(by_file), found={name: tuple(which) for name, which in by_file.items() if which}
    )


def check_room(path: Path, size: int) -> None:
    """Raise StoreDegraded if the disk cannot hold the log of an erasure of so many bytes."""
    needed = _ROOM_BYTES + 4 * size
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise StoreDegraded(
            f"nothing was erased: that needs {needed:,} bytes on the disk of {path}, and "
            f"{free:,} are free; make room, then try again"
        )


def _find(file: Path, needles: Sequence[bytes]) -> list[bytes]:
    """Return the needles that are in a file.

    The file is read through SQLite's own layer: a process that opens and closes a database file in
    any other way gives up the locks that SQLite holds on it.
    """
    left = dict.fromkeys(needles)
    overlap = max((len(needle) for needle in needles), default=1) - 1
    opened = apsw.VFSFile("", str(file), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        size = opened.xFileSize()
        for offset in range(0, size, _PIECE):
            piece = opened.xRead(min(_PIECE + overlap, size - offset), offset)
            left = {needle: None for needle in left if needle not in piece}
    finally:
        opened.xClose()
    return [needle for needle in needles if needle not in left]


def back_up(
    source: apsw.Connection, target: Path, progress: Progress | None, *, like: Path | None = None
) -> BackupReceipt:
    """Copy the store while it is in use, verify the copy, and give it its name last.

    The copy has a generation of its own: a log of the store is not the copy's. If root makes it, it
    belongs to the owner of `like`.

    If interrupted: there is no file of that name, or a whole and verified one.
    """
    _check_free(target)
    # A name of its own: two backups to the same file must not write into each other's copy.
    partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    try:
        _copy(source, partial, progress, like)
        receipt = _verify(partial, target)
        _check_free(target)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(target.parent)
    return receipt


def _check_free(target: Path) -> None:
    if target.exists():
        raise UsageError(f"{target} exists; name a file that does not, nothing was written")


def renew(source: apsw.Connection, target: Path, progress: Progress | None) -> BackupReceipt:
    """Bring a backup up to date, writing what has changed since; see `renewal`."""
    return renewal.renew(
        source,
        target,
        lambda onto: _copy_pages(source, onto, progress),
        lambda copy: _check(copy, target),
    )


def _copy(
    source: apsw.Connection, partial: Path, progress: Progress | None, like: Path | None
) -> None:
    try:
        made = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        if like is not None:
            give(made, like)
        os.close(made)
    except OSError as error:
        raise UsageError(f"no copy can be made there: {error}; name another file") from error
    with closing(apsw.Connection(str(partial))) as copy:
        _copy_pages(source, copy, progress)
        copy.pragma("journal_mode", "delete")
        copy.pragma("user_version", new_generation())


def _copy_pages(source: apsw.Connection, copy: apsw.Connection, progress: Progress | None) -> None:
    """Copy all pages as of one moment: else every commit of others would start the copy anew."""
    try:
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM meta").fetchall()
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(_PAGES_A_STEP)
                if progress is not None:
                    progress(backup.page_count - backup.remaining, backup.page_count)
    finally:
        if source.in_transaction:
            source.execute("ROLLBACK")


def _verify(partial: Path, target: Path) -> BackupReceipt:
    with closing(apsw.Connection(str(partial), flags=apsw.SQLITE_OPEN_READONLY)) as copy:
        size = partial.stat().st_size
        return msgspec.structs.replace(_check(copy, target), bytes=size, written=size)


def _check(copy: apsw.Connection, target: Path) -> BackupReceipt:
    wrong = check(copy)
    if wrong:
        raise StoreDegraded(f"the copy did not pass its check ({wrong[0]}); it was removed")
    sessions = copy.execute("SELECT count(*) FROM sessions").get
    entries = copy.execute("SELECT count(*) FROM entries").get
    return BackupReceipt(str(target), 0, int(sessions), int(entries))
