"""Stores of many sessions, copied row by row from one, and a count of the steps that a read takes.

A step is one instruction of SQLite's machine: rows and pages that are read take some each, so a
read of which no more steps are taken in a larger store does not depend on its size.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from killick import Store
from killick.model.sessions import Project
from killick.stores.contract import Reader
from killick.stores.sqlite.database import SqliteDatabase

T = TypeVar("T")

_COPY_SESSIONS = """
WITH RECURSIVE series (value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM series LIMIT :copies)
INSERT INTO sessions (tenant, id, fence, turn_seq, stop_seq, queue_seq, created_at_us,
                      updated_at_us, archived, deleted, about, type, project, title, status,
                      pinned, parent, link)
SELECT tenant, CAST(printf('copy_%08d', value) AS BLOB), fence, turn_seq, stop_seq, queue_seq,
       created_at_us + value, updated_at_us + value, archived, deleted, about, type, project,
       title, status, pinned, parent, link
FROM series, sessions WHERE key = :key
"""
_COPIED = "(SELECT key AS copy FROM sessions WHERE substr(id, 1, 5) = x'636f70795f')"
_COPY_ENTRIES = f"""
INSERT INTO entries (session, seq, identity, at_us, crc, body, blob, mark, link)
SELECT copy, seq, randomblob(16), at_us, crc, body, blob, mark, link
FROM {_COPIED}, entries WHERE session = :key
"""
_COPY_USAGE = f"""
INSERT INTO usage SELECT copy, day, provider, model, calls, input, output, cached, reasoning, cost
FROM {_COPIED}, usage WHERE session = :key
"""
_COPY_LABELS = f"""
INSERT INTO labels SELECT copy, kind, label FROM {_COPIED}, labels WHERE session = :key
"""


def make_store(path: Path, copies: int) -> Path:
    """Make a store with so many copies of one session, and none of them has what is rare."""
    with Store(path, indexing=False) as store:
        session = store.create_session(id="pattern", project=Project("/common"), tags=["common"])
        with session.turn("Why?") as turn, turn.stream(model="common-1") as reply:
            reply.text("Because.")
    connection = apsw.Connection(str(path))
    connection.execute("BEGIN")
    pattern = connection.execute("SELECT key FROM sessions WHERE id = ?", (b"pattern",)).get
    for statement in (_COPY_SESSIONS, _COPY_ENTRIES, _COPY_USAGE, _COPY_LABELS):
        connection.execute(statement, {"key": pattern, "copies": copies})
    connection.execute("COMMIT")
    connection.close()
    return path


def steps_of(path: Path, read: Callable[[Reader], T]) -> tuple[int, T]:
    """Return how many steps SQLite takes for a read, and its outcome."""
    database = SqliteDatabase(path)
    steps = 0

    def count(event: dict[str, Any]) -> None:
        nonlocal steps
        steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    try:
        with database.reading() as reader:
            connection = reader.connection
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
            outcome = read(reader)
            connection.trace_v2(0, None)
    finally:
        database.close()
    return steps, outcome
