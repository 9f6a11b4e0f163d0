"""Clear every byte of a store's file that no row accounts for, while others write.

Bytes that are not in use are set to zero in place, in a file that is frozen, which changes no row:
neither a crash between two of these writes nor one inside of them matters. Other connections may
remember a page as it was and write it again: it is visited again then, and at last a commit makes
all connections forget.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from killick.stores.sqlite.frozen import DatabaseFile, FrozenFile
from killick.stores.sqlite.pages import (
    HEADER,
    PAGES_MAX,
    FileHeader,
    PageDamaged,
    is_clear,
    is_tree,
    leftovers,
    long_rows,
    trunk,
)

_COUNT: Final = """
INSERT INTO meta (name, value) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1
"""


class Swept(NamedTuple):
    """How many pages were looked at, bytes cleared, and pages left alone as they are damaged."""

    pages: int
    cleared: int
    damaged: int


class Sweeper(FrozenFile):
    """One sweep of one file."""

    def __init__(
        self,
        path: Path,
        connect: Callable[[], apsw.Connection],
        turn: Callable[[], AbstractContextManager[None]],
        wait_seconds: float,
    ) -> None:
        super().__init__(path, connect, turn, wait_seconds)
        self._tails = False
        self._pages = self._cleared = self._damaged = 0

    def run(self) -> Swept | None:
        """Sweep the whole file; None if others read old pages in the log until time was over.

        If interrupted: some bytes are cleared, and every row is as it was.
        """
        with closing(self._connect()) as connection:
            self._tails = not connection.execute("SELECT 1 FROM meta WHERE name = 'swept'").get
            if self._tails and not _is_sound(connection):
                self._tails, self._damaged = False, 1  # a page may belong to two rows
        with closing(DatabaseFile(self._path)) as file:
            with ExitStack() as turn:
                if not self.visit(file, turn):
                    return None
            if self._cleared:
                file.sync()
        return Swept(self._pages, self._cleared, self._damaged)

    def _conclude(self, connection: apsw.Connection) -> None:
        """Count this sweep, which makes every connection forget the pages that it remembers."""
        connection.execute(_COUNT, ("damaged sweeps" if self._damaged else "swept",))
        connection.execute("COMMIT")

    def _visit(self, file: DatabaseFile, pages: Collection[int] | None) -> None:
        header = file.header()
        if header.pages >= PAGES_MAX:
            self._damaged += 1
            return
        cleared = self._clear_free(file, header, pages)
        for number, data, at in file.pages(header, pages):
            if is_tree(data, at + (HEADER if number == 1 else 0)):
                cleared += self._clear_tree(file, header, number, data, at)
        self._cleared += cleared
        self._pages += header.pages if pages is None else len(pages)

    def _clear_tree(
        self, file: DatabaseFile, header: FileHeader, number: int, data: bytes, at: int
    ) -> int:
        head, start = (HEADER if number == 1 else 0), (number - 1) * header.page_size
        try:
            dirty = leftovers(data, at, head, header.usable)
            tails = list(_old_tails(file, header, data, at, head)) if self._tails else []
        except PageDamaged:
            self._damaged += 1
            return 0
        ranges = [(start + first, end - first) for first, end in dirty]
        return sum(file.clear(offset, length) for offset, length in (*ranges, *tails))

    def _clear_free(
        self, file: DatabaseFile, header: FileHeader, pages: Collection[int] | None
    ) -> int:
        """Clear free pages: older versions left what was in them."""
        try:
            trunks = _free_pages(file, header)
        except PageDamaged:
            self._damaged += 1
            return 0
        cleared = 0
        for page, end, free in trunks:
            start = (page - 1) * header.page_size
            if not is_clear(file.read(header.usable - end, start + end)):
                cleared += file.clear(start + end, header.usable - end)
            for each in free if pages is None else [each for each in free if each in pages]:
                start = (each - 1) * header.page_size
                if not is_clear(file.read(header.page_size, start)):
                    cleared += file.clear(start, header.page_size)
        return cleared


def _is_sound(connection: apsw.Connection) -> bool:
    """Tell whether each page of the file belongs to one row or table, as SQLite finds it."""
    try:
        return bool(connection.pragma("quick_check", 1) == "ok")
    except apsw.CorruptError:
        return False


def _old_tails(
    file: DatabaseFile, header: FileHeader, data: bytes, at: int, head: int
) -> Iterator[tuple[int, int]]:
    """Yield what lies behind the end of long rows: only older versions left something there.

    Raises PageDamaged for a row that does not end where its length says.
    """
    room = header.usable - 4
    for first, length in long_rows(data, at, head, header.usable):
        if length > header.pages * room:
            raise PageDamaged("a row is longer than the file")
        page, left = first, length
        after = file.next_page(header, page)
        while left > room:
            page, left = after, left - room
            after = file.next_page(header, page)
        if after:
            raise PageDamaged("a row goes on behind its end")
        start = (page - 1) * header.page_size
        if not is_clear(file.read(room - left, start + 4 + left)):
            yield start + 4 + left, room - left


def _free_pages(file: DatabaseFile, header: FileHeader) -> list[tuple[int, int, list[int]]]:
    """Return the pages that list free ones: the number of each, its length, and what it lists.

    Raises PageDamaged if they are not as many as the file says: then none may be touched.
    """
    trunks: list[tuple[int, int, list[int]]] = []
    page, count = header.first_trunk, 0
    while page and count < header.free_pages:
        data = file.read(header.page_size, (page - 1) * header.page_size)
        after, free, end = trunk(data, header.usable)
        if not all(1 < each <= header.pages for each in (page, *free)):
            raise PageDamaged("a free page lies outside of the file")
        trunks.append((page, end, free))
        page, count = after, count + 1 + len(free)
    if page or count != header.free_pages:
        raise PageDamaged("the list of free pages is not as long as the file says")
    return trunks
