"""Forward-only numbered migrations, each in one transaction with its record.

The store keeps two numbers: `version`, the newest migration it has, and `oldest`, the oldest
version of the code that may open it. Only the second one refuses. An existing store is copied
before its first migration, while others write, and migrated with the turn to write; the copy is
removed when the migrated file was checked.
"""

import os
import secrets
import time
from collections.abc import Collection
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, BinaryIO, Final

import apsw

from killick.errors import SessionDamaged, StoreBusy, StoreNewer, StoreNotOurs, StoreReadOnly
from killick.stores.engine.session_ops import save_derived
from killick.stores.sql import Migration, build, numbered
from killick.stores.sqlite.frozen import DatabaseFile, FrozenFile
from killick.stores.sqlite.generation import new_generation, renew
from killick.stores.sqlite.rows import SqliteTransaction

APPLICATION_ID: Final = 0x484C4446
"""'HLDF' in the header of the file, so that a store can be told from any other database."""

OLDEST: Final = 9
"""The oldest version of this code that may open what this version writes."""

_DERIVES: Final = frozenset({2})
"""Migrations that add something which is derived from the journals, by the newest one's tables."""

_REINDEXES: Final = frozenset({9})
"""Migrations with which the search index is made anew."""


def migrations() -> list[Migration]:
    """Return all migrations, in order."""
    return numbered("killick.stores.sqlite")


def bring_up_to_date(connection: apsw.Connection, path: Path) -> None:
    """Create the store or migrate it; a second process finds nothing left to do.

    Raises SQLite's own errors.
    If interrupted: each migration has happened with its record, or not at all.
    """
    at = stored_version(connection, path)
    pending = [migration for migration in migrations() if migration.number > at]
    if not pending:
        return
    if at == 0:
        _claim(connection)
    for migration in pending:
        _apply(connection, migration)


def _claim(connection: apsw.Connection) -> None:
    """Make an empty file ours. The log begins after that: the file's own bytes say whose it is."""
    if not connection.pragma("user_version"):
        connection.execute(
            f"BEGIN; PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {new_generation()}; COMMIT"
        )
    connection.pragma("journal_mode", "wal")


def stored_version(connection: apsw.Connection, path: Path) -> int:
    """Return the newest migration the store has; 0 for an empty file. Raises StoreNotOurs."""
    empty = connection.pragma("page_count") == 0
    ours = connection.pragma("application_id") == APPLICATION_ID
    if empty or (ours and not connection.table_exists("main", "meta")):
        return 0
    if not ours:
        raise StoreNotOurs(f"{path} is a database that Killick did not make; name another file")
    stored = dict(connection.execute("SELECT name, value FROM meta"))
    newest = len(migrations())
    if stored["oldest"] > newest:
        raise StoreNewer(
            f"{path} was written by a newer Killick (format {stored['version']}, this one knows "
            f"{newest}); install the newer version to open it"
        )
    return int(stored["version"])


def is_behind(connection: apsw.Connection, path: Path) -> int | None:
    """Return the version of a store that lacks a migration; None for a new or a current one."""
    at = stored_version(connection, path)
    return at if 0 < at < len(migrations()) else None


def check_format(connection: apsw.Connection, path: Path) -> None:
    """Refuse a store that may only be read and lacks a migration: statements would not find it.

    Raises StoreReadOnly, StoreNewer, StoreNotOurs.
    """
    at, newest = stored_version(connection, path), len(migrations())
    if at < newest:
        raise StoreReadOnly(
            f"{path} has format {at} and is read in format {newest}, to which it may not be "
            "brought; open it once where it may be written, or a copy of it"
        )


def _apply(connection: apsw.Connection, migration: Migration) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(migration.sql)
        if migration.number in _DERIVES:
            connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('derive', 1)")
        if migration.number in _REINDEXES:
            SqliteTransaction(connection, lambda _: True).reset_index(substrings=None)
        if migration.number == len(migrations()):
            _rebuild_if_needed(connection)
        connection.execute(
            "INSERT INTO migrations (number, name, at_us, build) VALUES (?, ?, ?, ?)",
            (migration.number, migration.name, time.time_ns() // 1000, build()),
        )
        connection.execute(
            "INSERT OR REPLACE INTO meta (name, value) VALUES ('version', ?), ('oldest', ?)",
            (migration.number, OLDEST),
        )
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _rebuild_if_needed(connection: apsw.Connection) -> None:
    """Derive anew what migrations have added; a damaged session waits for the doctor.

    Of the sessions in which a turn runs, always: who runs it is in their rows since 0005.
    """
    connection.execute("DELETE FROM meta WHERE name = 'derive'")
    which = "SELECT key FROM sessions"
    if not connection.changes():
        which = "SELECT key FROM sessions WHERE turn_seq IS NOT NULL"
    tx = SqliteTransaction(connection, lambda _: True)
    keys: list[Any] = connection.execute(which).fetchall()
    for (key,) in keys:
        try:
            save_derived(tx, key)
        except SessionDamaged:
            continue


class Copier(FrozenFile):
    """Copies a store's file before it is migrated, while others write."""

    _copy: BinaryIO | None = None

    def run(self, version: int, turn: ExitStack) -> Path:
        """Return a copy of the file as it is now, and leave the turn to write with the caller.

        Raises StoreBusy if others read old pages in the log until time was over. If interrupted:
        the store is as it was, and a part of a copy may lie beside it.
        """
        target = Path(f"{self._path}-backup-{version}")
        partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
        try:
            with (
                closing(DatabaseFile(self._path)) as file,
                open(partial, "xb", opener=_private) as self._copy,
            ):
                if not self.visit(file, turn):
                    raise StoreBusy(
                        f"{self._path} is to be migrated, and another process keeps its log: let "
                        "it finish reading, or end it, then try again"
                    )
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        with closing(apsw.Connection(str(target))) as copy:
            renew(copy)
        return target

    def _visit(self, file: DatabaseFile, pages: Collection[int] | None) -> None:
        assert self._copy is not None
        header = file.header()
        if pages is None:
            self._copy.seek(0)
            for data in file.pieces(header):
                self._copy.write(data)
        else:
            for number, data, _ in file.pages(header, pages):
                self._copy.seek((number - 1) * header.page_size)
                self._copy.write(data)
        self._copy.truncate(header.pages * header.page_size)
        self._copy.flush()
        os.fsync(self._copy.fileno())

    def _conclude(self, connection: apsw.Connection) -> None:
        connection.execute("ROLLBACK")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
