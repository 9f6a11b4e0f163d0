"""Somebody else keeps the row of one session locked: the other sessions of the process go on."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from killick import (
    AsyncStore,
    Message,
    Receipt,
    Session,
    Store,
    StoreBusy,
    StoreDegraded,
    Stream,
    Text,
)
from killick.stores.postgres import PostgresDatabase, database
from tests.crash.journals import check_sound, endings
from tests.postgres_fixtures import Shared
from tests.waiting import until

WAIT = 3.0
HELD = (
    b"SELECT 1 FROM killick.sessions AS s JOIN killick.session_ids AS i USING (tenant, session)"
    b" WHERE i.id = %s FOR UPDATE OF s"
)

MOVED = (
    b"UPDATE killick.sessions AS s SET stamp = s.stamp + 1 FROM killick.session_ids AS i"
    b" WHERE i.id = %s AND s.tenant = i.tenant AND s.session = i.session"
)
IN_LINE = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%OF s'"


@contextmanager
def held(server: Shared, session_id: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A second connection, frozen in the middle of a transaction, as it were."""
    with psycopg.connect(server.server.conninfo()) as other:
        found = other.execute(HELD, (session_id.encode(),))
        assert len(found.fetchall()) == 1
        yield other
        other.rollback()


@pytest.fixture
def store(server: Shared) -> Iterator[Store]:
    with Store(PostgresDatabase(server.server.url(), wait_seconds=WAIT), indexing=False) as opened:
        yield opened


def say(session: Session, text: str) -> None:
    with session.turn(text) as turn:
        turn.record(Message("assistant", [Text(f"answer to {text}")]))


def test_others_go_on_and_the_one_is_done_when_it_is_free(store: Store, server: Shared) -> None:
    """What was said to the session that is held comes in the order in which it was said."""
    stuck, free = store.create_session(id="stuck"), store.create_session(id="free")
    receipts: list[int] = []
    with held(server, "stuck") as other:
        waiting = []
        for number in range(3):
            one = threading.Thread(
                target=lambda number=number: receipts.append(stuck.note(str(number), None).seq)
            )
            one.start()
            waiting.append(one)
            say(free, str(number))  # by then the note was handed over
        begun = time.monotonic()
        for number in range(6):
            say(free, f"more {number}")
        assert time.monotonic() - begun < WAIT, "they waited for the session that is held"
        assert receipts == []
        other.rollback()
        for one in waiting:
            one.join(20)
    notes = [entry.body.name for entry in stuck.entries() if entry.kind == "note"]  # type: ignore[union-attr]
    assert notes == ["0", "1", "2"]
    assert sorted(receipts) == [2, 3, 4]
    assert len(free.turns()) == 3 + 6
    check_sound(free)


def test_whoever_waits_for_it_is_told_in_the_stated_time(store: Store, server: Shared) -> None:
    stuck, free = store.create_session(id="stuck"), store.create_session(id="free")
    with held(server, "stuck"):
        begun = time.monotonic()
        with pytest.raises(StoreBusy, match=r"kept the session locked for 3 s"):
            stuck.note("never", None)
        assert WAIT <= time.monotonic() - begun < WAIT + 5
        with pytest.raises(StoreBusy), stuck.turn("never"):
            pass
        say(free, "go")
    stuck.note("now", None)
    assert [entry.kind for entry in stuck.entries()] == ["session_created", "note"]


