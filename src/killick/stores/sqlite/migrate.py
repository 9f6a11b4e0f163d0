"""Forward-only numbered migrations, each in one transaction with its record.

The store keeps two numbers: `version`, the newest migration it has, and `oldest`, the oldest
version of the code that may open it. Only the second one refuses. A backup is made before the
first migration of an existing store. All of it runs while this process has the turn to write.
"""

import time
from pathlib import Path
from typing import Any, Final

import apsw

from killick.errors import SessionDamaged, StoreNewer, StoreNotOurs, StoreReadOnly
from killick.stores.engine.session_ops import save_derived
from killick.stores.sql import Migration, build, numbered
from killick.stores.sqlite.generation import new_generation, renew
from killick.stores.sqlite.rows import SqliteTransaction

APPLICATION_ID: Final = 0x484C4446
"""'HLDF' in the header of the file, so that a store can be told from any other database."""

OLDEST: Final = 8
"""The oldest version of this code that may open what this version writes."""

_DERIVES: Final = frozenset({2})
"""Migrations that add something which is derived from the journals, by the newest one's tables."""


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
    else:
        _back_up(connection, Path(f"{path}-backup-{at}"))
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


def _back_up(connection: apsw.Connection, target: Path) -> None:
    target.unlink(missing_ok=True)
    copy = apsw.Connection(str(target))
    target.chmod(0o600)
    try:
        with copy.backup("main", connection, "main") as backup:
            backup.step()
        renew(copy)
    finally:
        copy.close()
