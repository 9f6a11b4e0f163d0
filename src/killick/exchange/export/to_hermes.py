"""A session as rows of hermes-agent's database. A database that is there is added to."""

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from killick.exchange.export.handover import Answered, Handover, Holds, Spoken

HOLDS: Final = Holds()

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, started_at REAL NOT NULL, title TEXT,
    parent_session_id TEXT);
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT,
    timestamp REAL NOT NULL);
"""
"""What hermes needs to find; it adds the columns and tables that it misses when it opens it."""


def count(database: Path, native_id: str) -> int | None:
    """Return how many messages the session has there; None when it is not there."""
    if not database.exists():
        return None
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        if not {"sessions", "messages"} <= tables:
            return None
        row = connection.execute("SELECT 1 FROM sessions WHERE id = ?", (native_id,)).fetchone()
        if row is None:
            return None
        rows = connection.execute(
            "SELECT count(*) FROM messages WHERE session_id = ?", (native_id,)
        )
        return int(rows.fetchone()[0])


def insert(handover: Handover, database: Path) -> None:
    """Add the session, in one transaction. If interrupted: it is there whole, or not at all."""
    database.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        connection.executescript(_TABLES)
        connection.execute("BEGIN IMMEDIATE")
        session = {
            "id": handover.native_id,
            "source": "cli",
            "started_at": handover.created_us / 1e6,
            "title": None,
            "message_count": len(handover.items),
            "cwd": handover.folder,
        }
        _insert(connection, "sessions", [session])
        _insert(connection, "messages", (_row(handover, item) for item in handover.items))


def _row(handover: Handover, item: Spoken | Answered) -> dict[str, Any]:
    row: dict[str, Any] = {
        "session_id": handover.native_id,
        "timestamp": item.at_us / 1e6,
        "content": item.text,
        "role": "tool" if isinstance(item, Answered) else item.role,
    }
    if isinstance(item, Answered):
        return row | {"tool_call_id": item.call_id, "tool_name": item.name}
    if item.calls:
        row["tool_calls"] = json.dumps([
            {"id": call.id, "call_id": call.id, "type": "function",
             "function": {"name": call.name, "arguments": call.arguments}}
            for call in item.calls
        ])  # fmt: skip
    return row


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[dict[str, Any]]) -> None:
    """Insert rows into the columns that this version of hermes has."""
    has = {column[1] for column in connection.execute(f"PRAGMA table_info({table})")}
    for row in rows:
        held = {name: value for name, value in row.items() if name in has and value is not None}
        names, marks = ", ".join(held), ", ".join("?" * len(held))
        connection.execute(
            f"INSERT INTO {table} ({names}) VALUES ({marks})",  # noqa: S608
            (*held.values(),),
        )
