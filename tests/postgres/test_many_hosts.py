"""Many processes on one server: killed, cut off, and on the same session."""

import signal
import time
from pathlib import Path

import pytest

from killick import Message, Session, StaleFence, Store, Text, TurnEnded
from killick.model import entries as e
from killick.stores.postgres import PostgresDatabase
from tests.crash import workload
from tests.crash.journals import check_sound, check_store, endings
from tests.crash.processes import Channel, Child, Nursery
from tests.postgres import crowd
from tests.postgres.proxy import Proxy
from tests.postgres_fixtures import Shared

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

PROCESSES = 16
ON_ONE_SESSION = 4
SECONDS = 6.0
CUT_SECONDS = crowd.LEASE + 1.0
LOOK = b"SELECT coalesce(max(seq), 0)"


def test_sixteen_processes_two_killed_and_one_cut_off(
    nursery: Nursery, server: Shared, tmp_path: Path
) -> None:
    """Four of them share a session. Nothing acknowledged is lost, seqs are dense, every turn has
    exactly one ending, and stale fences are refused."""
    url, wire = server.server.url(), Proxy(server.server.port)
    notes = [str(tmp_path / f"notes-{number}") for number in range(PROCESSES)]
    children = []
    for number in range(PROCESSES):
        name = "shared" if number < ON_ONE_SESSION else f"own-{number}"
        address = server.server.url(port=wire.port) if number == 2 else url
        child = nursery.start(crowd.work, address, notes[number], name, SECONDS)
        children.append(child)
    for child in children:
        child.expect("working", seconds=60)
    killed_at = {}
    for number in (0, 9):
        killed_at[number] = time.monotonic()
        children[number].kill()
    wire.cut()
    time.sleep(CUT_SECONDS)
    wire.heal()
    for number, child in enumerate(children):
        if number not in killed_at:
            child.expect("done", seconds=90)
            assert child.wait() == 0
    wire.close()
    with Store(url) as store:
        never = time.monotonic() + 3_600
        gone = [workload.Killed(one, killed_at.get(n, never)) for n, one in enumerate(notes)]
        time.sleep(max(0.0, crowd.LEASE + killed_at[9] - time.monotonic()))
        check_acknowledged(store, gone)
        check_store(store)
        fences = [
            entry.body.fence
            for entry in store.session("shared").entries()
            if isinstance(entry.body, e.TurnStarted)
        ]
        assert fences == list(range(1, len(fences) + 1))


def check_acknowledged(store: Store, processes: list[workload.Killed]) -> None:
    """Every turn, message and ending that a process was told of is there."""
    found: dict[str, str] = {}
    turns: dict[str, str] = {}
    for info in store.sessions(limit=1_000):
        session = store.session(info.id)
        found |= {message.id: message.text for message in session.messages()}
        turns |= {turn.id: turn.status for turn in session.turns()}
    acknowledged = 0
    for process in processes:
        for fact in workload.Notes(process.notes).did:
            acknowledged += 1
            match fact:
                case ["turn", _, _, turn_id]:
                    assert turn_id in turns, fact
                case ["message", message_id, text]:
                    assert found[message_id] == text, fact
                case ["ended", _, turn_id, status]:
                    assert turns[turn_id] == status, fact
    assert acknowledged > 100


def hold(parent: Channel, url: str) -> None:
    """Holds a turn while its connections are dropped; tells what it hears when it goes on."""
    store = crowd.open_store(url)
    heard = "nothing"
    try:
        with store.create_session(id="s").turn("mine") as turn:
            turn.record(Message("assistant", [Text("before")]))
            parent.send(turn.id)
            parent.receive()
            turn.record(Message("assistant", [Text("after")]))
    except StaleFence:
        heard = "StaleFence"
    except TurnEnded:
        heard = "TurnEnded"
    parent.send(heard)
    store.close()


