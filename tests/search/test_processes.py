"""The index and other processes: killed in the middle, and several at once."""

import random
import time
from pathlib import Path

import apsw
import pytest

from killick import Message, Store, Text
from tests.crash.processes import Channel, Nursery

MESSAGES = 400


def say(store: Store, session_id: str, count: int) -> None:
    with store.create_session(id=session_id).turn(None) as turn:
        for number in range(count):
            turn.record(Message("assistant", [Text(f"needle {session_id} number{number}")]))


def drain(channel: Channel, path: str) -> None:
    """Begin the index anew and fill it, telling of each slice."""
    with Store(path, indexing=False) as store:
        writer = store._core.runtime().writer
        store.rebuild_search(progress=lambda *done: channel.send(done))
        channel.send("done")
        assert writer.status == "ok"


def write(channel: Channel, path: str, name: str) -> None:
    with Store(path) as store:
        channel.send("open")
        channel.receive()
        say(store, name, MESSAGES // 4)
        channel.send(len(store.search(f"needle {name}", limit=1_000, wait_seconds=60)))


def check(path: Path) -> None:
    connection = apsw.Connection(str(path))
    assert connection.pragma("integrity_check") == "ok"
    connection.execute("INSERT INTO search_words (search_words) VALUES ('integrity-check')")
    connection.close()


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(4))
def test_an_index_whose_process_was_killed_goes_on_where_it_was(
    nursery: Nursery, tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "work.db"
    with Store(path, indexing=False, durability="normal") as store:
        for session in range(4):
            say(store, f"s{session}", MESSAGES)
    chance = random.Random(seed)
    child = nursery.start(drain, str(path))
    child.receive()
    time.sleep(chance.uniform(0, 0.03))  # a moment nobody chose
    child.kill()
    check(path)
    with Store(path, indexing=False) as store:
        before = store.search("needle", limit=10_000, wait_seconds=0)
        assert len(before) <= 4 * MESSAGES
        hits = store.search("needle", limit=10_000, wait_seconds=30)
        assert (len(hits), hits.behind) == (4 * MESSAGES, 0)
        assert len({(hit.session_id, hit.seq) for hit in hits}) == 4 * MESSAGES
    check(path)


def test_several_processes_write_search_and_index_one_store(
    nursery: Nursery, tmp_path: Path
) -> None:
    path = tmp_path / "work.db"
    Store(path).close()
    children = [nursery.start(write, str(path), f"p{number}") for number in range(3)]
    for child in children:
        child.expect("open")
    for child in children:
        child.send("go")
    for child in children:
        child.expect(MESSAGES // 4)
        assert child.wait() == 0
    check(path)
    with Store(path) as store:
        hits = store.search("needle", limit=10_000, wait_seconds=30)
        assert (len(hits), hits.behind) == (3 * (MESSAGES // 4), 0)
