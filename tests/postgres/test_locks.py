"""The lock beside the lease: a killed process is soon known to be dead, a living one never is."""

import signal
import time

import psycopg
import pytest

from killick import KillickError, Message, SessionBusy, Store, Text
from killick.stores.postgres import PostgresDatabase
from tests.crash.journals import check_sound, endings
from tests.crash.processes import Channel, Nursery
from tests.postgres_fixtures import Shared
from tests.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

ROWS = "SELECT count(*) FROM killick.holders WHERE holder LIKE '%/lock@%'"
HELD = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
SOON = 1.5


def hold(parent: Channel, url: str) -> None:
    """Holds a turn, and goes on with it when it is told to."""
    with Store(url, indexing=False) as store:
        raised = "nothing"
        try:
            with store.create_session(id="s").turn("mine") as turn:
                turn.record(Message("assistant", [Text("before")]))
                parent.send(turn.id)
                parent.receive()
                turn.record(Message("assistant", [Text("after")]))
        except KillickError as error:
            raised = type(error).__name__
        parent.send(raised)


def test_the_next_opening_after_a_kill_closes_the_turn_at_once(
    nursery: Nursery, server: Shared
) -> None:
    """With the lease that is the default, of which most is left."""
    with Store(server.server.url(), indexing=False) as store:
        child = nursery.start(hold, server.server.url())
        child.receive()
        before = len(server.server.execute(HELD))
        child.kill()
        until(lambda: len(server.server.execute(HELD)) < before)  # the server has noticed
        began = time.monotonic()
        session = store.session("s")
        assert time.monotonic() - began < SOON
        assert endings(session) == [("interrupted", "crashed")]
        check_sound(session)


@pytest.mark.parametrize("if_busy", ["refuse", "wait", "queue", "interrupt"])
def test_the_next_turn_after_a_kill_begins_at_once(
    nursery: Nursery, server: Shared, if_busy: str
) -> None:
    with Store(server.server.url(), indexing=False) as store:
        child = nursery.start(hold, server.server.url())
        child.receive()
        session = store.session("s")
        before = len(server.server.execute(HELD))
        child.kill()
        until(lambda: len(server.server.execute(HELD)) < before)
        began = time.monotonic()
        with session.turn("next", if_busy=if_busy):  # type: ignore[arg-type]
            assert time.monotonic() - began < SOON
        assert endings(session) == [("interrupted", "crashed"), ("completed", None)]


def test_a_session_can_be_erased_after_a_kill(nursery: Nursery, server: Shared) -> None:
    with Store(server.server.url(), indexing=False) as store:
        child = nursery.start(hold, server.server.url())
        child.receive()
        before = len(server.server.execute(HELD))
        child.kill()
        until(lambda: len(server.server.execute(HELD)) < before)
        store.erase_session("s")
        assert store.session_ids() == []


def test_a_frozen_process_keeps_its_lock_and_its_turn(nursery: Nursery, server: Shared) -> None:
    with Store(server.server.url(), indexing=False) as store:
        child = nursery.start(hold, server.server.url())
        child.receive()
        child.signal(signal.SIGSTOP)
        session = store.session("s")
        with pytest.raises(SessionBusy), session.turn("me", if_busy="wait", wait_seconds=1):
            pass
        child.signal(signal.SIGCONT)
        child.send("go on")
        child.expect("nothing")
        assert endings(session) == [("completed", None)]


def test_a_living_process_that_loses_its_lock_keeps_its_turn(
    nursery: Nursery, server: Shared
) -> None:
    """Every backend of it is ended, again and again, while another process asks for its session."""
    url = server.server.url()
    with Store(url, indexing=False) as store, psycopg.connect(server.server.conninfo()) as admin:
        admin.autocommit = True
        own = {pid for (pid,) in admin.execute(HELD)}
        child = nursery.start(hold, url)
        child.receive()
        session = store.session("s")
        for _ in range(10):
            lost = until(lambda: {pid for (pid,) in admin.execute(HELD)} - own)
            for pid in lost:
                admin.execute("SELECT pg_terminate_backend(%s)", (pid,))
            with pytest.raises(SessionBusy), session.turn("me"):
                pass
        child.send("go on")
        child.expect("nothing")
        assert endings(session) == [("completed", None)]


def test_the_row_says_which_way_a_holder_uses(server: Shared) -> None:
    database = PostgresDatabase(server.server.url())
    assert server.server.execute(ROWS) == [(1,)]
    database.close()
    assert server.server.execute("SELECT count(*) FROM killick.holders") == [(0,)]
    assert server.server.execute(HELD) == []


def test_without_a_connection_for_the_lock_the_lease_counts(
    server: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And as soon as there is one, the lock is taken."""

    def none_left(*_: object) -> None:
        raise psycopg.OperationalError("too many clients")

    with monkeypatch.context() as patch:
        patch.setattr("killick.stores.postgres.leases.Lease._open", none_left)
        database = PostgresDatabase(server.server.url(), lease_seconds=1)
        assert server.server.execute("SELECT count(*) FROM killick.holders") == [(1,)]
        assert server.server.execute(ROWS) == [(0,)]
    until(lambda: server.server.execute(ROWS) == [(1,)])
    database.close()


def test_a_lock_on_another_server_proves_nothing(server: Shared) -> None:
    """The server was started again, or another one took its place: no lock is there yet, and the
    row of the lock is of the one before. The lease decides."""
    dead = "gone/1/aa"
    server.server.execute(
        "INSERT INTO killick.holders VALUES (%s, now() + interval '1 day'), "
        "(%s || '/lock@1.5', now() + interval '1 day')",
        dead,
        dead,
    )
    database = PostgresDatabase(server.server.url())
    with database.reading() as reader:
        assert reader.is_alive(dead)
        assert reader.doubt(dead) == 0
    database.close()
