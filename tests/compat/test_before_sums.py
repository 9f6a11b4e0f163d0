"""Stores of the format before usage and activity were added up by day.

`before_sums/` was made by the last version of that format, on a file and on PostgreSQL 15: four
sessions on four days, one of them deleted, and a fork.
"""

import gzip
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import psycopg
import pytest

from killick import Store, StoreNewer
from killick.stores.postgres import migrate as postgres_migrate
from killick.stores.sqlite import migrate as sqlite_migrate
from tests.postgres_fixtures import shared

BEFORE = Path(__file__).parent / "before_sums"
FORMAT, SERVER_FORMAT = 7, 3


def unpack(name: str) -> bytes:
    return gzip.decompress((BEFORE / name).read_bytes())


def check(store: Store) -> None:
    """Every session is uncounted, and counts at once; then it is counted, and nothing changes."""
    for _ in range(2):
        usage = {total.name: total for total in store.usage("model")}
        assert {name: (total.calls, total.input) for name, total in usage.items()} == {
            "m-1": (5, 107),
            "m-2": (2, 60),
        }
        assert (usage["m-1"].cost, usage["m-2"].cost) == (2.0, 1.0)
        days = store.activity(since=date(1970, 1, 1), until=date(1970, 2, 1))
        assert [(day.day[-2:], day.turns, day.failed) for day in days] == [
            ("01", 1, 0),
            ("02", 2, 0),
            ("03", 1, 0),
            ("06", 1, 1),
        ]
        assert [one for one in store.check_file() if one.kind != "server"] == []
        store.rebuild_sums()
        uncounted = store._core.runtime().read(lambda reader: reader.count_uncounted("default"))
        assert uncounted == 0
    store.restore_session("ses_3")
    assert store.activity(since=date(1970, 1, 4), until=date(1970, 1, 4))[0].turns == 2


def test_a_file_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(unpack("store.db.gz"))
    with Store(path, indexing=False) as store:
        check(store)


def test_older_versions_may_not_open_a_file_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they record would not be counted."""
    path = tmp_path / "store.db"
    path.write_bytes(unpack("store.db.gz"))
    with Store(path) as store:
        store.create_session()
    known = sqlite_migrate.migrations()[:FORMAT]
    monkeypatch.setattr(sqlite_migrate, "migrations", lambda: known)
    with pytest.raises(StoreNewer, match=rf"format \d+, this one knows {FORMAT}"):
        Store(path)


@pytest.fixture
def url() -> Iterator[str]:
    server = shared("18").server
    server.execute("CREATE DATABASE before_sums")
    url = f"postgresql://postgres@127.0.0.1:{server.port}/before_sums"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(unpack("postgres.sql.gz"))
    yield url
    server.execute("DROP DATABASE before_sums WITH (FORCE)")


def test_a_server_is_brought_up_to_date(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(url, indexing=False) as store:
        check(store)
    known = postgres_migrate.migrations()[:SERVER_FORMAT]
    monkeypatch.setattr(postgres_migrate, "migrations", lambda: known)
    with pytest.raises(StoreNewer, match=rf"format \d+, this one knows {SERVER_FORMAT}"):
        Store(url)
