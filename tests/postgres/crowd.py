"""What the many processes of a test do: turns until they are told to stop, each step noted."""

import time
from collections.abc import Callable

from killick import KillickError, Message, SessionBusy, Store, Text, TurnEnded
from killick.stores.postgres import PostgresDatabase
from tests.crash.processes import Channel
from tests.crash.workload import Log

LEASE = 2.0


def open_store(url: str) -> Store:
    database = PostgresDatabase(url, lease_seconds=LEASE, reconnect_seconds=3)
    return Store(database)


def work(parent: Channel, url: str, notes: str, name: str, seconds: float) -> None:
    """Turns in a session, shared or not, for a while; what was acknowledged is noted."""
    store, log = open_store(url), Log(notes)
    store.create_session(id=name)
    parent.send("working")
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        count += 1
        try:
            one_turn(store, log, name, f"{parent_name(notes)}.{count}")
        except (SessionBusy, TurnEnded):
            continue
        except KillickError:
            time.sleep(0.05)  # cut off, the server is away, or it has lost what this turn stood on
    store.close()
    parent.send("done")


def parent_name(notes: str) -> str:
    return notes.rsplit("/", 1)[-1]


def one_turn(store: Store, log: Log, session_id: str, name: str) -> None:
    session = store.session(session_id)
    log.will("turn", session_id, name)
    with session.turn(name, if_busy="wait", wait_seconds=5) as turn:
        turn_id = turn.id
        log.did("turn", session_id, name, turn_id)
        for number in range(3):
            say(turn.record, log, f"{name}.{number}")
        with turn.stream() as reply:
            message_id = reply.id
            for number in range(5):
                chunk = f"{name}.{number} "
                log.will("said", message_id, chunk)
                reply.text(chunk)
                log.did("said", message_id, chunk)
        log.did("whole", message_id)
    log.did("ended", session_id, turn_id, "completed")


def say(record: Callable[[Message], object], log: Log, message_id: str) -> None:
    text = f"text of {message_id}"
    log.will("message", message_id, text)
    record(Message("assistant", [Text(text)], id=message_id))
    log.did("message", message_id, text)
