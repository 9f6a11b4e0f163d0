"""Deltas of open streams: rows of one stream each, and packs, rows that many streams share.

A row for each stream would touch as many pages of an index as there are streams, at every flush. So
streams that flush together share a row, a pack, with a line for each of them. From time to time the
lines of a stream are folded into a row of its own. A pack whose lines are all folded is dropped.

The rule that makes this safe: while there is any pack, every flush is a line. So the rows of a
stream come before its lines that are not folded yet, and a line is folded if its number is not
above that of the stream's last row: the file alone says it, whatever a process believes.
"""

import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import apsw

from killick.errors import SessionDamaged
from killick.journal.assembly import merge
from killick.journal.codec import decode_deltas, encode
from killick.model.entries import Delta
from killick.stores.contract import Flush
from killick.stores.sql import load

SQL: Final = load("killick.stores.sqlite")

PACKED_FROM: Final = 16
"""Streams that flush together from which on they share a row."""

_PACK_BYTES: Final = 1024 * 1024
"""A pack is closed when it has as much; one line may be as large again."""

_CACHE_BYTES: Final = 16 * 1024 * 1024
_LINE_BYTES: Final = 160
"""What Python keeps in memory for a line beside its bytes, about."""
_LINES_AT_ONCE: Final = 2_048
_STEPS: Final = 16
"""A fold takes so many lines at a time, or a share of them all, so that no flush waits for it."""

_NAME: Final = re.compile(rb"[0-9]+,[0-9]+")
_DAMAGED: Final = b"\0"
"""Before the deltas of a stream that has lost a line: they are kept, and never read as whole."""


class Pack:
    """The lines of one pack by stream, and the streams whose line is damaged."""

    __slots__ = ("lines", "lost", "size")

    def __init__(self, lines: dict[bytes, bytes], lost: Collection[bytes], size: int) -> None:
        self.lines = lines
        self.lost = lost
        self.size = size + _LINE_BYTES * len(lines)

    def flush(self, name: bytes) -> tuple[int, bytes] | None:
        """Return the number and the deltas of a stream's line."""
        line = self.lines.get(name)
        if line is None:
            return None
        number, _, data = line.partition(b",")
        return int(number), data[:-1]


def name_of(key: int, seq: int) -> bytes:
    """Return the name of a stream, as packs have it."""
    return b"%d,%d" % (key, seq)


def has_packs(connection: apsw.Connection) -> bool:
    """Tell whether packs were left by a process that was killed, or are in use by another."""
    return bool(connection.execute(SQL.has_packs).get)


def fill(flushes: Iterable[Flush]) -> Iterator[tuple[Pack, bytes, bytes]]:
    """Yield packs of these flushes, each with the names of its streams and its body."""
    lines: dict[bytes, bytes] = {}
    size = 0
    for key, seq, number, data in flushes:
        name = b"%d,%d" % (key, seq)
        if size >= _PACK_BYTES or name in lines:
            yield _filled(lines)
            lines, size = {}, 0
        lines[name] = b"%d,%b]" % (number, data)
        size += len(data)
    if lines:
        yield _filled(lines)


def _filled(lines: dict[bytes, bytes]) -> tuple[Pack, bytes, bytes]:
    body = b"\n".join([b"[%b,%b" % line for line in lines.items()])
    return Pack(lines, (), len(body)), b" ".join(lines), body


def parse(crc: int, streams: bytes, body: bytes) -> Pack:
    """Return what a row holds. Where it is damaged, a line that cannot be read harms no other."""
    lines = [_name_and_line(text) for text in body.split(b"\n")]
    if zlib.crc32(body) == crc and body != b"":
        return Pack(dict(lines), (), len(body))
    whole = [(name, line) for name, line in lines if _is_whole(name, line)]
    count = Counter(name for name, _ in whole)
    named = set(_NAME.findall(streams)) or count.keys()
    # A damaged name may be another stream's: then it stands there twice, or not beside the lines.
    sure = {name: line for name, line in whole if count[name] == 1 and name in named}
    return Pack(sure, named - sure.keys(), len(body))


