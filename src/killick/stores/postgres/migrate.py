"""Forward-only numbered migrations, all that are missing in one transaction, under one lock.

The store keeps two numbers: `version`, the newest migration it has, and `oldest`, the oldest
version of the code that may use it. Only the second one refuses, so several versions of the code
may run while hosts are upgraded one after another.
"""

import time
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace
from psycopg import errors as pg

from killick.errors import StoreBusy, StoreNewer, StoreNotOurs, StoreReadOnly
from killick.stores.postgres.connection import Address, Connection, Link
from killick.stores.postgres.statements import DEFAULT_SCHEMA, in_schema
from killick.stores.sql import Migration, build, numbered

_QUEUE_SECONDS: Final = 0.2
"""How long a migration waits for a table: every other process that wants it waits behind it."""

_STEP_ASIDE_SECONDS: Final = 0.1

OLDEST: Final = 4
"""The oldest version of this code that may open what this version writes."""

_HOUSE: Final = """
CREATE TABLE killick.meta (name text PRIMARY KEY, value bigint NOT NULL);
CREATE TABLE killick.migrations (
    number bigint PRIMARY KEY, name text NOT NULL, at_us bigint NOT NULL, build text NOT NULL);
"""


_OLD_SCHEMA: Final = "holdfast"
"""The default schema before the renaming; a store that lies there is used there."""

_OURS: Final = ["entries", "meta", "migrations"]
"""Tables that a schema of ours has, whatever else is in it."""

_DEFAULT_SCHEMAS: Final = """
SELECT n.nspname, count(c.oid) FROM pg_namespace AS n
LEFT JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = ANY (%s)
WHERE n.nspname IN (%s, %s) GROUP BY n.nspname
"""


def migrations() -> list[Migration]:
    """Return all migrations, in order."""
    return numbered("killick.stores.postgres")


def find_schema(line: Link, address: Address) -> Address:
    """Choose the schema for a URL that names none: ours, or an old store's if only that exists."""
    if address.named is not None:
        return address
    rows = line.connection.execute(
        _DEFAULT_SCHEMAS, (_OURS, DEFAULT_SCHEMA, _OLD_SCHEMA)
    ).fetchall()
    tables: dict[str, int] = dict(rows)
    old = DEFAULT_SCHEMA not in tables and tables.get(_OLD_SCHEMA) == len(_OURS)
    return replace(address, named=_OLD_SCHEMA if old else DEFAULT_SCHEMA)


def bring_up_to_date(line: Link, address: Address, wait_seconds: float) -> None:
    """Create the store or migrate it. The second process to come finds nothing left to do.

    If interrupted: all that was missing is there with its record, or nothing is.
    """
    schema, shown = address.schema, address.shown
    connection, newest = line.connection, len(migrations())
    if _version(connection, schema, shown) == newest:
        return
    if line.standby:
        raise StoreReadOnly(f"{shown}: a standby in recovery holds no store yet; name the primary")
    # A table may be large, and other processes are at work in it: this takes its time.
    connection.unhurried = True
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            _migrate(connection, schema, shown, deadline)
        except (pg.LockNotAvailable, pg.DeadlockDetected) as error:
            # Whichever transaction is in the way goes first: nothing was changed here.
            if time.monotonic() > deadline:
                raise StoreBusy(
                    f"{shown}: the store must be brought up to date, and others were at work in "
                    f"its tables for {wait_seconds:g} s; nothing was changed, try again"
                ) from error
            time.sleep(_STEP_ASIDE_SECONDS)
        else:
            break
    connection.unhurried = False


def _migrate(connection: Connection, schema: str, shown: str, deadline: float) -> None:
    with connection.transaction():
        _set_patience(connection, deadline - time.monotonic())
        # For this transaction only: a lock of the session would stay behind in a pooler.
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_lock(schema),))
        # Shorter than it takes the server to find that two wait for each other, and to choose one.
        _set_patience(connection, _QUEUE_SECONDS)
        at = _version(connection, schema, shown)
        if at == 0:
            _begin(connection, schema)
        for migration in migrations()[at:]:
            _apply(connection, schema, migration)


def _set_patience(connection: Connection, seconds: float) -> None:
    waiting = f"{max(1, int(seconds * 1000))}ms"
    connection.execute("SELECT set_config('lock_timeout', %s, true)", (waiting,))


def _begin(connection: Connection, schema: str) -> None:
    # Looked up first: a role that may not create schemas may still have one.
    exists = connection.execute(
        "SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)
    ).fetchone()
    if exists is None:
        connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
    connection.execute(in_schema(_HOUSE, schema).encode())


_NOTE_MIGRATION: Final = (
    "INSERT INTO killick.migrations (number, name, at_us, build) VALUES (%s, %s, %s, %s)"
)
_SAVE_VERSION: Final = (
    "INSERT INTO killick.meta (name, value) VALUES ('version', %s), ('oldest', %s) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


def _apply(connection: Connection, schema: str, migration: Migration) -> None:
    number, name, sql = migration
    connection.execute(in_schema(sql, schema).encode())
    noted = (number, name, time.time_ns() // 1000, build())
    connection.execute(in_schema(_NOTE_MIGRATION, schema).encode(), noted)
    connection.execute(in_schema(_SAVE_VERSION, schema).encode(), (number, OLDEST))


def _version(connection: Connection, schema: str, shown: str) -> int:
    """Return the store's version; 0 when there is none. Raises StoreNewer, StoreNotOurs."""
    tables = connection.execute(
        "SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname IN ('meta', 'entries', 'sessions')",
        (schema,),
    ).fetchall()
    if not tables:
        return 0
    if ("meta",) not in tables:
        raise StoreNotOurs(f"{shown}: the schema has tables that Killick did not make")
    rows = connection.execute(
        in_schema("SELECT name, value FROM killick.meta", schema).encode()
    ).fetchall()
    stored: dict[str, int] = dict(rows)
    version = int(stored.get("version", 0))
    check_allowed(stored.get("oldest", 0), version, shown)
    return min(version, len(migrations()))


def check_allowed(oldest: int, version: int, shown: str) -> None:
    """Raises StoreNewer if only newer versions of this code may use the store."""
    newest = len(migrations())
    if oldest > newest:
        raise StoreNewer(
            f"{shown} was written by a newer Killick (format {version}, this one knows {newest}); "
            "install the newer version to open it"
        )


def _lock(schema: str) -> int:
    """Name the lock as versions from before the renaming do: both may start at once."""
    return int.from_bytes(blake2b(f"holdfast {schema}".encode(), digest_size=8).digest()) >> 1
