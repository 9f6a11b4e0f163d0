"""A server that accepts and never answers: an error within the stated time, and then it goes on."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest

from killick import (
    AsyncStore,
    Entry,
    Message,
    OutcomeUnknown,
    Store,
    StoreDegraded,
    StoreError,
    Text,
)
from killick.stores.postgres import PostgresDatabase
from killick.stores.postgres.connection import ConnectionSettings, Silent, connect, read_url
from tests.crash.journals import check_sound, endings
from tests.postgres_fixtures import Shared
from tests.servers import Server
from tests.waiting import until

ANSWER = 1.0
STATED = 15.0
"""What `ANSWER`, `reconnect_seconds=1` and `connect_timeout=2` may become on a busy machine."""


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server whose processes may be stopped."""
    server = Server(fsync="off").create()
    yield server
    server.remove()


def database(server: Server, *, lease_seconds: float = 10.0) -> PostgresDatabase:
    return PostgresDatabase(
        server.url(connect_timeout=2),
        answer_seconds=ANSWER,
        reconnect_seconds=1.0,
        lease_seconds=lease_seconds,
    )


def backends(server: Server, said: str) -> list[int]:
    """The server's processes whose last statement was this one."""
    found = server.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'killick' AND query LIKE %s",
        f"%{said}%",
    )
    return [pid for (pid,) in found]


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    def tell(number: signal.Signals) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):  # one that was on its way out
                os.kill(pid, number)

    tell(signal.SIGSTOP)
    try:
        yield
    finally:
        tell(signal.SIGCONT)


@contextmanager
def frozen_whole(server: Server) -> Iterator[None]:
    """The process that lets others in goes first, so that nobody is new when they are counted."""
    with frozen(server.processes()[0]), frozen(*server.processes()):
        yield


def in_time(call: Callable[[], object]) -> StoreError:
    begun = time.monotonic()
    with pytest.raises(StoreError) as raised:
        call()
    assert time.monotonic() - begun < STATED
    return raised.value


def test_a_port_that_accepts_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        url = f"postgresql://postgres@127.0.0.1:{port}/postgres?connect_timeout=2"
        error = in_time(lambda: Store(url))
    assert isinstance(error, StoreDegraded)
    assert "cannot be reached" in str(error)


@pytest.mark.timeout(120)
def test_a_server_whose_processes_stand_still(own: Server) -> None:
    """Whoever writes, reads, opens a turn or streams is told in time, and nothing is said to be
    stored; when the server goes on, the same objects work."""
    with Store(database(own, lease_seconds=60)) as store:
        session = store.create_session()
        with session.turn("go") as turn:
            turn.record(Message("assistant", [Text("before")]))
            with frozen_whole(own):
                error = in_time(lambda: turn.record(Message("assistant", [Text("during")], id="m")))
                # It may have been on its way when everything stood still.
                assert isinstance(error, OutcomeUnknown)
                assert isinstance(in_time(session.messages), StoreDegraded)
                in_time(lambda: session.note("during", None))
                assert store.status == "degraded"
            turn.record(Message("assistant", [Text("during")], id="m"))
            turn.record(Message("assistant", [Text("after")]))
        assert store.status == "ok"
        assert [m.text for m in session.messages()] == ["go", "before", "during", "after"]
        assert endings(session) == [("completed", None)]
        check_sound(session)


@pytest.mark.timeout(120)
def test_the_same_on_the_asynchronous_face(own: Server) -> None:
    async def main() -> list[str]:
        async with AsyncStore(database(own, lease_seconds=60)) as store:
            session = await store.create_session()
            async with session.turn("go") as turn:
                with frozen_whole(own):
                    begun = time.monotonic()
                    with pytest.raises(StoreDegraded):
                        await turn.record(Message("assistant", [Text("during")], id="m"))
                    with pytest.raises(StoreDegraded):
                        await session.messages()
                    assert time.monotonic() - begun < 2 * STATED
                await turn.record(Message("assistant", [Text("during")], id="m"))
            return [message.text for message in await session.messages()]

    assert asyncio.run(main()) == ["go", "during"]