def _name_and_line(text: bytes) -> tuple[bytes, bytes]:
    key, seq, line = (*text.split(b",", 2), b"", b"")[:3]
    return b"%b,%b" % (key[1:], seq), line if text[:1] == b"[" else b""


def _is_whole(name: bytes, line: bytes) -> bool:
    number, _, data = line.partition(b",")
    try:
        decode_deltas(data[:-1])
    except ValueError:
        return False
    return line[-1:] == b"]" and number.isdigit() and _NAME.fullmatch(name) is not None


def folded(flushes: Sequence[bytes]) -> bytes:
    """Return the deltas of several flushes as those of one. Raises CodecError."""
    if all(data.startswith(b"[[") for data in flushes):
        deltas = decode_deltas(b"[%b]" % b",".join([data[1:-1] for data in flushes]))
    else:
        deltas = tuple(delta for data in flushes for delta in decode_deltas(data))
    return encode(merge(deltas))


class PackCache:
    """Packs as they were read lately, for all readers of one opening.

    A pack is never changed. Its checksum tells it from one of the same number that was not
    committed.
    """

    def __init__(self) -> None:
        self._packs: dict[tuple[int, int], Pack] = {}

    def get(self, number: int, crc: int) -> Pack | None:
        return self._packs.get((number, crc))

    def put(self, number: int, crc: int, pack: Pack) -> None:
        # Without a lock: the writer's thread would wait for a reader that is interrupted here.
        self._packs[number, crc] = pack
        packs = self._packs.copy()
        size = sum(known.size for known in packs.values())
        for key, known in packs.items():
            if size <= _CACHE_BYTES or known is pack:
                break
            size -= known.size
            self._packs.pop(key, None)

    def forget(self, through: int) -> None:
        """Let go of the packs up to this number: they were dropped."""
        for key in self._packs.copy():
            if key[0] <= through:
                self._packs.pop(key, None)


class SqliteDeltas:
    """Reads deltas, on a connection that the database opened."""

    connection: apsw.Connection
    packs: PackCache
    _numbers: list[tuple[int, int]] | None = None

    def _damaged(self, key: int, seq: int | None, error: Exception) -> SessionDamaged:
        raise NotImplementedError

    def deltas(self, key: int, seq: int, *, after: int = 0) -> list[tuple[int, Sequence[Delta]]]:
        rows: list[Any] = self.connection.execute(SQL.deltas, (key, seq, after)).fetchall()
        lines = self._lines(key, seq, rows[-1][0] if rows else after)
        rows += [(number, body, None) for number, body in lines]
        try:
            return [(number, decode_deltas(body, crc)) for number, body, crc in rows]
        except ValueError as error:
            raise self._damaged(key, seq, error) from error

    def packed_since(self, number: int) -> tuple[int, set[int]]:
        """Return the newest pack, and the sessions that packs after this number have lines of."""
        rows: list[Any] = self.connection.execute(SQL.newer_packs, (number,)).fetchall()
        names = (name for _, streams in rows for name in _NAME.findall(streams))
        return max((number, *(row[0] for row in rows))), {int(n.split(b",")[0]) for n in names}

    def streams(self, key: int) -> list[int]:
        seqs = {seq for (seq,) in self.connection.execute(SQL.streams, (key,))}
        own = b"%d," % key
        packed = {
            int(name.partition(b",")[2])
            for pack in self._packs()
            for name in (*pack.lines, *pack.lost)
            if name.startswith(own)
        }
        return sorted(seqs.union(seq for seq in packed if not self._is_dropped(key, seq)))

    def count_deltas(self) -> int:
        rows = self.connection.execute(SQL.count_deltas).get
        assert isinstance(rows, int)
        dropped = self._dropped()
        return rows + sum(len(pack.lines.keys() - dropped) for pack in self._packs())

    def _lines(self, key: int, seq: int, after: int) -> list[tuple[int, bytes]]:
        """Return the flushes of a stream above this number that are lines of packs, in order."""
        numbers = self.pack_numbers()
        if not numbers:
            return []
        name, lines, lost = name_of(key, seq), list[tuple[int, bytes]](), False
        for number, crc in reversed(numbers):
            pack = self._pack(number, crc)
            flush = pack.flush(name)
            if flush is None:
                lost = lost or name in pack.lost
            elif flush[0] > after:
                lines.append(flush)
            else:
                break  # it is folded, or was read before, and so was every line below it
        if (lines or lost) and self._is_dropped(key, seq):
            return []
        if lost:
            raise self._damaged(key, seq, ValueError("a row that it shares has lost its line"))
        return lines[::-1]

    def pack_numbers(self) -> list[tuple[int, int]]:
        """Return the packs that there are, each by its number and checksum, in order."""
        if self._numbers is None:
            rows: list[Any] = self.connection.execute(SQL.packs).fetchall()
            self._numbers = rows
        return self._numbers

    def _packs(self) -> list[Pack]:
        return [self._pack(number, crc) for number, crc in self.pack_numbers()]

    def _pack(self, number: int, crc: int) -> Pack:
        pack = self.packs.get(number, crc)
        if pack is None:
            pack = parse(crc, *self._read(number))
            self.packs.put(number, crc, pack)
        return pack

    def _read(self, number: int) -> tuple[bytes, bytes]:
        """Return the names and the lines of a pack; none for those that SQLite cannot read."""
        row = []
        for sql in (SQL.pack_streams, SQL.pack_body):
            try:
                row.append(self.connection.execute(sql, (number,)).get)
            except apsw.CorruptError:
                row.append(b"")
        return row[0], row[1]

    def _is_dropped(self, key: int, seq: int) -> bool:
        return self.connection.execute(SQL.is_dropped, (key, seq)).get is not None

    def _dropped(self) -> set[bytes]:
        return {name_of(*stream) for stream in self.connection.execute(SQL.dropped)}


