"""SQLite databases of other agents: read, never changed, also while the agent writes to them.

A database that has a log beside it is in use: it is opened as a reader like any other, and what is
in the log is read along. One without a log is opened in a way that leaves no files beside it; then
nothing keeps a writer away, so each row is looked at again before it is believed.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from killick.exchange.lines import parse

DAMAGED: Final = (sqlite3.Error, UnicodeError)
"""What is raised for a damaged database; its message may quote what is no text."""

MAGIC: Final = b"SQLite format 3\0"

Row = dict[str, Any]
Stamp = tuple[int, int, bool]


class Database:
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
        """Everything from here on is read as it is now."""
        self._connection.execute("BEGIN")

    def close(self) -> None:
        self._connection.close()

    def tables(self) -> dict[str, set[str]]:
        """The tables, and the columns of each."""
        names = [row["name"] for row in self.rows("SELECT name FROM sqlite_master")]
        return {str(name): self.columns(str(name)) for name in names}

    def columns(self, table: str) -> set[str]:
        return {row["name"] for row in self.rows("SELECT name FROM pragma_table_info(?)", table)}

    def rows(self, query: str, *values: object) -> Iterator[Row]:
        """The rows of a query. Raises sqlite3.Error where it cannot be read, and OSError."""
        found = self._connection.execute(query, values)
        try:
            for row in found:
                self._check()
                yield {key: row[key] for key in row.keys()}  # noqa: SIM118  (a Row is no dict)
        finally:
            with suppress(sqlite3.ProgrammingError):  # the database was closed before
                found.close()

    def select(
        self, table: str, wanted: Sequence[str], rest: str, *values: object
    ) -> Iterator[Row]:
        """Rows with these columns; older versions lack some, and None stands for those."""
        has = {"rowid", *self.columns(table)}
        names = ", ".join(f'"{name}"' if name in has else f'NULL AS "{name}"' for name in wanted)
        # The names are of lists in our code, never of a source.
        yield from self.rows(f"SELECT {names} FROM {table} {rest}", *values)  # noqa: S608

    def strays(self, table: str, column: str, among: str) -> Iterator[Row]:
        """Rows of a table that belong to something that is not there, one for each of these."""
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
def opened(path: Path) -> Iterator[Database]:
    """A database that is read as of one moment. Raises OSError when it is damaged."""
    try:
        with closing(Database(path)) as database:
            database.begin()
            yield database
    except DAMAGED as error:
        raise OSError(f"the database is damaged: {error}") from error


def shape(path: Path) -> dict[str, set[str]]:
    """The tables of a database and their columns; none when it is no database."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return {}
    try:
        with closing(Database(path)) as database:
            return database.tables()
    except DAMAGED:
        return {}


def each(rows: Iterator[Row], where: str = "what follows") -> Iterator[Row | str]:
    """Rows as far as they can be read, and then the reason why no more."""
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
    """A column as it was written, whatever SQLite takes it for."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def json_of(value: object) -> Any:
    """The JSON in a column; None for none. Raises ValueError."""
    return None if value is None else parse(as_bytes(value))


def text_of(value: object) -> str | None:
    """The text in a column. Bytes that are no UTF-8 become marks; None is no text."""
    if not isinstance(value, str | bytes):
        return None
    return as_bytes(value).decode("utf-8", "replace")
