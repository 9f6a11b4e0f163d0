"""Several processes on one store: dense seqs, nothing lost or repeated, nobody is turned away."""

from collections import Counter
from pathlib import Path

import pytest

from holdfast import Message, Store, Text
from holdfast.model import entries as e
from tests.crash.journals import check_file, check_sound, check_store
from tests.crash.processes import Channel, Nursery, soon, spin_until

pytestmark = pytest.mark.crash

PROCESSES = 8
NOTES = 60
TURNS = 8
OPENINGS = 30


def append(parent: Channel, path: str, number: int) -> None:
    """Notes and turns in the shared session, turns in an own one; tells all receipts."""
    store = Store(path)
    shared, own = store.session("shared"), store.create_session(id=f"own-{number}")
    parent.send("ready")
    spin_until(parent.receive())
    receipts: list[tuple[int, str]] = []
    for count in range(NOTES):
        name = f"{number}.{count}"
        receipts.append((shared.note(name).seq, name))
        if count % (NOTES // TURNS) == 0:
            with shared.turn(f"prompt {name}", if_busy="wait") as turn:
                message = Message("assistant", [Text(name)], id=f"msg {name}")
                receipts.append((turn.record(message).seq, name))
            with own.turn(f"prompt {name}") as turn:
                turn.record(message)
                with turn.stream() as reply:
                    reply.text(name)
    store.close()
    parent.send(receipts)


def test_eight_processes_append_to_one_store(nursery: Nursery, path: str) -> None:
    """Every entry of every process is in its session once, at the seq its writer was told; no
    process has seen an error, so none was told that the database is locked."""
    with Store(path) as store:
        store.create_session(id="shared")
        children = [nursery.start(append, path, number) for number in range(PROCESSES)]
        for child in children:
            child.expect("ready")
        moment = soon(0.05)
        for child in children:
            child.send(moment)
        receipts = [tuple(receipt) for child in children for receipt in child.receive()]
        assert len(receipts) == len(set(receipts))
        shared = store.session("shared")
        stored = [(x.seq, _name(x.body)) for x in shared.entries() if _name(x.body)]
        assert sorted(receipts) == stored
        check_store(store)
        assert len(shared.turns()) == PROCESSES * len(range(0, NOTES, NOTES // TURNS))
        for number in range(PROCESSES):
            check_sound(store.session(f"own-{number}"))
    for child in children:
        assert child.wait() == 0
    check_file(path)


def _name(body: e.Body) -> str:
    match body:
        case e.Note():
            return body.name
        case e.MessageRecorded(role="assistant"):
            return body.id.removeprefix("msg ")
        case _:
            return ""


def create(parent: Channel, number: int) -> None:
    """Opens stores that do not exist yet, each at the moment that it is told."""
    parent.send("ready")
    while (order := parent.receive()) is not None:
        path, moment = order
        spin_until(moment)
        with Store(path) as store:
            store.create_session(id=f"own-{number}")
            store.create_session(id="both")
            parent.send("made")


def test_two_processes_make_the_store_at_the_same_instant(nursery: Nursery, tmp_path: Path) -> None:
    """Both openings succeed, thirty times, and both processes' sessions are in the one store."""
    children = [nursery.start(create, number) for number in (1, 2)]
    for child in children:
        child.expect("ready")
    for count in range(OPENINGS):
        path = str(tmp_path / f"{count}.db")
        moment = soon(0.005)
        for child in children:
            child.send([path, moment])
        for child in children:
            child.expect("made")
        with Store(path) as store:
            found = Counter(info.id for info in store.sessions())
            assert found == Counter(["own-1", "own-2", "both"])
        check_file(path)
    for child in children:
        child.send(None)
        assert child.wait() == 0