def test_one_process_of_the_server_stands_still(own: Server) -> None:
    """The one that writes: what became of the write is found out by another."""
    with Store(database(own), indexing=False) as store:
        session = store.create_session()
        with session.turn("go") as turn:
            turn.record(Message("assistant", [Text("before")]))
            with frozen(*backends(own, "WITH saved")):
                # It was never read, so it is made again on another connection.
                turn.record(Message("assistant", [Text("during")]))
                turn.record(Message("assistant", [Text("after")]))
        assert [m.text for m in session.messages()] == ["go", "before", "during", "after"]
        check_sound(session)


def test_a_lease_is_renewed_elsewhere(own: Server) -> None:
    """The process that renews it stands still; the turn is not lost."""
    with Store(database(own, lease_seconds=3), indexing=False) as store, Store(own.url()) as other:
        session = store.create_session()
        with session.turn("go") as turn:
            renewing = until(lambda: backends(own, 'INSERT INTO "killick".holders'))
            with frozen(*renewing):
                time.sleep(4)  # longer than the lease lasts
                running = other.session(session.id).turns()
                assert [one.status for one in running] == ["running"]
                turn.record(Message("assistant", [Text("still mine")]))
        assert endings(session) == [("completed", None)]


def test_a_follower_goes_on_when_those_who_serve_it_stand_still(own: Server) -> None:
    """The process that listens and those that read: what was missed is found by asking."""
    with Store(database(own)) as store, Store(own.url()) as other:
        session = store.create_session()
        seen: list[str] = []
        heard = threading.Event()

        def follow() -> None:
            for item in session.follow():
                if isinstance(item, Entry) and item.kind == "note":
                    seen.append(item.body.name)  # type: ignore[union-attr]
                    heard.set()
                    if seen[-1] == "two":
                        return

        following = threading.Thread(target=follow)
        following.start()
        there = other.session(session.id)
        there.note("one", None)
        assert heard.wait(20)
        pids = [*backends(own, "watched"), *backends(own, "LISTEN"), *backends(own, "ROLLBACK")]
        with frozen(*pids):
            there.note("two", None)
            following.join(20)
            assert not following.is_alive()
    assert seen == ["one", "two"]


def test_what_takes_its_time_is_given_up_with_a_server_that_stands_still(own: Server) -> None:
    """Counting waits for a table that somebody keeps, for longer than an answer may take: the
    server says that it is at it. When all of it stands still, the one who counts is told."""
    with (
        Store(database(own), indexing=False) as store,
        psycopg.connect(own.conninfo()) as other,
    ):
        store.create_session()
        counts: list[object] = []

        def count() -> None:
            try:
                counts.append(store.counts()["sessions"])
            except StoreError as error:
                counts.append(error)

        for standing_still in (False, True):
            other.execute("LOCK TABLE killick.sessions")
            counting = threading.Thread(target=count)
            counting.start()
            if standing_still:
                until_counting(own)
                with frozen_whole(own):
                    counting.join(2 * STATED)
            else:
                counting.join(3 * ANSWER)
                assert counting.is_alive()
            other.rollback()
            counting.join(STATED)
            assert not counting.is_alive()
    assert isinstance(counts[0], int)
    assert isinstance(counts[1], StoreDegraded)
    assert "has not answered" in str(counts[1])


def until_counting(server: Server) -> None:
    until(lambda: backends(server, "count(*)"), STATED)


def test_what_is_slow_is_not_silent(server: Shared) -> None:
    """Silence is measured, not the time that all of it takes; and some things may take any time."""
    line = connect(
        read_url(server.server.url()), ConnectionSettings("full", 30, answer_seconds=0.5)
    )
    trickling = "SELECT repeat('x', 20000) FROM generate_series(1, 10) AS n, pg_sleep(0.15 + 0 * n)"
    assert len(line.connection.execute(trickling).fetchall()) == 10
    line.connection.unhurried = True
    line.connection.execute("SELECT pg_sleep(0.8)")
    line.connection.unhurried = False
    with pytest.raises(Silent, match="has not answered for"):
        line.connection.execute("SELECT pg_sleep(5)")
    assert line.broken
