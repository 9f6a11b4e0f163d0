"""An administrator ends backends while a store writes: nothing is lost, doubled or in doubt."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from killick import Store
from killick.stores.contract import Reader
from killick.stores.postgres import PostgresDatabase
from tests.crash.journals import check_sound
from tests.postgres_fixtures import Shared

TURNS = 60
END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'killick' "
    "AND (state <> 'idle' OR random() < 0.2)"
)


@contextmanager
def administrator(server: Shared, seed: int) -> Iterator[None]:
    """End backends that are at work, and some that are not, every few milliseconds."""
    chance, over = random.Random(seed), threading.Event()

    def end_backends() -> None:
        with psycopg.connect(server.server.conninfo(), autocommit=True) as connection:
            while not over.wait(chance.uniform(0.05, 0.25)):
                connection.execute(END)

    thread = threading.Thread(target=end_backends)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_every_turn_completes_and_every_text_is_there_once(server: Shared, seed: int) -> None:
    chance = random.Random(-seed)
    database = PostgresDatabase(server.server.url(), reconnect_seconds=10)
    with Store(database, indexing=False) as store:
        session = store.create_session()
        with administrator(server, seed):
            for number in range(TURNS):
                with session.turn(f"go {number}") as turn:
                    with turn.stream() as reply:
                        reply.text(f"{number} one ")
                        threading.Event().wait(chance.choice((0, 0, 0.06)))  # flushed, or not
                        reply.text("two")
                        reply.tool_call("c", name="shell", arguments="{}")
                    with turn.tool("c") as call:
                        call.finish("done")
        assert {turn.status for turn in session.turns()} == {"completed"}
        answers = [m.text for m in session.messages() if m.role == "assistant"]
        assert answers == [f"{number} one two" for number in range(TURNS)]
        assert store.counts()["deltas"] == 0
        check_sound(session)


def test_what_is_read_while_its_backend_is_ended_is_read_again(server: Shared) -> None:
    tried: list[int] = []

    def read(reader: Reader) -> list[int]:
        tried.append(len(reader.session_keys()))
        if len(tried) == 1:
            with psycopg.connect(server.server.conninfo(), autocommit=True) as administrator:
                administrator.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                    "WHERE application_name = 'killick' AND state = 'idle in transaction'"
                )
        return reader.session_keys()

    with Store(server.server.url()) as store:
        store.create_session()
        assert len(store._core.runtime().read(read)) == 1
    assert tried == [1, 1]
