"""Visit the pages of a store's file while others write.

A connection that begins to read while the log is empty reads the file alone, and as long as it
does so SQLite copies nothing from the log into the file: the file is frozen. Other processes write
to the log meanwhile. Pages that the log names are visited again, without a lock while they are
many, and at last, when they are few, with the turn to write.
"""

import struct
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

import apsw

from killick.stores.sqlite.pages import HEADER, FileHeader, PageDamaged, read_header

_PAGES_A_PIECE: Final = 1_024
_WITH_THE_TURN: Final = 512
"""So many pages are visited while others wait; more are visited before."""

_LOG_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_FRAME: Final = struct.Struct(">II8s8x")
_BUSY_MS: Final = 20
"""How long the turn is kept while others read from the log; then they have theirs."""


class FrozenFile:
    """Visits every page of one file, as of the moment at which that ends.

    `turn` gives the turn to write. A subclass says what a visit does.
    """

    def __init__(
        self,
        path: Path,
        connect: Callable[[], apsw.Connection],
        turn: Callable[[], AbstractContextManager[None]],
        wait_seconds: float,
    ) -> None:
        self._path = path
        self._connect = connect
        self._turn = turn
        self._end = time.monotonic() + wait_seconds
        self._log = _Log(path)
        self._todo: set[int] | None = None  # None is every page

    def _visit(self, file: "DatabaseFile", pages: Collection[int] | None) -> None:
        """Look at these pages of a file that no process copies its log into; at all for None."""
        raise NotImplementedError

    def _conclude(self, connection: apsw.Connection) -> None:
        """Do what belongs to the last visit, in a transaction that ends when this returns."""
        raise NotImplementedError

    def visit(self, file: "DatabaseFile", turn: ExitStack) -> bool:
        """Visit every page, and leave the turn to write with the caller.

        False, without the turn, if others read old pages in the log until time was over.
        """
        few = _WITH_THE_TURN // 2
        with (
            closing(self._connect()) as connection,
            closing(self._connect()) as reader,
            ExitStack() as frozen,
        ):
            while self._empty_log(connection, frozen, turn):
                if self._todo is not None and len(self._todo) <= few:
                    if self._visit_last(file):
                        return True
                    turn.close()
                    continue
                frozen.enter_context(_reading(reader))
                is_frozen = self._log.is_empty()  # else a program without Killick wrote in between
                turn.close()
                if is_frozen:
                    pages, self._todo = self._todo, set()
                    self._visit(file, pages)
                    file.sync()  # here, where no writer waits for it
                    few *= 2  # others may write faster than this looks
        return False

    def _empty_log(self, connection: apsw.Connection, frozen: ExitStack, turn: ExitStack) -> bool:
        """Copy the log into the file, and note the pages that were in it.

        Leaves the turn to write with the caller; False, and without it, if others kept the log.
        """
        with closing(self._connect()) as reader, ExitStack() as keeper:
            keeper.enter_context(_reading(reader))  # the log does not begin anew meanwhile
            frozen.close()
            connection.set_busy_timeout(_BUSY_MS)
            _checkpoint(connection, apsw.SQLITE_CHECKPOINT_PASSIVE)
            while True:
                self._log.read()
                turn.enter_context(self._turn())
                self._log.read()
                keeper.close()
                if _checkpoint(connection, apsw.SQLITE_CHECKPOINT_TRUNCATE):
                    if self._todo is not None:
                        self._todo |= self._log.pages
                    self._log = _Log(self._path)
                    return True
                keeper.enter_context(_reading(reader))
                turn.close()
                if time.monotonic() > self._end:
                    return False
                time.sleep(_BUSY_MS / 1_000)

    def _visit_last(self, file: "DatabaseFile") -> bool:
        """Visit the last pages in a transaction, on a connection that knows no page from before.

        False if a program without Killick wrote in between. Others wait for the turn, so its commit
        is not synced: the next one's sync makes it durable, and no caller is told of it before.
        """
        with closing(self._connect()) as connection:
            connection.pragma("synchronous", 0)
            connection.execute("BEGIN IMMEDIATE")
            if not self._log.is_empty():
                return False
            pages, self._todo = self._todo, set()
            self._visit(file, pages)
            self._conclude(connection)
            return True


