"""Read other agents' files: JSON lines, JSON documents and databases, however damaged.

Files are opened read-only, plain or compressed. A compressed one is bounded. When the bound is
met, or the data is damaged, the file ends there and says why (`problem`).
"""

import codecs
import io
import json
import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec

from killick.errors import install_hint
from killick.exchange.records import SourceLocation
from killick.model.limits import BODY_BYTES_MAX, EARLIEST_US, LATEST_US
from killick.model.sessions import microseconds

ZSTD: Final = b"\x28\xb5\x2f\xfd"

_PLAIN_BYTES: Final = 256 * 1024 * 1024
_RATIO_MAX: Final = 250
"""Text compresses to a tenth, with much repetition to a hundredth; more is no text."""

_WINDOW_LOG_MAX: Final = 27
_PIECE: Final = 64 * 1024
_BUFFER: Final = 256 * 1024


def open_file(path: Path) -> BinaryIO:
    """Open a file's bytes, behind a mark that says UTF-8.

    Raises OSError, also for a library that is not installed.
    """
    file = io.BufferedReader(path.open("rb", buffering=0), _BUFFER)
    try:
        start = file.peek(len(ZSTD))
        if start.startswith(codecs.BOM_UTF8):
            file.seek(len(codecs.BOM_UTF8))
        if not start.startswith(ZSTD):
            return file
        size = path.stat().st_size
        raw = _Unpacked(file, _zstd(), _PLAIN_BYTES + size * _RATIO_MAX)
    except BaseException:
        file.close()
        raise
    return cast("BinaryIO", _UnpackedReader(raw, _BUFFER))


def problem_of(file: BinaryIO) -> str | None:
    """Return why a file ended early, if it did."""
    return file.raw.problem if isinstance(file, _UnpackedReader) else None


def _zstd() -> Any:
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    try:
        return import_module(name)
    except ImportError as error:
        raise OSError(
            f"it is compressed with zstd, which needs one more package: {install_hint('zstd')}"
        ) from error


class _Unpacked(io.RawIOBase):
    """The content of a compressed file, never more than a bound."""

    def __init__(self, packed: BinaryIO, zstd: Any, most: int) -> None:
        self.problem: str | None = None
        self._packed = packed
        self._zstd = zstd
        self._left = most
        self._most = most
        self._unpacker = self._fresh()

    def _fresh(self) -> Any:
        options = {self._zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX}
        return self._zstd.ZstdDecompressor(options=options)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._packed.close()
        super().close()

    def readinto(self, buffer: Any, /) -> int:
        if self.problem is not None:
            return 0
        try:
            data = self._next(len(buffer))
        except (self._zstd.ZstdError, ValueError) as error:
            self.problem = f"what follows cannot be unpacked: {error}"
            return 0
        self._left -= len(data)
        if self._left < 0:
            self.problem = f"it unpacks to more than {self._most} bytes; the rest was left out"
            return 0
        buffer[: len(data)] = data
        return len(data)

    def _next(self, most: int) -> bytes:
        """Return the next bytes, none at the end. A file may hold several frames."""
        while True:
            if self._unpacker.eof:
                rest = self._unpacker.unused_data or self._packed.read(_PIECE)
                if not rest:
                    return b""
                self._unpacker = self._fresh()
            elif self._unpacker.needs_input:
                rest = self._packed.read(_PIECE)
                if not rest:
                    self.problem = "the compressed data is cut off"
                    return b""
            else:
                rest = b""
            data: bytes = self._unpacker.decompress(rest, max_length=most)
            if data:
                return data


class _UnpackedReader(io.BufferedReader):
    raw: _Unpacked


_SECONDS_MAX: Final = 10**11
_MILLISECONDS_MAX: Final = 10**14


