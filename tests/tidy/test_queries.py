"""Every statement is accepted by a real store, and none reads a whole table by accident."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from killick import Message, Store, Text
from killick.stores.sql import chosen
from killick.stores.sqlite.rows import SQL

MAY_SCAN = {
    *("loose_blobs", "session_keys", "holds"),
    *("count_sessions", "count_entries", "count_deltas", "count_blobs"),
}
TABLES = ("entries", "deltas", "sessions")
FILTERS = {
    **dict.fromkeys(("archived", "type", "title", "since_us", "until_us"), "time"),
    **{name: name for name in ("fork_of", "parent", "tag", "model", "project")},
    **{name: name for name in ("interrupted", "pinned")},
}
"""Each filter of a list, and by what its sessions are looked for."""

LISTS = {f"sessions by {way}, {name}": (way, {name}) for name, way in FILTERS.items()}
LISTS |= {f"sessions by newest, {name}": ("newest", {name}) for name in ("tag", "model", "project")}
LISTS["sessions"] = ("time", set())
STATEMENTS = {
    **{name: sql for name, sql in vars(SQL).items() if name not in ("sessions", "usage")},
    **{
        f"usage by {way}": chosen(SQL.usage, way, frozenset(given))
        for way, given in (
            ("all", {"model"}),
            ("day", {"since_day", "until_day"}),
            ("session", {"session", "since_day"}),
            ("project", {"project"}),
        )
    },
    **{name: chosen(SQL.sessions, way, frozenset(given)) for name, (way, given) in LISTS.items()},
}
"""Every statement by its name; that of lists once for each way and filter."""

SORTED = {
    f"sessions by {name}, {name}" for name in ("fork_of", "parent", "tag", "model", "project")
}
"""Lists whose index does not know the time: they sort their matches, and nothing else."""

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


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_is_accepted_by_a_real_store(
    connection: apsw.Connection, name: str
) -> None:
    plan(connection, STATEMENTS[name])


@pytest.mark.parametrize("name", [name for name in STATEMENTS if name not in MAY_SCAN])
def test_no_statement_scans_a_whole_table(connection: apsw.Connection, name: str) -> None:
    steps = plan(connection, STATEMENTS[name])
    scans = [step for step in steps if re.match(rf"SCAN ({'|'.join(TABLES)})\b", step)]
    # An index of few rows is read as a whole on purpose.
    few = ("sessions_stopping", "sessions_uncounted")
    assert [step for step in scans if not any(name in step for name in few)] == []


@pytest.mark.parametrize(
    "name", ["entries", "newest_entries", "deltas", *sorted(set(LISTS) - SORTED)]
)
def test_no_page_is_sorted_in_memory(connection: apsw.Connection, name: str) -> None:
    steps = plan(connection, STATEMENTS[name])
    assert not [step for step in steps if "USE TEMP B-TREE" in step]


@pytest.mark.parametrize("name", sorted(LISTS))
def test_a_list_looks_for_its_filter_in_the_index_of_it(
    connection: apsw.Connection, name: str
) -> None:
    steps = plan(connection, STATEMENTS[name])
    way, _ = LISTS[name]
    index = {
        **{"fork_of": "sessions_by_base (base=?)", "parent": "sessions_by_parent (tenant=?"},
        **{"project": "sessions_by_project (tenant=? AND project=?)"},
        **{"tag": "PRIMARY KEY (kind=? AND label=?)", "model": "PRIMARY KEY (kind=? AND label=?)"},
        **{name: f"sessions_{name} (tenant=? AND deleted=?" for name in ("interrupted", "pinned")},
    }
    assert index.get(way, "sessions_by_time (tenant=? AND deleted=?") in steps[0]


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