class _Run:
    """A fold under way: the packs through the last one, and the streams that are left of them.

    `newest` is the number of each stream's last line.
    """

    __slots__ = ("last", "lines", "newest", "packs", "streams")

    def __init__(self, last: int, packs: list[Pack]) -> None:
        self.last = last
        self.packs = packs
        self.lines = sum(len(pack.lines) for pack in packs)
        self.newest = _newest(packs)
        lost = {name for pack in packs for name in pack.lost}
        self.streams = [stream for stream in self.newest if name_of(*stream) not in lost]
        self.streams.sort(reverse=True)  # taken from the end: neighbours in the index go together


class SqliteFlushes(SqliteDeltas):
    """Writes deltas, in the transaction that the database has begun."""

    writes: int
    _run: _Run | None = None
    _folded: int | None = None
    unused_blobs: set[int]
    """Large blobs that an erasure removes with the end of this transaction."""

    def forget_packs(self) -> None:
        """Read again which packs there are: another process wrote, or this one rolled back."""
        self._numbers = self._run = self._folded = None

    def put_deltas(self, flushes: Sequence[Flush]) -> None:
        if not flushes:
            return
        self.writes += len(flushes)
        if len(flushes) < PACKED_FROM and not self.pack_numbers():
            rows = [(*flush, zlib.crc32(flush[3])) for flush in flushes]
            self.connection.executemany(SQL.put_deltas, rows)
            return
        for pack, streams, body in fill(flushes):
            crc = zlib.crc32(body)
            self.connection.execute(SQL.put_pack, (crc, streams, body))
            number = self.connection.last_insert_rowid()
            self.pack_numbers().append((number, crc))
            self.packs.put(number, crc, pack)

    def drop_deltas(self, key: int, seq: int) -> None:
        self.writes += 1
        self.connection.execute(SQL.drop_deltas, (key, seq))
        if self.pack_numbers():
            last, _ = self.pack_numbers()[-1]
            self.connection.execute(SQL.drop_stream, (key, seq, last))

    def erase_deltas(self, key: int) -> None:
        """Remove what is left of a session's streams, and rewrite what it shares with others."""
        self.writes += 1
        if self._is_packed(key):
            self._run = None
            self.fold_deltas(at_once=True, without=key)
        self.connection.execute(SQL.erase_deltas, (key,))

    def _is_packed(self, key: int) -> bool:
        """Tell whether a pack holds a line of this session, also of a stream that has ended."""
        own = b"%d," % key
        return any(
            pack.lost or any(name.startswith(own) for name in pack.lines) for pack in self._packs()
        )

    def fold_deltas(self, *, at_once: bool = False, without: int | None = None) -> bool:
        """Fold streams out of the packs that were there when this began, some of them each time.

        True if streams of these packs are left; else the packs are dropped.
        """
        numbers = self.pack_numbers()
        if not numbers:
            return False
        run = self._run = self._run or _Run(numbers[-1][0], self._packs())
        left = max(_LINES_AT_ONCE, run.lines // _STEPS)
        while run.streams and (at_once or left > 0):
            key, seq = run.streams.pop()
            left -= 0 if key == without else self._fold(run, key, seq)
        if run.streams:
            return True
        self._drop_packs(run, without)
        return False

    def _fold(self, run: _Run, key: int, seq: int) -> int:
        """Write what is not folded of a stream's lines into one row; return how many they were."""
        after = self._last_row(key, seq)
        if after >= run.newest[key, seq] or self._is_dropped(key, seq):
            return 0
        name = name_of(key, seq)
        lines = [flush for pack in run.packs if (flush := pack.flush(name)) is not None]
        flushes = [flush for flush in lines if flush[0] > after]
        self.writes += 1
        try:
            rows = [(key, seq, flushes[-1][0], folded([data for _, data in flushes]))]
        except ValueError:  # reading it tells of the damage, as it did
            rows = [(key, seq, number, data) for number, data in flushes]
        self.connection.executemany(SQL.put_deltas, [(*row, zlib.crc32(row[3])) for row in rows])
        return len(flushes)

    def _last_row(self, key: int, seq: int) -> int:
        number = self.connection.execute(SQL.last_flush, (key, seq)).get
        assert number is None or isinstance(number, int)
        return number or 0

    def _drop_packs(self, run: _Run, without: int | None) -> None:
        """Drop packs once the file has every line of theirs in a row of its stream.

        This is looked up, not remembered: a line that is dropped too early is lost.
        """
        for key, seq in run.newest:
            if key != without:
                self._fold(run, key, seq)
        for name in {name for pack in run.packs for name in pack.lost}:
            key, seq = map(int, name.split(b","))
            if key != without and not self._is_dropped(key, seq):
                self._mark_damaged(key, seq)
        self.writes += 1
        self._folded = run.last
        self.connection.execute(SQL.forget_dropped, (run.last,))
        self.packs.forget(run.last)
        left = [pack for pack in self.pack_numbers() if pack[0] > run.last]
        self._numbers, self._run = left, None

    def drop_unused(self) -> None:
        """Drop packs whose lines are rows now, and large blobs, as the last thing of a transaction.

        Their pages are not cleared: as much would be written once more as zeros, and other writers
        would wait for it. Nothing in this transaction uses these pages again, SQLite clears
        what it uses later, and an erasure clears free pages.
        """
        if self._folded is None and not self.unused_blobs:
            return
        folded, self._folded = self._folded, None
        self.connection.pragma("secure_delete", 0)
        try:
            if folded is not None:
                self.connection.execute(SQL.drop_packs, (folded,))
            for blob in self.unused_blobs:
                self.connection.execute(SQL.drop_blob, (blob,))
        finally:
            self.unused_blobs.clear()
            self.connection.pragma("secure_delete", 1)

    def _mark_damaged(self, key: int, seq: int) -> None:
        """Keep in mind that a line of this stream was lost: its deltas cannot be read as whole."""
        rows: list[Any] = self.connection.execute(SQL.deltas, (key, seq, 0)).fetchall()
        number, body, _ = rows[-1] if rows else (1, b"", None)
        self.connection.execute(SQL.put_deltas, (key, seq, number, _DAMAGED + body, None))


def _newest(packs: Sequence[Pack]) -> dict[tuple[int, int], int]:
    """Return the streams with a line in any of these packs, and the number of the last one."""
    seen: set[bytes] = set()
    newest: dict[tuple[int, int], int] = {}
    for pack in reversed(packs):
        for name in pack.lines.keys() - seen:
            key, _, seq = name.partition(b",")
            number, _, _ = pack.lines[name].partition(b",")
            newest[int(key), int(seq)] = int(number)
        seen.update(pack.lines)
    return newest
