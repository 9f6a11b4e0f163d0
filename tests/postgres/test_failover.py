"""A primary is killed under load, and its standby takes its place."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from killick import Store
from tests.crash import workload
from tests.crash.journals import check_sound
from tests.crash.processes import Nursery
from tests.postgres import crowd
from tests.servers import Server
from tests.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(180)]

WORKERS = 4
SECONDS = 6.0


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    primary, standby = Server(wal_sender_timeout="5s").create(), Server()
    try:
        crowd.open_store(primary.url()).close()
        standby.copy_of(primary, slot="one", name="standby")
        yield primary, standby
    finally:
        standby.remove()
        primary.remove()


def both(primary: Server, standby: Server) -> str:
    """The address that clients use: libpq finds the one that can be written."""
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"


def start(nursery: Nursery, url: str, folder: Path) -> tuple[list[str], list[object]]:
    notes = [str(folder / f"notes-{number}") for number in range(WORKERS)]
    children = [
        nursery.start(crowd.work, url, one, f"own-{number}", SECONDS)
        for number, one in enumerate(notes)
    ]
    for child in children:
        child.expect("working", seconds=60)
    return notes, list(children)


def acknowledged(notes: list[str]) -> list[list[object]]:
    return [fact for one in notes for fact in workload.Notes(one).did if fact[0] == "message"]


def test_a_synchronous_standby_has_everything(
    nursery: Nursery, pair: tuple[Server, Server], tmp_path: Path
) -> None:
    """Clients reconnect by themselves; every acknowledged entry is there."""
    primary, standby = pair
    primary.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
    primary.execute("SELECT pg_reload_conf()")
    url = both(primary, standby)
    notes, children = start(nursery, url, tmp_path)
    until(lambda: len(acknowledged(notes)) > 20)
    primary.kill()
    before = len(acknowledged(notes))
    standby.promote()
    for child in children:
        child.expect("done", seconds=90)  # type: ignore[attr-defined]
    with Store(url) as store:
        stored = {
            message.id: message.text
            for info in store.sessions()
            for message in store.session(info.id).messages()
        }
        facts = acknowledged(notes)
        assert len(facts) > before > 0, "they went on after the failover"
        for _, message_id, text in facts:
            assert stored[str(message_id)] == text
        for info in store.sessions():
            check_sound(store.session(info.id))


@pytest.mark.campaign
def test_an_asynchronous_standby_misses_a_suffix_at_most(
    nursery: Nursery, pair: tuple[Server, Server], tmp_path: Path
) -> None:
    """What is missing of a session after the failover is the end of what was written before it."""
    primary, standby = pair
    url = both(primary, standby)
    notes, children = start(nursery, url, tmp_path)
    until(lambda: acknowledged(notes))
    standby.execute("SELECT pg_wal_replay_pause()")  # it still receives, as one that lags does
    already = len(acknowledged(notes))
    until(lambda: len(acknowledged(notes)) > already + 10)
    primary.kill()
    killed_at = time.monotonic()
    standby.execute("SELECT pg_wal_replay_resume()")
    standby.promote()
    for child in children:
        child.expect("done", seconds=90)  # type: ignore[attr-defined]
    with Store(url) as store:
        for number, one in enumerate(notes):
            session = store.session(f"own-{number}")
            check_sound(session)
            stored = {message.id for message in session.messages()}
            said = [(fact[1] in stored, at) for at, fact in dated(one) if fact[0] == "message"]
            before = [there for there, at in said if at < killed_at]
            assert before == sorted(before, reverse=True), "a hole, not a suffix"
            assert all(there for there, at in said if at > killed_at + 1)


def dated(notes: str) -> list[tuple[float, list[object]]]:
    import json

    lines = [json.loads(line) for line in Path(notes).read_text(encoding="utf-8").splitlines()]
    return [(at, fact) for which, at, *fact in lines if which == "did"]