def time_us(value: object) -> int | None:
    """Return microseconds since 1970 of an ISO text or a number of seconds, ms or µs, or None.

    A text without a zone is taken as UTC, as SQLite writes it. No number up to zero is a time.
    """
    if isinstance(value, str):
        return _iso_us(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return None
    scales = ((_SECONDS_MAX, 1_000_000), (_MILLISECONDS_MAX, 1_000), (1 << 62, 1))
    scale = next((scale for most, scale in scales if value < most), 0)
    return _bounded(int(value * scale)) if scale else None


def _iso_us(text: str) -> int | None:
    try:
        at = datetime.fromisoformat(text)
        return _bounded(microseconds(at if at.tzinfo is not None else at.replace(tzinfo=UTC)))
    except (ValueError, OverflowError):
        return None


def _bounded(at_us: int) -> int | None:
    return at_us if EARLIEST_US <= at_us <= LATEST_US else None


LINE_BYTES_MAX: Final = 2 * BODY_BYTES_MAX
"""A longer line is skipped without being held in memory; no entry could hold it."""

_TRIES: Final = 64
_SHOWN: Final = 60
_TAIL_BYTES: Final = 1 << 16


class SourceLine(msgspec.Struct):
    """A record, or the reason why there is none; `torn` is a last one that was not finished."""

    location: SourceLocation
    record: dict[str, Any] | None
    problem: str | None = None
    torn: bool = False
    raw: bytes = b""


def read_lines(
    path: Path, name: str | None = None, having: Sequence[bytes] = ()
) -> Iterator[SourceLine]:
    """Yield the records of a file, opened read-only; it may be compressed.

    With `having`, lines in which none of these bytes stand are passed over.
    """
    with open_file(path) as file:
        yield from lines_of(file, name or str(path), having)


def lines_of(file: BinaryIO, name: str, having: Sequence[bytes] = ()) -> Iterator[SourceLine]:
    number = 0
    for number, data in enumerate(split(file), start=1):
        if not having or (data is not None and any(words in data for words in having)):
            yield from records_in(SourceLocation(name, number), data)
    problem = problem_of(file)
    if problem is not None:
        yield SourceLine(SourceLocation(name, number + 1), None, problem)


def newest_us(path: Path) -> int | None:
    """Return the `timestamp` of the last whole record; None if the end of the file has none."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        tail = file.read(_TAIL_BYTES)
    for data in reversed(tail.split(b"\n")):
        try:
            at_us = time_us(parse_object(data).get("timestamp"))
        except ValueError:
            continue
        if at_us is not None:
            return at_us
    return None


def records_in(location: SourceLocation, data: bytes | None) -> Iterator[SourceLine]:
    """Yield the records of one line; `data` is None for one that is too long."""
    if data is None:
        yield SourceLine(location, None, f"the line is longer than {LINE_BYTES_MAX} bytes")
    elif data.strip(b" \t\r\n"):
        yield from _records(location, data)


def split(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield lines, each with its line feed; None for one that is too long."""
    while data := file.readline(LINE_BYTES_MAX):
        if len(data) < LINE_BYTES_MAX or data.endswith(b"\n"):
            yield data
            continue
        while (more := file.readline(1 << 20)) and not more.endswith(b"\n"):
            pass
        yield None


def _records(location: SourceLocation, data: bytes) -> Iterator[SourceLine]:
    try:
        record = parse_object(data)
    except ValueError as error:
        yield from _damaged(location, data, str(error))
    else:
        yield SourceLine(location, record, raw=data)


def _damaged(location: SourceLocation, data: bytes, reason: str) -> Iterator[SourceLine]:
    torn = not data.endswith(b"\n")
    at = _rescue(data)
    lost, rest = data[:at], data[at:]
    if lost.strip(b" \t\r\n\0"):
        yield SourceLine(
            location, None, f"not a record ({reason}): {_shown(lost)}", torn and not rest
        )
    elif not rest:
        yield SourceLine(location, None, f"{len(data)} bytes of nothing", torn)
    if rest:
        yield SourceLine(location, parse_object(rest), raw=rest)


def parse_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises ValueError, which says what is wrong."""
    value = parse(data)
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {type(value).__name__}, where an object is due")  # noqa: TRY004
    return value


def parse(data: bytes) -> Any:
    """Parse any JSON value; escapes of lone surrogates are kept. Raises ValueError."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"invalid UTF-8 at byte {error.start}") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _rescue(data: bytes) -> int:
    """Return where a whole record begins at the end of a line; the line's length if none does."""
    at = 0
    for _ in range(_TRIES):
        at = data.find(b'{"', at + 1)
        if at < 0:
            break
        try:
            parse_object(data[at:])
        except ValueError:
            continue
        return at
    return len(data)


def _shown(data: bytes) -> str:
    text = data[:_SHOWN].decode("utf-8", "replace").strip()
    return json.dumps(text + ("…" if len(data) > _SHOWN else ""), ensure_ascii=True)


BYTES_MAX: Final = 256 * 1024 * 1024
"""A document is read as a whole; a larger one is refused."""

MESSAGE: Final = re.compile(r'\{\s*(?:"id"\s*:\s*"[^"\\]*"\s*,\s*)?"role"\s*:')
"""How a message begins, as all agents write it."""

_RAW_TRIES: Final = 3
_FAILURES_MAX: Final = 1_000
"""Each failure may read on to the end of the file; after so many the rest is left out."""


class SourceDocument(msgspec.Struct):
    """A JSON document: its value, or the whole objects of a damaged list and its problems.

    `rows` are those objects with their numbers, `problems` what stands at a number or nowhere.
    """

    value: Any = None
    rows: list[tuple[int, Any]] = []
    problems: list[tuple[int | None, str]] = []

    @property
    def whole(self) -> bool:
        return not self.problems


def read_document(path: Path, begins: re.Pattern[str] = MESSAGE) -> SourceDocument:
    """Read the document in a file; `begins` is how a row of it begins. Raises OSError.

    An agent that writes its file anew on every save is met in the middle now and then; the file is
    read again before it is called damaged.
    """
    reason = ""
    data = b""
    for _ in range(_RAW_TRIES):
        before = path.stat()
        if before.st_size > BYTES_MAX:
            raise OSError(f"it is one document of more than {BYTES_MAX} bytes")
        data, reason = _read(path)
        try:
            return SourceDocument(parse(data)) if not reason else _rescued(data, reason, begins)
        except ValueError as error:
            reason = str(error)
        if _same(path, before):
            break
    return _rescued(data, reason, begins)


class ListedDocument(msgspec.Struct):
    """A document that ends in a long list, with each row on lines of its own: all but the rows."""

    path: Path
    about: dict[str, Any]
    begin: int
    """Where in the file the first row begins."""

    def rows(self) -> Iterator[Any]:
        """Yield the rows, one after another. Raises OSError when the file was changed since."""
        with open_file(self.path) as file:
            file.seek(self.begin)
            try:
                for row, _end in _listed(file):
                    yield parse(row)
            except ValueError as error:
                raise OSError(f"it was changed while it was read: {error}") from error


def read_listed(path: Path, name: str) -> ListedDocument | None:
    """Read a document whose field of this name is a list, as `indent=2` writes it.

    None for one that is written in another way, or damaged anywhere: that is read as a whole.
    """
    opening = f'\n  "{name}": [\n    {{\n'.encode()
    with open_file(path) as file:
        head = file.read(_BUFFER)
        at = head.find(opening)
        if at < 0 or isinstance(file, _UnpackedReader):
            return None
        begin = file.tell() - len(head) + at + len(opening) - len(b"    {\n")
        file.seek(begin)
        end = b""
        try:
            for row, behind in _listed(file):
                parse(row)
                end = behind
            about = parse_object(head[:at] + f'\n  "{name}": ['.encode() + end)
        except ValueError:
            return None
    return ListedDocument(path, about, begin) if about.get(name) == [] else None


def _listed(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows from here on; with the last, what stands behind it. Raises ValueError.

    No string of JSON has a line feed in it, so a line that closes a row is the row's end.
    """
    rest = b""
    while data := file.read(max(_BUFFER, len(rest))):
        *rows, rest = (rest + data).split(b"\n    },\n")
        for row in rows:
            yield row + b"\n    }", b""
    row, closed, end = rest.partition(b"\n    }\n")
    if not closed:
        raise ValueError("the list does not end")
    yield row + b"\n    }", end


def _read(path: Path) -> tuple[bytes, str]:
    with open_file(path) as file:
        data = file.read(BYTES_MAX + 1)
        reason = problem_of(file) or ""
    if len(data) > BYTES_MAX:
        raise OSError(f"it is one document of more than {BYTES_MAX} bytes")
    return data, reason


def _same(path: Path, before: Any) -> bool:
    after = path.stat()
    return (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def _rescued(data: bytes, reason: str, begins: re.Pattern[str]) -> SourceDocument:
    """Return the objects that are whole, found by how each begins."""
    document = SourceDocument(None, [], [(None, f"it is damaged ({reason})")])
    text = data.decode("utf-8", "replace")
    for number, value in enumerate(_objects(text, begins), start=1):
        if isinstance(value, str):
            document.problems.append((number, value))
        else:
            document.rows.append((number, value))
    return document


def _objects(text: str, begins: re.Pattern[str]) -> Iterator[dict[str, Any] | str]:
    decoder, end, failures = json.JSONDecoder(), 0, 0
    for begin in (match.start() for match in begins.finditer(text)):
        if begin < end:
            continue  # inside of the one before
        try:
            value, end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            yield f"not a record: {error}"
            failures += 1
            if failures == _FAILURES_MAX:
                yield "too much of it is damaged; the rest was left out"
                return
            continue
        yield value


def rows_of(document: SourceDocument, name: str) -> list[tuple[int, Any]]:
    """Return the list that the document is, or has under a name, with numbers."""
    if not document.whole:
        return document.rows
    value = document.value
    rows = value.get(name) if isinstance(value, dict) else value
    return list(enumerate(rows, start=1)) if isinstance(rows, list) else []


DAMAGED: Final = (sqlite3.Error, UnicodeError)
"""What is raised for a damaged database; its message may quote what is no text."""

MAGIC: Final = b"SQLite format 3\0"

Row = dict[str, Any]
Stamp = tuple[int, int, bool]


class SourceDatabase:
    """One reading of a database, as of one moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp = None if _has_log(path) else _stamp(path)
        mode = "mode=ro" if self._stamp is None else "immutable=1"
        self._connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=30, isolation_level=None
        )
        self._connection.row_factory = sqlite3.Row
        # Bytes that are no text in one row must not keep the others from being read.
        self._connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")

    def begin(self) -> None:
        """Begin a transaction: everything is read as of now."""
        self._connection.execute("BEGIN")

    def close(self) -> None:
        self._connection.close()

    def tables(self) -> dict[str, set[str]]:
        """Return the tables and the columns of each."""
        names = [row["name"] for row in self.rows("SELECT name FROM sqlite_master")]
        return {str(name): self.columns(str(name)) for name in names}

    def columns(self, table: str) -> set[str]:
        return {row["name"] for row in self.rows("SELECT name FROM pragma_table_info(?)", table)}

    def rows(self, query: str, *values: object) -> Iterator[Row]:
        """Yield the rows of a query. Raises sqlite3.Error where it cannot be read, and OSError."""
        cursor = self._connection.execute(query, values)
        try:
            for row in cursor:
                self._check()
                yield {key: row[key] for key in row.keys()}  # noqa: SIM118  (a Row is no dict)
        finally:
            with suppress(sqlite3.ProgrammingError):  # the database was closed before
                cursor.close()

    def select(
        self, table: str, wanted: Sequence[str], rest: str, *values: object
    ) -> Iterator[Row]:
        """Yield rows with these columns; None stands for those that older versions lack."""
        has = {"rowid", *self.columns(table)}
        names = ", ".join(f'"{name}"' if name in has else f'NULL AS "{name}"' for name in wanted)
        # The names are of lists in our code, never of a source.
        yield from self.rows(f"SELECT {names} FROM {table} {rest}", *values)  # noqa: S608

    def strays(self, table: str, column: str, among: str) -> Iterator[Row]:
        """Yield one row for each missing parent that rows of a table belong to."""
        yield from self.rows(
            f"SELECT {column} AS id, min(rowid) AS rowid FROM {table} "  # noqa: S608
            f"WHERE {column} NOT IN (SELECT id FROM {among}) GROUP BY {column} ORDER BY 2"
        )

    def _check(self) -> None:
        if self._stamp is not None and self._stamp != _stamp(self.path):
            raise OSError("its agent began to write to it while it was read; import it again")


def _has_log(path: Path) -> bool:
    return any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal"))


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    return status.st_size, status.st_mtime_ns, _has_log(path)


@contextmanager
def opened(path: Path) -> Iterator[SourceDatabase]:
    """Open a database as of one moment. Raises OSError when it is damaged."""
    try:
        with closing(SourceDatabase(path)) as database:
            database.begin()
            yield database
    except DAMAGED as error:
        raise OSError(f"the database is damaged: {error}") from error


def shape(path: Path) -> dict[str, set[str]]:
    """Return the tables of a database and their columns; none when it is no database."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return {}
    try:
        with closing(SourceDatabase(path)) as database:
            return database.tables()
    except DAMAGED:
        return {}


def each(rows: Iterator[Row], where: str = "what follows") -> Iterator[Row | str]:
    """Yield rows as far as they can be read, and then the reason why no more."""
    while True:
        try:
            row = next(rows, None)
        except DAMAGED as error:
            yield f"{where} in the database cannot be read: {error}"
            return
        if row is None:
            return
        yield row


def as_bytes(value: object) -> bytes:
    """Return a column's bytes as they were written, whatever type SQLite gives it."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def json_of(value: object) -> Any:
    """Parse the JSON in a column; None for none. Raises ValueError."""
    return None if value is None else parse(as_bytes(value))


def text_of(value: object) -> str | None:
    """Return the text in a column, with marks for bytes that are no UTF-8, or None."""
    if not isinstance(value, str | bytes):
        return None
    return as_bytes(value).decode("utf-8", "replace")
