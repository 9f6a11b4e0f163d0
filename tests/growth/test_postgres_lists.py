"""On PostgreSQL too a list looks at the rows that it finds, not at those that the store holds."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from killick.stores.contract import Listing
from killick.stores.postgres.statements import filters_of, queries, tenant_number
from killick.stores.sql import list_rows
from tests.postgres_fixtures import shared

SIZES = (1_000, 10_000)
TENANT = tenant_number("default")
Connection = psycopg.Connection[tuple[Any, ...]]

RARE: dict[str, dict[str, Any]] = {
    "tag": {"tag": "rare"},
    "model": {"model": "rare"},
    "project": {"project": "/rare"},
    "pinned": {"pinned": True},
    "interrupted": {"interrupted": True},
    "parent": {"parent": "rare"},
    "fork": {"fork_of": "rare"},
    "a tag that all have": {"tag": "common"},
    "a project that all have": {"project": "/common"},
    "not interrupted": {"interrupted": False},
    "all": {},
}

_SESSIONS = """
INSERT INTO killick.sessions
       (tenant, session, id, head, stamp, fence, created_at_us, updated_at_us, base, base_seq,
        indexed, behind, archived, deleted, pinned, status, type, project, parent, about)
SELECT %(tenant)s, n, convert_to('copy_' || n, 'UTF8'), 1, 0, 0, n, n,
       CASE WHEN n = 2 THEN 1 END, 0, 1, false, false, false, n = 1,
       CASE WHEN n = 1 THEN 'interrupted' ELSE 'completed' END, 'user',
       CASE WHEN n = 1 THEN '/rare' ELSE '/common' END::bytea,
       CASE WHEN n = 1 THEN 'rare' END::bytea, '{}'
FROM generate_series(1, %(count)s) AS n
"""
_LABELS = """
INSERT INTO killick.labels (tenant, session, kind, label)
SELECT %(tenant)s, n, kind, CASE WHEN n = 1 THEN 'rare' ELSE 'common' END::bytea
FROM generate_series(1, %(count)s) AS n, unnest(ARRAY['tag', 'model']) AS kind
"""
_IDS = "INSERT INTO killick.session_ids (tenant, id, session) VALUES (%(tenant)s, 'rare', 1)"


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    server = shared("18")
    server.empty()
    with psycopg.connect(server.server.conninfo(), autocommit=True) as opened:
        yield opened
    server.empty()


def fill(connection: Connection, count: int) -> None:
    shared("18").empty()
    for statement in (_SESSIONS, _LABELS, _IDS):
        connection.execute(statement.encode(), {"tenant": TENANT, "count": count})
    connection.execute("ANALYZE killick.sessions, killick.labels, killick.session_ids")


def _rows_of(connection: Connection, listing: Listing) -> tuple[int, int]:
    """Return how many rows the server looks at for a list, and how many it finds."""
    looked = 0

    def fetch(sql: str, bindings: Any) -> list[Any]:
        nonlocal looked
        looked += looked_at(connection, sql, bindings)
        cursor = psycopg.ClientCursor(connection)
        cursor.execute(sql.encode(), bindings)
        return cursor.fetchall()

    before = {"before_us": 2**62, "before_id": b""}
    rows = list_rows(queries("killick").sessions, listing, {**filters_of(listing), **before}, fetch)
    return looked, len(rows)


def looked_at(connection: Connection, sql: str, bindings: dict[str, Any]) -> int:
    """Return how many rows the server looks at for a statement."""
    cursor = psycopg.ClientCursor(connection)
    cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), bindings)
    plan = cursor.fetchall()[0][0]
    return _looked(plan[0]["Plan"] if not isinstance(plan, str) else json.loads(plan))


def _looked(node: dict[str, Any]) -> int:
    """Add up the rows that the scans of a plan return and throw away."""
    own = 0
    if "Scan" in node["Node Type"]:
        removed = node.get("Rows Removed by Filter", 0)
        removed += node.get("Rows Removed by Index Recheck", 0)
        own = round((node["Actual Rows"] + removed) * node["Actual Loops"])
    return own + sum(_looked(child) for child in node.get("Plans", []))


def test_a_list_looks_at_no_more_rows_in_a_store_ten_times_as_large(
    connection: Connection,
) -> None:
    counts: dict[str, list[int]] = {name: [] for name in RARE}
    for size in SIZES:
        fill(connection, size)
        for name, filters in RARE.items():
            looked, matches = _rows_of(connection, Listing(tenant="default", limit=20, **filters))
            assert matches in (1, 20), (name, matches)
            counts[name].append(looked)
    grown = {
        name: (small, large) for name, (small, large) in counts.items() if large > small * 1.2 + 50
    }
    assert grown == {}
    assert max(large for _, large in counts.values()) < 3_000, counts