def test_whoever_was_put_aside_stands_in_line_again_when_many_pass_through(server: Shared) -> None:
    """Nobody keeps the session any more, but it is locked whenever somebody looks: three others
    take it in turn, and there is always one of them who waits for it."""
    database = PostgresDatabase(server.server.url(), wait_seconds=8)
    with Store(database, indexing=False) as store:
        session, noted = store.create_session(id="stuck"), threading.Event()
        told: list[object] = []

        def note() -> None:
            try:
                told.append(session.note("at last", None))
            except StoreBusy as busy:
                told.append(busy)
            noted.set()

        def pass_through() -> None:
            with psycopg.connect(server.server.conninfo()) as other:
                while not noted.is_set():
                    other.execute(HELD, (b"stuck",))
                    other.execute("SELECT pg_sleep(0.2)")
                    other.execute(MOVED, (b"stuck",))
                    other.commit()

        with held(server, "stuck") as first:
            threads = [threading.Thread(target=note)]
            threads[0].start()
            until(lambda: database._held)
            threads += [threading.Thread(target=pass_through) for _ in range(3)]
            for one in threads[1:]:
                one.start()
            until(lambda: len(server.server.execute(IN_LINE)) == 3)
            first.rollback()
            for one in threads:
                one.join(40)
        assert [type(one) for one in told] == [Receipt]
        assert [entry.kind for entry in session.entries()][-1] == "note"


def test_streams_of_other_sessions_are_written(store: Store, server: Shared) -> None:
    """A flush is for all streams of the process; one that is held stops no other, loses nothing,
    and is no error as long as it does not take too long."""
    stuck, free = store.create_session(id="stuck"), store.create_session(id="free")
    with (
        stuck.turn("a") as one,
        free.turn("b") as two,
        one.stream() as first,
        two.stream() as other,
    ):
        first.text("before ")
        with held(server, "stuck"):
            first.text("during ")
            other.text("not held")
            until(lambda: free.messages()[-1].text == "not held")
            assert "during" not in stuck.messages()[-1].text
        first.text("after")
    assert stuck.messages()[-1].text == "before during after"
    assert endings(stuck) == endings(free) == [("completed", None)]
    assert store.counts()["deltas"] == 0


def attempt(reply: Stream, text: str) -> StoreDegraded | None:
    try:
        reply.text(text)
    except StoreDegraded as error:
        return error
    return None


def test_a_stream_that_cannot_be_written_for_too_long_says_so(store: Store, server: Shared) -> None:
    """And takes text again when what it has could be written."""
    stuck = store.create_session(id="stuck")
    with stuck.turn("a") as turn, turn.stream() as reply:
        with held(server, "stuck"):
            refused = until(lambda: attempt(reply, "x"))
            assert "kept the session locked for 3 s" in str(refused)
        until(lambda: attempt(reply, "the end") is None)
    assert stuck.messages()[-1].text.endswith("xthe end")


def test_the_same_on_the_asynchronous_face(server: Shared) -> None:
    async def main() -> None:
        opened = PostgresDatabase(server.server.url(), wait_seconds=WAIT)
        async with AsyncStore(opened, indexing=False) as store:
            stuck = await store.create_session(id="stuck")
            free = await store.create_session(id="free")
            with held(server, "stuck") as other:
                waiting = asyncio.create_task(stuck.note("late", None))
                for number in range(10):
                    await asyncio.wait_for(free.note(str(number), None), WAIT)
                assert not waiting.done()
                other.rollback()
                assert (await waiting).seq == 2
            assert len(await free.entries()) == 11

    asyncio.run(main())


def test_the_search_index_goes_on(server: Shared) -> None:
    """What others said is found, though one session cannot be indexed."""
    with Store(server.server.url()) as writing, Store(server.server.url(), indexing=False) as plain:
        say(plain.create_session(id="stuck"), "needle in stuck")
        with held(server, "stuck"):
            say(plain.create_session(id="free"), "needle in free")
            until(lambda: [hit.session_id for hit in writing.search("needle")].count("free") == 2)
        assert len(writing.search("needle", wait_seconds=30)) == 4


def test_a_client_that_is_frozen_in_a_transaction_lets_go(
    server: Shared, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of ours: the server ends its transaction, and with it its locks."""
    session = store.create_session(id="stuck")
    monkeypatch.setattr(database, "_IDLE_SECONDS", 1)
    frozen = PostgresDatabase(server.server.url())
    with frozen.reading() as reader:
        key = reader.find_key("default", "stuck")
        assert key is not None
    tx = frozen.begin()
    tx.lock([key])
    begun = time.monotonic()
    session.note("in time", None)
    assert time.monotonic() - begun < WAIT
    frozen.close()
