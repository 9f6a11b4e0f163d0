"""Behind pgbouncer in transaction mode: nothing outlives a transaction, and all works the same."""

from collections.abc import Iterator

import psycopg
import pytest

from killick import Message, Store, Text, TurnStopped
from killick.stores.postgres import PostgresDatabase
from killick.testing.conformance import CHECKS, Check, World
from killick.testing.conformance.world import Face
from tests.crash.journals import check_store
from tests.postgres_fixtures import Shared, shared
from tests.servers import PGBOUNCER, pooler
from tests.waiting import until

CHOSEN = [
    check
    for check in CHECKS
    if check.__module__.rsplit(".", 1)[-1] in ("leases", "turns", "reading", "searching")
    and check.__name__ != "the_first_messages_are_whole_however_late_they_were_ended"
]


@pytest.fixture(scope="module")
def bouncer() -> Iterator[int]:
    """The port of a pooler before the shared server."""
    if not PGBOUNCER.exists():
        pytest.skip("pgbouncer is not installed: apt-get install pgbouncer")
    with pooler(shared("18").server) as port:
        yield port


@pytest.fixture
def url(bouncer: int) -> str:
    server: Shared = shared("18")
    server.empty()
    return server.server.url(port=bouncer)


def test_it_is_noticed(url: str) -> None:
    database = PostgresDatabase(url)
    assert database._writer is not None
    assert database._writer.pooled
    database.close()
    direct = PostgresDatabase(shared("18").server.url())
    assert direct._writer is not None
    assert not direct._writer.pooled
    direct.close()


@pytest.mark.parametrize("check", CHOSEN, ids=lambda check: str(check.__name__))
def test_conformance(check: Check, url: str) -> None:
    face: Face = "sync"
    World(face, lambda: PostgresDatabase(url)).run(check)


def test_durability_is_set_for_each_transaction(url: str) -> None:
    """Nothing of one store's settings is left for the next that gets its connection."""
    with Store(url, durability="normal") as weak, Store(url) as strong:
        for store in (weak, strong) * 3:
            session = store.create_session()
            with session.turn("go") as turn:
                turn.record(Message("assistant", [Text("yes")]))
        check_store(strong)
    with psycopg.connect(url.split("?")[0], autocommit=True) as connection:
        for _ in range(5):
            (setting,) = connection.execute("SHOW synchronous_commit").fetchone() or ("",)
            assert setting == "on"


def test_a_stop_is_found_by_asking(url: str) -> None:
    """There are no notices here."""
    with Store(url) as store, Store(url) as other:
        session = store.create_session()
        stopped = None
        try:
            with session.turn("go") as turn, turn.stream() as reply:
                other.session(session.id).stop(turn.id, reason="enough")
                until(lambda: reply.text("on "))  # raises
        except TurnStopped as error:
            stopped = error.reason
        assert stopped == "enough"


def test_a_holder_here_has_a_lease_and_no_lock(url: str) -> None:
    """A pooler gives a connection to another after each transaction: it would keep the lock."""
    server = shared("18").server
    database = PostgresDatabase(url)
    assert server.execute("SELECT holder FROM killick.holders") == [(database.holder,)]
    assert server.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'") == []
    other = PostgresDatabase(server.url())
    with other.reading() as reader:
        assert reader.is_alive(database.holder)
        assert reader.doubt(database.holder) == 0
    for opened in (other, database):
        opened.close()
