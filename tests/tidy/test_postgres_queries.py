"""Every statement is accepted by a real server, and those on the way of a write use an index."""

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import psycopg
import pytest

from killick.stores.postgres.statements import queries
from killick.stores.sql import chosen
from tests.postgres_fixtures import shared

Connection = psycopg.Connection[tuple[Any, ...]]
SQL = dict(vars(queries("killick")))
FILTERS = {
    *("archived", "type", "title", "since_us", "until_us", "fork_of", "parent", "tag", "model"),
    *("project", "interrupted", "pinned"),
}
WAYS = {
    *("time", "newest", "fork_of", "parent", "tag", "model", "project", "interrupted", "pinned"),
}
LISTS = {f"sessions by {way}": chosen(SQL["sessions"], way, frozenset(FILTERS)) for way in WAYS}
LISTS["usage by all"] = chosen(
    SQL["usage"], "all", frozenset({"session", "project", "model", "since_day", "until_day"})
)
"""The statements that are put together; tests/growth counts the rows that it looks at."""
FRAGMENTS = {
    "sessions",
    "usage",
    "match_words",
    "match_substring",
    "rank_newest",
    "search_newest",
    "index_parts",
}
"""Parts of statements; the conformance suite puts them together, and `chosen` those of lists."""

HOT = {
    *("lock_session", "append_entry", "insert_entry", "save_head", "save_session", "has_entry"),
    *("entries", "newest_entries", "marked_entries", "newest_marked", "find_entry", "deltas"),
    "drop_deltas",
    *(
        "session",
        "find_key",
        "marks_of_one",
        "head_of",
        "base_of",
        "has_reference",
        "keep_blob",
        "blob",
    ),
}
"""What a write or a read of one session runs: it must look into one partition only."""


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with psycopg.connect(shared("18").server.conninfo(), autocommit=True) as opened:
        yield opened


def numbered(sql: str) -> str:
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
    return re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", sql)


def test_every_statement_says_what_it_is_for() -> None:
    text = files("killick.stores.postgres").joinpath("queries.sql").read_text(encoding="utf-8")
    blocks = re.findall(r"^-- (\w+) --\n(.*)$", text, re.MULTILINE)
    assert {name for name, _ in blocks} == set(SQL)
    assert [name for name, first in blocks if not first.startswith("-- ")] == []


@pytest.mark.parametrize("name", sorted({*SQL, *LISTS} - FRAGMENTS))
def test_every_statement_is_accepted_by_a_real_server(connection: Connection, name: str) -> None:
    sql = {**SQL, **LISTS}[name]
    if sql.startswith("TRUNCATE"):  # cannot be prepared, only run
        return
    connection.execute(f"PREPARE this AS {numbered(sql)}".encode())
    connection.execute("DEALLOCATE this")


@pytest.mark.parametrize("name", sorted(HOT))
def test_a_statement_about_one_session_looks_into_one_partition(
    connection: Connection, name: str
) -> None:
    names = dict.fromkeys(re.findall(r"%\((\w+)\)s", SQL[name]))
    values: dict[str, Any] = {
        one: b"x" if one in _BYTES else True if one in _FLAGS else 7 for one in names
    }
    values |= {one: "x" for one in ("status", "holder") if one in names}
    values |= {"due": b"x"} if "due" in names else {}
    cursor = psycopg.ClientCursor(connection)
    cursor.execute(f"EXPLAIN {SQL[name]}".encode(), values)
    plan = [str(row[0]) for row in cursor.fetchall()]
    assert len(set(re.findall(r"_\d\d\b", " ".join(plan)))) <= 1, "\n".join(plan)


_BYTES = {
    "due",
    "identity",
    "digest",
    "body",
    "blob",
    "id",
    "about",
    "type",
    "project",
    "title",
    "parent",
    "link",
}
_FLAGS = {"archived", "deleted", "pinned"}
