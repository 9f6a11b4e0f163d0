"""Bring a backup up to date by writing the pages that have changed.

SQLite copies the store onto the backup through `_Backup`, which writes no page into it: those that
differ go to a file beside it. Once that is checked and on the disk it gets its name, then its pages
go into the backup, the first one last. Until then the backup has no header, so that no program
reads a mixture of two moments, and the process that renews or restores it next finishes first.
"""

import os
import secrets
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, Final

import apsw
import msgspec

from killick.errors import UsageError
from killick.stores.contract import BackupReceipt
from killick.stores.sqlite.generation import has_log, new_generation, sync_folder

_HEAD: Final = struct.Struct(">16sQQ")
_PAGE_HEAD: Final = struct.Struct(">QI")
_MAGIC: Final = b"killick changes\0"
_NO_LOG: Final = b"\x01\x01"
_VERSIONS: Final = slice(18, 20)
_GENERATION: Final = slice(60, 64)


def changes_of(backup: Path) -> Path:
    """Return the name of the pages that are to go into a backup."""
    return Path(f"{backup}-changes")


def renew(
    source: apsw.Connection,
    backup: Path,
    copy: Callable[[apsw.Connection], None],
    verify: Callable[[apsw.Connection], BackupReceipt],
) -> BackupReceipt:
    """Make a backup what the store is now, and check it before a page of it is written.

    If interrupted: the backup is as it was, or the new one once it is renewed or restored.
    """
    finish(backup)
    if has_log(backup) or Path(f"{backup}-lock").exists():
        raise UsageError(f"{backup} was opened as a store since; back up to a new file")
    partial = backup.with_name(f"{backup.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "rb+") as file:
            pages = _Pages(f"killick-{secrets.token_hex(8)}", file)
            with closing(apsw.Connection(str(backup), vfs=pages.name)) as target:
                if _store_of(target) != _store_of(source):
                    raise UsageError(f"{backup} is no backup of this store; nothing was written")
                target.pragma("journal_mode", "off")
                copy(target)
            pages.end()
            flags = apsw.SQLITE_OPEN_READONLY
            with closing(apsw.Connection(str(backup), flags, vfs=pages.name)) as target:
                receipt = verify(target)
            written = pages.save()
        partial.rename(changes_of(backup))
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(backup.parent)
    finish(backup)
    return msgspec.structs.replace(receipt, bytes=backup.stat().st_size, written=written)


def _store_of(connection: apsw.Connection) -> object:
    """Return the number that tells a store from others; None of a file that is none."""
    try:
        return connection.execute("SELECT value FROM meta WHERE name = 'store'").get
    except (apsw.NotADBError, apsw.SQLError):
        return None


def finish(backup: Path) -> None:
    """Write the pages that wait into a backup, if some do.

    If interrupted: they wait still, and the next call writes them all.
    """
    changes = changes_of(backup)
    try:
        opened = changes.open("rb")
    except FileNotFoundError:
        return
    with opened as pages:
        _write(backup, pages)
    changes.unlink()
    sync_folder(backup.parent)


def _write(backup: Path, pages: BinaryIO) -> None:
    _, size, count = _HEAD.unpack(pages.read(_HEAD.size))
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0]
    file = apsw.VFSFile("", str(backup), flags)
    try:
        file.xWrite(bytes(len(_MAGIC)), 0)
        file.xSync(apsw.SQLITE_SYNC_FULL)
        first = b""
        for _ in range(count):
            offset, length = _PAGE_HEAD.unpack(pages.read(_PAGE_HEAD.size))
            page = pages.read(length)
            if offset:
                file.xWrite(page, offset)
            else:
                first = page
        file.xTruncate(size)
        file.xSync(apsw.SQLITE_SYNC_FULL)
        file.xWrite(first, 0)
        file.xSync(apsw.SQLITE_SYNC_FULL)
    finally:
        file.xClose()


class _Pages(apsw.VFS):
    """Opens a backup as it will be: the pages that differ from its own are kept in a file."""

    def __init__(self, name: str, kept: BinaryIO) -> None:
        super().__init__(name, "")
        self.name = name
        self.size: int | None = None
        self._kept = kept
        self._places: dict[int, tuple[int, int]] = {}
        kept.write(bytes(_HEAD.size))

    def xOpen(self, name: Any, flags: list[int]) -> "_Backup":
        return _Backup(self, name, flags)

    def read(self, offset: int) -> bytes | None:
        """Return a page that differs; None for one that does not."""
        if offset not in self._places:
            return None
        begin, length = self._places[offset]
        self._kept.seek(begin)
        return self._kept.read(length)

    def write(self, page: bytes, offset: int) -> None:
        if offset not in self._places:
            begin = self._kept.seek(0, os.SEEK_END) + _PAGE_HEAD.size
            self._places[offset] = begin, len(page)
            self._kept.write(_PAGE_HEAD.pack(offset, len(page)))
        self._kept.seek(self._places[offset][0])
        self._kept.write(page)

    def end(self) -> None:
        """Make the first page that of a file without a log, with a generation of its own."""
        first = bytearray(self.read(0) or b"")
        first[_VERSIONS] = _NO_LOG
        first[_GENERATION] = new_generation().to_bytes(4, "big")
        self.write(bytes(first), 0)

    def save(self) -> int:
        """Put what differs on the disk; the number of its bytes."""
        assert self.size is not None
        self._kept.seek(0)
        self._kept.write(_HEAD.pack(_MAGIC, self.size, len(self._places)))
        self._kept.flush()
        os.fsync(self._kept.fileno())
        return sum(length for _, length in self._places.values())


class _Backup(apsw.VFSFile):
    """The backup's file, to which nothing is written."""

    def __init__(self, pages: _Pages, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._pages = pages
        if pages.size is None:
            pages.size = super().xFileSize()

    def xRead(self, amount: int, offset: int) -> bytes:
        page = self._pages.read(offset)
        return super().xRead(amount, offset) if page is None else page[:amount]

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.xRead(len(data), offset) != data:
            self._pages.write(bytes(data), offset)
        assert self._pages.size is not None
        self._pages.size = max(self._pages.size, offset + len(data))

    def xFileSize(self) -> int:
        assert self._pages.size is not None
        return self._pages.size

    def xTruncate(self, size: int) -> None:
        self._pages.size = size

    def xSync(self, flags: int) -> None:
        """Do nothing: what differs is put on the disk at once."""
