"""Every statement is accepted by a real store, and none reads a whole table by accident."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from killick import Message, Store, Text
from killick.stores.sqlite.rows import SQL

MAY_SCAN = {
    *("loose_blobs", "session_keys", "holds"),
    *("count_sessions", "count_entries", "count_deltas", "count_blobs"),
}
TABLES = ("entries", "deltas", "sessions")
SOURCE = Path(__file__).parents[2] / "src/killick/stores/sqlite"


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path = tmp_path_factory.mktemp("store") / "work.db"
    with Store(path) as store:
        session = store.create_session()
        with session.turn("go") as turn:
            turn.record(Message(role="assistant", parts=[Text("done")]))
    opened = apsw.Connection(str(path))
    opened.pragma("writable_schema", 1)  # as it is where a damaged index is forgotten
    yield opened
    opened.close()


def plan(connection: apsw.Connection, sql: str) -> list[str]:
    names = dict.fromkeys(re.findall(r":([a-z_]+)", sql))
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", names)]


@pytest.mark.parametrize("name", vars(SQL))
def test_every_statement_is_accepted_by_a_real_store(
    connection: apsw.Connection, name: str
) -> None:
    plan(connection, getattr(SQL, name))


@pytest.mark.parametrize("name", [name for name in vars(SQL) if name not in MAY_SCAN])
def test_no_statement_scans_a_whole_table(connection: apsw.Connection, name: str) -> None:
    steps = plan(connection, getattr(SQL, name))
    scans = [step for step in steps if re.match(rf"SCAN ({'|'.join(TABLES)})\b", step)]
    # An index of few rows is read as a whole on purpose.
    assert [step for step in scans if "sessions_stopping" not in step] == []


@pytest.mark.parametrize("name", ["entries", "newest_entries", "deltas", "sessions"])
def test_no_page_is_sorted_in_memory(connection: apsw.Connection, name: str) -> None:
    steps = plan(connection, getattr(SQL, name))
    assert not [step for step in steps if "USE TEMP B-TREE" in step]


def test_every_statement_is_used_and_every_one_that_is_used_exists() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in SOURCE.glob("*.py"))
    assert set(re.findall(r"\bSQL\.(\w+)", source)) == set(vars(SQL))


def test_every_statement_says_what_it_is_for() -> None:
    lines = (SOURCE / "queries.sql").read_text(encoding="utf-8").splitlines()
    silent = [
        line
        for line, after in pairwise(lines)
        if re.fullmatch(r"-- \w+ --", line) and not re.fullmatch(r"-- [A-Z].*\.", after)
    ]
    assert silent == []
