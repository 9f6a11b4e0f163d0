"""Closing a dead turn: once, however many come for it, and whatever else lies dead in the store."""

from pathlib import Path

import apsw
import pytest

from killick import SessionBusy, Store
from tests.crash.journals import answers, check_sound, check_store, endings
from tests.crash.processes import Channel, Nursery, soon, spin_until

pytestmark = pytest.mark.crash

ROUNDS = 15
OPENERS = 6
DEAD = 300


def die(parent: Channel, path: str, names: list[str]) -> None:
    """Holds an open turn with an open stream in each session, until it is killed."""
    store = Store(path, durability="normal")
    held = []
    for name in names:
        turn = store.create_session(id=name).turn(f"prompt of {name}")
        turn.__enter__()
        reply = turn.stream()
        reply.__enter__()
        reply.text("half an ans")
        reply.tool_call("call", name="shell", arguments="{}")  # sealed: written with the text
        held.append((turn, reply))
    for turn, _ in held:
        turn.tool("call").__enter__()
    parent.send("holding")
    parent.hang()


def open_sessions(parent: Channel, path: str) -> None:
    """Opens one session after the other, each at the moment that it is told."""
    store = Store(path)
    parent.send("ready")
    while (order := parent.receive()) is not None:
        name, moment = order
        spin_until(moment)
        parent.send([turn.status for turn in store.session(name).turns()])
    store.close()


def begin_turn(parent: Channel, path: str, name: str) -> None:
    """Opens the session while its holder lives; begins a turn at the moment that it is told."""
    store = Store(path)
    session = store.session(name)
    parent.send("open")
    spin_until(parent.receive())
    try:
        with session.turn("next"):
            parent.send("began")
            parent.receive()
    except SessionBusy:
        parent.send("busy")
        parent.receive()
    store.close()


def test_many_open_a_session_whose_holder_died(nursery: Nursery, path: str) -> None:
    """Six processes open the session at the same instant: each finds the turn closed, there is
    exactly one ending, and the partial answer is there once."""
    Store(path).close()
    openers = [nursery.start(open_sessions, path) for _ in range(OPENERS)]
    for opener in openers:
        opener.expect("ready")
    for number in range(ROUNDS):
        name = f"session-{number}"
        victim = nursery.start(die, path, [name])
        victim.expect("holding")
        victim.kill()
        moment = soon()
        for opener in openers:
            opener.send([name, moment])
        for opener in openers:
            opener.expect(["interrupted"])
    with Store(path) as store:
        check_store(store)
        for number in range(ROUNDS):
            session = store.session(f"session-{number}")
            assert endings(session) == [("interrupted", "crashed")]
            [partial] = answers(session)
            assert (partial.state, partial.text) == ("partial", "half an ans")


def test_many_begin_a_turn_where_a_holder_died(nursery: Nursery, path: str) -> None:
    """Four processes that have the session open begin a turn at the same instant after its holder
    died: the dead turn is closed once, one of them gets the turn, the others are told of it."""
    Store(path).close()
    for number in range(5):
        name = f"session-{number}"
        victim = nursery.start(die, path, [name])
        victim.expect("holding")
        rivals = [nursery.start(begin_turn, path, name) for _ in range(4)]
        for rival in rivals:
            rival.expect("open")
        victim.kill()
        moment = soon()
        for rival in rivals:
            rival.send(moment)
        assert sorted(rival.receive() for rival in rivals) == ["began", "busy", "busy", "busy"]
        for rival in rivals:
            rival.send("go on")
            assert rival.wait() == 0
    with Store(path) as store:
        check_store(store)
        for number in range(5):
            session = store.session(f"session-{number}")
            assert endings(session) == [("interrupted", "crashed"), ("completed", None)]


def count_statements(parent: Channel, path: str, name: str) -> None:
    """Opens the store and one session; tells how many statements and rows that took."""
    statements: list[str] = []

    def watch(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: statements.append(event["sql"]))

    apsw.connection_hooks.append(watch)
    store = Store(path)
    store.session(name)
    counted = [sql for sql in statements if "data_version" not in sql]
    parent.send(counted)
    parent.receive()


def test_other_dead_turns_cost_nothing(nursery: Nursery, tmp_path: Path) -> None:
    """Opening one session, whole or with a dead turn, runs exactly the same statements with 300
    dead turns in other sessions as with none, and leaves those alone."""
    others = [f"other-{number}" for number in range(DEAD)]
    ran = {}
    for label, names in (("none", []), ("many", others)):
        path = str(tmp_path / f"{label}.db")
        with Store(path) as store, store.create_session(id="whole").turn("done"):
            pass
        victim = nursery.start(die, path, [*names, "dead"])
        victim.expect("holding")
        victim.kill()
        for name in ("whole", "dead"):
            child = nursery.start(count_statements, path, name)
            ran[label, name] = child.receive()
            child.kill()
    assert ran["none", "whole"] == ran["many", "whole"]
    assert ran["none", "dead"] == ran["many", "dead"]
    with Store(str(tmp_path / "many.db")) as store:
        check_sound(store.session("dead"))
        assert store.counts()["deltas"] >= DEAD, "the others wait until they are opened"
        check_store(store)
