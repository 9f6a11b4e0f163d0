"""Verifying reads everything again: deltas by their checksums, blobs by their digests."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from killick import Image, Message, SessionDamaged, Store, Text, UsageError
from killick.maintenance.verify import Pacer, verify
from tests.postgres_fixtures import shared
from tests.waiting import until

Change = Callable[[str], None]
"""Runs a statement that damages rows, in the store's database."""


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Change]]:
    if request.param == "sqlite":
        path = str(tmp_path / "work.db")

        def change(statement: str) -> None:
            connection = apsw.Connection(path)
            connection.execute(statement)
            assert connection.changes() == 1
            connection.close()

        yield path, change
        return
    shared("18").empty()
    server = shared("18").server

    def change_there(statement: str) -> None:
        with psycopg.connect(server.conninfo(), autocommit=True) as connection:
            connection.execute("SET search_path TO killick")
            assert connection.execute(statement.encode()).rowcount == 1

    yield server.url(), change_there


def fill(store: Store) -> Any:
    """Two sessions with a picture each, and an open stream in the second; returns what keeps it."""
    for name in ("good", "bad"):
        picture = store.put_blob(name.encode() * 100)
        session = store.create_session(id=name)
        with session.turn(Message("user", [Text("look"), Image(picture, "image/png")])):
            pass
    turn = session.turn("go").begin()
    reply = turn.stream().begin()
    reply.text("what was said so far")
    until(lambda: store.counts()["deltas"])
    return turn, reply


def findings(store: Store) -> list[tuple[str, str | None]]:
    return [(one.kind, one.session_id) for one in verify(store).findings]


def test_a_changed_letter_of_a_stream_is_named_and_stops_no_other(
    stored: tuple[str, Change],
) -> None:
    url, change = stored
    with Store(url) as store:
        turn, reply = fill(store)
        assert findings(store) == []
        word = "replace(CAST(body AS TEXT), 'said', 'sand')"
        if "://" in url:
            change("UPDATE deltas SET body = overlay(body PLACING 'sand'::bytea FROM"
                   " position('said'::bytea IN body))")  # fmt: skip
        else:
            change(f"UPDATE deltas SET body = CAST({word} AS BLOB)")
        assert findings(store) == [("deltas", "bad")]
        with pytest.raises(SessionDamaged, match="checksum"):
            store.session("bad").messages()
        assert len(store.session("good").messages()) == 1
        change("UPDATE deltas SET crc = NULL")  # as an older version wrote it
        assert findings(store) == []
        assert "sand" in store.session("bad").messages()[-1].text
        reply.end()
        turn.end()


def test_a_changed_blob_is_named_with_its_session(stored: tuple[str, Change]) -> None:
    url, change = stored
    with Store(url) as store:
        turn, reply = fill(store)
        change("UPDATE blobs SET data = CAST('x' AS BYTEA) WHERE length(data) = 300"
               if "://" in url else
               "UPDATE blobs SET data = CAST('x' AS BLOB) WHERE length(data) = 300")  # fmt: skip
        assert findings(store) == [("blob", "bad")]
        assert len(store.session("bad").messages()) == 3
        reply.end()
        turn.end()


def test_a_rate_bounds_what_is_read_in_a_second() -> None:
    pace = Pacer(1_000.0)
    assert 0.99 < pace.seconds_for(1_000) <= 1
    assert 2.99 < pace.seconds_for(2_000) <= 3
    assert Pacer(None).seconds_for(10**12) == 0
    with pytest.raises(UsageError):
        Pacer(0)


def test_verifying_waits_between_sessions(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        for _ in range(4):
            with store.create_session().turn("x" * 2_500):
                pass
        began = time.monotonic()
        size = sum(one.bytes for one in verify(store, rate=40_000).sessions)
        assert size > 10_000
        assert time.monotonic() - began >= size / 40_000
