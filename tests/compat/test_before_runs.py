"""Stores and an export of the format before effects, settlements and due work.

`before_runs/` was made by the last version of that format, on a file and on PostgreSQL 15: a
session with a completed turn, and one whose process was killed while its tool ran.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path

import apsw
import psycopg
import pytest

from killick import OutcomeUnsettled, Store, StoreNewer
from killick.exchange.formats.jsonl import export_lines
from killick.exchange.importer import import_paths
from killick.model import entries as e
from killick.stores.postgres import migrate as postgres_migrate
from killick.stores.sqlite import migrate as sqlite_migrate
from tests.postgres_fixtures import shared

BEFORE = Path(__file__).parent / "before_runs"


def unpack(name: str) -> bytes:
    return gzip.decompress((BEFORE / name).read_bytes())


def check(store: Store) -> None:
    """The dead turn is found by the index, its call counts as once, and nothing is due."""
    assert list(store.take_due(limit=10)) == []
    assert [closed.session_id for closed in store.close_dead_turns()] == ["ses_broken"]
    broken = store.session("ses_broken")
    (turn,) = broken.turns()
    assert (turn.status, turn.cause) == ("interrupted", "crashed")
    (started,) = [x.body for x in broken.entries() if isinstance(x.body, e.ToolStarted)]
    assert (started.effect, started.key, started.number) == ("once", None, 1)
    with broken.turn(None, continues=turn.id) as second:
        with pytest.raises(OutcomeUnsettled):
            second.tool("c1", of=turn.id).begin()
        broken.settle(turn.id, "c1", "did_not_run")
        with second.tool("c1", of=turn.id) as call:
            call.finish("paid")
    assert [tool.call_id for turn in broken.timeline() for tool in turn.tools] == ["c1", "c1"]
    assert store.session("ses_before").messages()[0].role == "user"
    for session_id in ("ses_before", "ses_broken"):
        assert store.examine_session(session_id) == []
    with store.session("ses_before").turn("And now?", resume=1) as another:
        another.end(cause="shut_down")
    assert [work.session_id for work in store.take_due()] == ["ses_before"]


def test_a_file_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(unpack("store.db.gz"))
    with Store(path) as store:
        check(store)
    assert not path.with_name("store.db-backup-4").exists()


def test_older_versions_may_not_open_a_file_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(unpack("store.db.gz"))
    with Store(path) as store:
        store.create_session()
    known = sqlite_migrate.migrations()[:4]
    monkeypatch.setattr(sqlite_migrate, "migrations", lambda: known)
    with pytest.raises(StoreNewer, match=r"format \d+, this one knows 4"):
        Store(path)


def test_opening_leaves_the_entries_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(unpack("store.db.gz"))
    sql = "SELECT session, seq, at_us, body FROM entries ORDER BY session, seq"
    connection = apsw.Connection(str(path))
    before = connection.execute(sql).fetchall()
    connection.close()
    with Store(path):
        pass
    connection = apsw.Connection(str(path))
    assert connection.execute(sql).fetchall() == before
    connection.close()


def test_an_export_comes_in_without_effects(tmp_path: Path) -> None:
    assert (BEFORE / "session.jsonl").read_bytes().startswith(b'{"killick":1,')
    with Store(tmp_path / "new.db") as store:
        report = import_paths(store, [BEFORE / "session.jsonl"])
        assert report.problems == []
        session = store.session("ses_before")
        (started,) = [x.body for x in session.entries() if isinstance(x.body, e.ToolStarted)]
        assert started.effect == "once"
        assert next(export_lines(store, "ses_before")).startswith(b'{"killick":2,')
        assert list(store.take_due()) == []


@pytest.fixture
def url() -> Iterator[str]:
    server = shared("18").server
    server.execute("CREATE DATABASE before_runs")
    url = f"postgresql://postgres@127.0.0.1:{server.port}/before_runs"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(unpack("postgres.sql.gz"))
    yield url
    server.execute("DROP DATABASE before_runs WITH (FORCE)")


def test_a_server_is_brought_up_to_date(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE killick.holders SET until = now() - interval '1 hour'")
    with Store(url) as store:
        check(store)
    known = postgres_migrate.migrations()[:1]
    monkeypatch.setattr(postgres_migrate, "migrations", lambda: known)
    with pytest.raises(StoreNewer, match=r"format \d+, this one knows 1"):
        Store(url)
