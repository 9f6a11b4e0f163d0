"""Several versions of the code on one store: hosts are upgraded one after another."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from killick import KillickError, Message, SessionBusy, Store, StoreNewer, Text
from killick.stores.postgres import PostgresDatabase, migrate
from killick.stores.sql import Migration
from tests.crash import workload
from tests.crash.journals import check_store
from tests.crash.processes import Channel, Nursery, soon, spin_until
from tests.postgres_fixtures import Shared
from tests.waiting import until
from torture.campaigns.kills import Countdown

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

NEXT = len(migrate.migrations()) + 1
MORE = Migration(
    NEXT,
    f"{NEXT:04}_more",
    """
    ALTER TABLE killick.sessions ADD COLUMN more bigint NOT NULL DEFAULT 7;
    ALTER TABLE killick.entries ADD COLUMN more text;
    CREATE TABLE killick.more (one bigint PRIMARY KEY);
    CREATE INDEX entries_by_more ON killick.entries (tenant, session, more);
    SELECT pg_sleep(1);
    """,
)
"""What a newer version may do to the tables while older ones are at work: it takes a second, and
locks what every write needs."""


@pytest.fixture
def url(server: Shared) -> Iterator[str]:
    """A schema of its own: the tables of the others must stay as they are."""
    server.server.execute("DROP SCHEMA IF EXISTS rolling CASCADE")
    yield server.server.url("rolling")
    server.server.execute("DROP SCHEMA IF EXISTS rolling CASCADE")


def become_newer(oldest: int) -> None:
    """This process is of the next version, which says which versions may still run beside it."""
    known = migrate.migrations()
    migrate.migrations = lambda: [*known, MORE]
    migrate.OLDEST = oldest  # type: ignore[misc]


def old(parent: Channel, url: str, notes: str, seed: int) -> None:
    """Turns without pause, until told to stop; a refusal ends it."""
    store = Store(PostgresDatabase(url, lease_seconds=3))
    worker = workload.Worker(store.create_session(id=f"old-{seed}"), workload.Log(notes), seed)
    parent.send("working")
    heard = "nothing"
    stop = Path(f"{notes}.stop")
    try:
        while not stop.exists():
            with contextlib.suppress(SessionBusy):  # the newer has its turn there
                worker.one_turn()
    except KillickError as error:
        heard = f"{type(error).__name__}: {error}"
    try:
        store.sessions()
    except StoreNewer:
        heard += ", reading too"
    store.close()
    parent.send(heard)


def newer(parent: Channel, url: str, oldest: int) -> None:
    """Opens the store as the next version does, and does a turn in the same sessions."""
    become_newer(oldest)
    with Store(url) as store:
        parent.send("migrated")
        parent.receive()
        for info in store.sessions():
            session = store.session(info.id)
            with session.turn("from the newer", if_busy="wait", wait_seconds=30) as turn:
                turn.record(Message("assistant", [Text("it works")]))
    parent.send("done")


def test_old_and_new_run_side_by_side(
    nursery: Nursery, server: Shared, url: str, tmp_path: Path
) -> None:
    """The newer version migrates while two older ones write without pause: none of their writes is
    refused or lost, and then all of them write to the same sessions."""
    notes = [str(tmp_path / f"notes-{seed}") for seed in (1, 2)]
    olds = [nursery.start(old, url, one, seed) for seed, one in enumerate(notes, 1)]
    for child in olds:
        child.expect("working", 60)
    upgraded = nursery.start(newer, url, migrate.OLDEST)
    upgraded.expect("migrated", 60)
    before = [len(workload.Notes(one).did) for one in notes]
    upgraded.send("go")
    upgraded.expect("done", 60)
    for child, one in zip(olds, notes, strict=True):
        Path(f"{one}.stop").touch()
        child.expect("nothing", 60)
        assert child.wait() == 0
    after = [len(workload.Notes(one).did) for one in notes]
    assert all(late > early > 0 for early, late in zip(before, after, strict=True))
    assert server.server.execute("SELECT DISTINCT more FROM rolling.sessions") == [(7,)]
    with Store(url) as store:  # this version, opened anew on tables of the next
        gone = [workload.Killed(one, time.monotonic()) for one in notes]
        told = [fact for one in gone for fact in workload.Notes(one.notes).did]
        assert len(told) > 20
        stored = {m.id: m.text for s in store.sessions() for m in store.session(s.id).messages()}
        for fact in told:
            if fact[0] == "message":
                assert stored[fact[1]] == fact[2]
        assert list(stored.values()).count("it works") == 2
        check_store(store)


def test_an_old_one_is_refused_where_the_newer_says_so(
    nursery: Nursery, url: str, tmp_path: Path
) -> None:
    """Also one that is at work: it hears of it with its lease, and then reads and writes no more.
    What it was told is stored before that is stored."""
    notes = str(tmp_path / "notes")
    child = nursery.start(old, url, notes, 1)
    child.expect("working", 60)
    upgraded = nursery.start(newer, url, NEXT)
    upgraded.expect("migrated", 60)
    heard = child.receive(30)
    assert "written by a newer Killick" in heard
    assert heard.endswith("reading too")
    assert f"format {NEXT}, this one knows {NEXT - 1}" in heard
    assert child.wait() == 0
    with pytest.raises(StoreNewer, match="install the newer version"):
        Store(url)
    upgraded.send("go")
    upgraded.expect("done", 60)


def open_at(parent: Channel, url: str) -> None:
    parent.send("ready")
    spin_until(parent.receive())
    with Store(url) as store:
        store.create_session(id=f"of {os.getpid()}")
        parent.receive()


def test_a_store_is_made_once(nursery: Nursery, server: Shared, url: str) -> None:
    """Four processes open a store that does not exist yet, at the same instant."""
    children = [nursery.start(open_at, url) for _ in range(4)]
    for child in children:
        child.expect("ready", 60)
    moment = soon(0.05)
    for child in children:
        child.send(moment)
        child.send("leave")
    assert [child.wait(60) for child in children] == [0] * 4
    made = server.server.execute("SELECT number FROM rolling.migrations ORDER BY number")
    assert made == [(number,) for number in range(1, NEXT)]
    with Store(url) as store:
        assert len(store.sessions()) == 4


def die_while_it_is_made(parent: Channel, url: str, boundary: int) -> None:
    countdown = Countdown(url, boundary)
    PostgresDatabase(url).close()
    parent.send(countdown.passed)


def test_killed_while_a_store_is_made(nursery: Nursery, server: Shared, url: str) -> None:
    """At some boundaries of statements: the next to come finds nothing, or all of it."""
    boundary = 11
    while True:
        server.server.execute("DROP SCHEMA IF EXISTS rolling CASCADE")
        child = nursery.start(die_while_it_is_made, url, boundary)
        if child.wait(60) == 0:
            break
        with Store(url) as store:
            store.create_session(title="as if nothing had been")
            assert len(store.sessions()) == 1
        boundary += 13
    assert boundary > 20, "the statements are not counted"


def test_one_at_a_time_makes_a_store(server: Shared, url: str) -> None:
    """Whoever comes second waits for the lock that the first one has, and says so to nobody."""
    waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with psycopg.connect(server.server.conninfo()) as first:
        first.execute("SELECT pg_advisory_xact_lock(%s)", (migrate._lock("rolling"),))
        opening = threading.Thread(target=lambda: PostgresDatabase(url).close())
        opening.start()
        until(lambda: server.server.execute(waits) or not opening.is_alive())
        assert opening.is_alive(), "it did not wait"
        first.rollback()
        opening.join(20)
    assert not opening.is_alive()
    with Store(url) as store:
        assert store.sessions() == []