@contextmanager
def _reading(connection: apsw.Connection) -> Iterator[None]:
    """Read as of now until this is left."""
    connection.execute("BEGIN")
    try:
        connection.execute("SELECT count(*) FROM meta").fetchall()
        yield
    finally:
        connection.execute("ROLLBACK")


def _checkpoint(connection: apsw.Connection, mode: int) -> bool:
    """Copy the log into the file; False if others keep it from being done whole."""
    try:
        connection.wal_checkpoint(mode=mode)
    except apsw.BusyError:
        return False
    return True


class DatabaseFile:
    """A database file, opened through SQLite's own layer.

    A process that opens and closes a database file in any other way gives up the locks that SQLite
    holds on it.
    """

    def __init__(self, path: Path) -> None:
        flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE
        self._opened = apsw.VFSFile("", str(path), [flags, 0])

    def close(self) -> None:
        self._opened.xClose()

    def header(self) -> FileHeader:
        return read_header(self.read(HEADER, 0))

    def read(self, length: int, offset: int) -> bytes:
        return self._opened.xRead(length, offset)

    def pages(
        self, header: FileHeader, wanted: Collection[int] | None
    ) -> Iterator[tuple[int, bytes, int]]:
        """Yield pages: the number of each, some bytes, and where it begins in these."""
        size = header.page_size
        if wanted is not None:
            for number in sorted(wanted):
                if number <= header.pages:
                    yield number, self.read(size, (number - 1) * size), 0
            return
        first = 1
        for data in self.pieces(header):
            for at in range(0, len(data), size):
                yield first, data, at
                first += 1

    def pieces(self, header: FileHeader) -> Iterator[bytes]:
        """Yield the whole file, many pages at a time."""
        size = header.page_size
        for first in range(0, header.pages, _PAGES_A_PIECE):
            count = min(_PAGES_A_PIECE, header.pages - first)
            yield self.read(count * size, first * size)

    def next_page(self, header: FileHeader, page: int) -> int:
        if not 1 < page <= header.pages:
            raise PageDamaged("a long row goes on outside of the file")
        return int.from_bytes(self.read(4, (page - 1) * header.page_size), "big")

    def clear(self, offset: int, length: int) -> int:
        """Set bytes to zero that no row accounts for, in a file that is frozen."""
        self._opened.xWrite(bytes(length), offset)
        return length

    def sync(self) -> None:
        self._opened.xSync(apsw.SQLITE_SYNC_FULL)


class _Log:
    """The pages that a log names, read on as it grows; one that begins anew needs a new object."""

    def __init__(self, path: Path) -> None:
        self._path = Path(f"{path}-wal")
        self._read = _LOG_HEADER
        self.pages: set[int] = set()

    def is_empty(self) -> bool:
        return not self._path.exists() or not self._path.stat().st_size

    def read(self) -> None:
        """Read what was added; what is not committed is read again the next time."""
        if self.is_empty():
            return
        log = apsw.VFSFile(
            "", str(self._path), [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READONLY, 0]
        )
        try:
            header, end = log.xRead(_LOG_HEADER, 0), log.xFileSize()
            frame = _FRAME_HEADER + int.from_bytes(header[8:12], "big")
            for offset in range(self._read, end - frame + 1, frame):
                number, commits, salts = _FRAME.unpack(log.xRead(_FRAME_HEADER, offset))
                if salts != header[16:24]:
                    break
                self.pages.add(number)
                if commits:
                    self._read = offset + frame
        finally:
            log.xClose()
