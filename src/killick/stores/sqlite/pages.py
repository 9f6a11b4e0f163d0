"""Bytes of a database file that no row accounts for, page by page, by SQLite's file format.

SQLite moves rows between pages as these fill and empty, and leaves the old bytes where they were:
between the pointers of a page and its rows. `secure_delete` clears what is deleted, not what was
moved. Freed pages, and the end of the last page of a long row, may hold old bytes too.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

HEADER: Final = 100
PAGES_MAX: Final = 0x02 << 24
"""From so many pages on, the number that a page of a long row begins with looks like a tree's."""

_ROW_LEAF: Final = 13
_KEY_LEAF: Final = 10
_ROW_INNER: Final = 5
_KEY_INNER: Final = 2
_TREES: Final = frozenset((_KEY_INNER, _ROW_INNER, _KEY_LEAF, _ROW_LEAF))
_HEAD: Final = struct.Struct(">BHHH")
_BLOCK: Final = struct.Struct(">HH")
_ZEROS: Final = bytes(65_536)
_NUMBERS: Final = 4 + 2 * 9
"""The bytes that a row begins with take no more than these: a page, its length and its key."""

Range = tuple[int, int]
"""The first of some bytes in a page, and the one behind the last."""


class PageDamaged(ValueError):
    """Raised for a page that is not as SQLite makes them; nothing in it may be touched."""


class FileHeader(NamedTuple):
    """The facts of a file that its first page begins with."""

    page_size: int
    usable: int
    pages: int
    first_trunk: int
    free_pages: int


def read_header(data: bytes) -> FileHeader:
    size = int.from_bytes(data[16:18], "big")
    size = 65_536 if size == 1 else size
    return FileHeader(size, size - data[20], *struct.unpack_from(">III", data, 28))


def is_tree(data: bytes, at: int) -> bool:
    """Tell whether the page whose head is there holds rows or keys. See PAGES_MAX."""
    return data[at] in _TREES


def is_clear(data: bytes) -> bool:
    return _ZEROS.startswith(data) if len(data) <= len(_ZEROS) else not data.strip(b"\0")


def leftovers(data: bytes, at: int, head: int, usable: int) -> list[Range]:
    """Return what is not zero and not in use, of the page that begins `at` in some bytes.

    `head` is where its head lies in the page: 100 in the first page of a file. Raises PageDamaged.
    """
    kind, block, cells, content = _HEAD.unpack_from(data, at + head)
    content = content or 65_536
    pointers = head + (8 if kind > _ROW_INNER else 12)
    gap = pointers + 2 * cells
    if not gap <= content <= usable:
        raise PageDamaged("rows and their pointers overlap")
    dirty: list[Range] = []
    blocks: list[Range] = []
    if not _ZEROS.startswith(data[at + gap : at + content]):
        dirty.append((gap, content))
    while block:
        if block < content or block + 4 > usable:
            raise PageDamaged("a free block lies outside of the rows")
        after, size = _BLOCK.unpack_from(data, at + block)
        end = block + size
        if size < 4 or end > usable or (after and after < end):
            raise PageDamaged("free blocks overlap")
        if not _ZEROS.startswith(data[at + block + 4 : at + end]):
            dirty.append((block + 4, end))
        blocks.append((block, end))
        block = after
    if dirty:
        rows = [row[:2] for row in _rows(data, at, head, usable)]
        _check_account(sorted([*rows, *blocks]), content, usable, data[at + head + 7])
    return dirty


def _check_account(used: list[Range], content: int, usable: int, lost: int) -> None:
    """Refuse a page whose rows and free blocks overlap, or do not fill it but for `lost` bytes.

    Raises PageDamaged.
    """
    behind = content
    for first, end in used:
        if first < behind or end > usable:
            raise PageDamaged("rows overlap")
        lost -= first - behind
        behind = end
    if lost != usable - behind:
        raise PageDamaged("bytes that should hold rows hold none")


class _Row(NamedTuple):
    """Where a row begins and ends in its page, and how long it is, there and in other pages."""

    first: int
    end: int
    here: int
    length: int


def _rows(data: bytes, at: int, head: int, usable: int) -> Iterator[_Row]:
    """Yield the rows of a page. Raises PageDamaged for one that does not lie in it."""
    kind, _, cells, _ = _HEAD.unpack_from(data, at + head)
    least = (usable - 12) * 32 // 255 - 23
    most = usable - 35 if kind == _ROW_LEAF else (usable - 12) * 64 // 255 - 23
    page = data[at : at + usable] + bytes(_NUMBERS)  # a number may seem to go on behind the end
    for first in _pointers(data, at + head + (8 if kind > _ROW_INNER else 12), cells):
        if first >= usable:
            raise PageDamaged("a row lies outside of its page")
        if kind == _ROW_INNER:
            _, end = number_at(page, first + 4)
            yield _Row(first, end, 0, 0)
            continue
        length, begin = number_at(page, first + (4 if kind == _KEY_INNER else 0))
        if kind == _ROW_LEAF:
            _, begin = number_at(page, begin)
        here = length
        if length > most:
            here = least + (length - least) % (usable - 4)
            here = here if here <= most else least
        end = max(begin + here + (4 if here < length else 0), first + 4)
        if end > usable:
            raise PageDamaged("a row lies outside of its page")
        yield _Row(first, end, here, length)


def _pointers(data: bytes, at: int, cells: int) -> tuple[int, ...]:
    return struct.unpack_from(f">{cells}H", data, at)


def long_rows(data: bytes, at: int, head: int, usable: int) -> Iterator[tuple[int, int]]:
    """Yield, for each row that goes on in other pages, the first of these and how much is there.

    Raises PageDamaged for a row that does not lie in its page.
    """
    for row in _rows(data, at, head, usable):
        if row.here < row.length:
            follows = data[at + row.end - 4 : at + row.end]
            yield int.from_bytes(follows, "big"), row.length - row.here


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where it ends."""
    number = 0
    for offset in range(at, at + 8):
        byte = data[offset]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, offset + 1
    return number << 8 | data[at + 8], at + 9


def trunk(data: bytes, usable: int) -> tuple[int, list[int], int]:
    """Return the next page of the list of free pages, those named in this one, and its length.

    Raises PageDamaged.
    """
    if len(data) < usable:
        raise PageDamaged("the list of free pages goes on outside of the file")
    after, count = struct.unpack_from(">II", data, 0)
    if count > usable // 4 - 2:
        raise PageDamaged("the list of free pages is too long")
    return after, list(struct.unpack_from(f">{count}I", data, 8)), 8 + 4 * count
