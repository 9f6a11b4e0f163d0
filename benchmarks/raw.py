"""What Holdfast is measured against: apsw with nothing around it, at the same durability."""

from pathlib import Path
from typing import Final

import apsw

from benchmarks.stats import timed

BODY_BYTES: Final = 600
TEXT: Final = ("All work and no play makes a dull row. " * 16)[:BODY_BYTES]

WARM_APPENDS: Final = 2_500
"""Fills the log of either side and begins it again: one that still grows costs double."""


class RawWriter:
    """One row, one transaction, one fsync, on the caller's own thread."""

    def __init__(self, folder: Path) -> None:
        self._connection = apsw.Connection(str(folder / "raw.db"))
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", "full")
        self._connection.execute("CREATE TABLE rows (key INTEGER PRIMARY KEY, body BLOB NOT NULL)")
        self._body = TEXT.encode()
        self._append(WARM_APPENDS)

    def block(self, appends: int) -> float:
        """Seconds for one durable append."""
        return timed(lambda: self._append(appends), appends)

    def _append(self, appends: int) -> None:
        execute = self._connection.execute
        for _ in range(appends):
            execute("BEGIN IMMEDIATE")
            execute("INSERT INTO rows (body) VALUES (?)", (self._body,))
            execute("COMMIT")

    def close(self) -> None:
        self._connection.close()