def test_a_host_that_is_frozen_loses_its_turn_when_its_lease_runs_out(
    nursery: Nursery, server: Shared
) -> None:
    """Not before: its lock is held, and while the lease lasts it is busy. Afterwards the next to
    come closes the turn, and what the host says when it is back is refused."""
    child = nursery.start(hold, server.server.url())
    turn_id = child.receive()
    child.signal(signal.SIGSTOP)
    frozen_at = time.monotonic()
    with Store(server.server.url()) as store:
        session = store.session("s")
        assert [(t.id, t.status) for t in session.turns()] == [(turn_id, "running")]
        with session.turn("theirs", if_busy="wait", wait_seconds=30):
            assert time.monotonic() - frozen_at > crowd.LEASE / 3
        child.signal(signal.SIGCONT)
        check_refused(child, session)


def test_a_host_whose_connections_end_and_do_not_come_back_loses_its_turn(
    nursery: Nursery, server: Shared
) -> None:
    """The server knows of their end, and its lock is free: that is all a dead host leaves."""
    wire = Proxy(server.server.port)
    child = nursery.start(hold, server.server.url(port=wire.port))
    child.receive()
    wire.cut()
    with Store(server.server.url()) as store:
        session = store.session("s")
        with session.turn("theirs", if_busy="wait", wait_seconds=30):
            pass
        wire.heal()
        check_refused(child, session)
    wire.close()


def check_refused(child: Child, session: Session) -> None:
    child.send("go on")
    child.expect("StaleFence")
    assert child.wait() == 0
    check_sound(session)
    assert endings(session) == [("interrupted", "crashed"), ("completed", None)]
    assert "after" not in [message.text for message in session.messages()]


def test_a_connection_that_blinks_costs_nothing(nursery: Nursery, server: Shared) -> None:
    """Every connection is dropped once; nobody takes the turn over, and it goes on."""
    wire = Proxy(server.server.port)
    child = nursery.start(hold, server.server.url(port=wire.port))
    child.receive()
    wire.blink()
    with Store(server.server.url()) as store:
        session = store.session("s")
        assert [turn.status for turn in session.turns()] == ["running"]
        child.send("go on")
        child.expect("nothing")
        assert child.wait() == 0
        assert endings(session) == [("completed", None)]
    wire.close()


def follow(session: Session, until: str) -> list[e.Entry]:
    seen = []
    for item in session.follow():
        if isinstance(item, e.Entry):
            seen.append(item)
            if isinstance(item.body, e.Note) and item.body.name == until:
                return seen
    raise AssertionError("the store was closed")


def test_a_follower_misses_nothing_across_lost_connections(
    nursery: Nursery, server: Shared
) -> None:
    """Its connections are dropped again and again while others write."""
    wire = Proxy(server.server.port)
    with Store(server.server.url()) as store:
        store.create_session(id="s")
        child = nursery.start(follow_there, server.server.url(port=wire.port))
        child.expect("following")
        session = store.session("s")
        for number in range(60):
            session.note(f"{number}", None)
            if number % 6 == 3:
                wire.blink()
        session.note("end", None)
        seqs = child.receive(60)
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) == session.head
    wire.close()


def test_a_follower_outlives_a_line_that_is_lost_at_every_look(server: Shared) -> None:
    """For seconds, not for a number of times: how often a line is lost says nothing of the next."""
    wire = Proxy(server.server.port)
    with Store(server.server.url()) as store, Store(server.server.url(port=wire.port)) as afar:
        session = store.create_session(id="s")
        session.note("end", None)
        there = afar.session("s")
        for _ in range(12):
            wire.trap(LOOK, "lost")
        seen = follow(there, "end")
        assert [entry.seq for entry in seen] == [1, 2]
        assert wire.sprung.is_set()
    wire.close()


def follow_there(parent: Channel, url: str) -> None:
    with Store(PostgresDatabase(url)) as store:
        session = store.session("s")
        parent.send("following")
        parent.send([entry.seq for entry in follow(session, "end")])
