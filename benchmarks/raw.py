"""What Killick is measured against: apsw with nothing around it, at the same durability."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from benchmarks.stats import timed
from killick.stores.sqlite import connection

BODY_BYTES: Final = 600
TEXT: Final = ("All work and no play makes a dull row. " * 16)[:BODY_BYTES]

CHECKPOINT_PAGES: Final = connection._CHECKPOINT_PAGES
"""What the store is set to: neither side may copy its log back more often than the other."""

WARM_APPENDS: Final = 500
"""Appends between two looks at the log while warming up."""

_WARM_ROUNDS: Final = 40


def log_grew(path: Path, before: int) -> tuple[bool, int]:
    """Whether the log of this database has grown, and its size now."""
    size = Path(f"{path}-wal").stat().st_size
    return size > before, size


def warm_up(path: Path, append: Callable[[int], object]) -> None:
    """Append until the log is written over from its beginning: one that still grows costs double.

    Both sides are brought into this state, at whatever size their settings let the log reach.
    """
    size = 0
    for _ in range(_WARM_ROUNDS):
        append(WARM_APPENDS)
        grew, size = log_grew(path, size)
        if not grew:
            return


class RawWriter:
    """One row, one transaction, one fsync, on the caller's own thread."""

    def __init__(self, folder: Path, *, warm: bool = True) -> None:
        path = folder / "raw.db"
        self._connection = apsw.Connection(str(path))
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", "full")
        self._connection.wal_autocheckpoint(CHECKPOINT_PAGES)
        self._connection.execute("CREATE TABLE rows (key INTEGER PRIMARY KEY, body BLOB NOT NULL)")
        self._body = TEXT.encode()
        if warm:
            warm_up(path, self.append)

    def block(self, appends: int) -> float:
        """Seconds for one durable append."""
        return timed(lambda: self.append(appends), appends)

    def append(self, appends: int) -> None:
        execute = self._connection.execute
        for _ in range(appends):
            execute("BEGIN IMMEDIATE")
            execute("INSERT INTO rows (body) VALUES (?)", (self._body,))
            execute("COMMIT")

    def load(self, last: int = -1) -> int:
        """Fetch the newest rows, or all; how many there were."""
        sql = "SELECT body FROM rows ORDER BY key DESC LIMIT ?"
        return len(self._connection.execute(sql, (last,)).fetchall())

    def close(self) -> None:
        self._connection.close()
