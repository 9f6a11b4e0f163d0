"""The logger `killick` tells an operator what happened, in constant messages with fields."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from killick import SearchDamaged, StaleFence, Store, StoreDegraded, TurnStopped
from killick.stores.memory import MemoryDisk
from killick.stores.postgres import PostgresDatabase
from killick.testing.faults import Failpoints, crash
from tests.postgres.proxy import Proxy
from tests.postgres_fixtures import Shared
from tests.postgres_fixtures import shared as shared_server
from tests.search.test_damaged_index import fill, scribble
from tests.waiting import until


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG, logger="killick"):
        yield


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "killick"]


def field(caplog: pytest.LogCaptureFixture, message: str, name: str) -> object:
    [record] = [record for record in caplog.records if record.getMessage() == message]
    return getattr(record, name)


def test_a_turn_that_is_recovered(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    dead = Store(disk.open())
    session = dead.create_session()
    session.turn("go").__enter__()
    crash(dead)
    with Store(disk.open()) as store:
        store.session(session.id)
    assert field(caplog, "turn recovered", "session_id") == session.id


def test_a_stop_that_is_delivered(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        turn = session.turn("go").__enter__()
        session.stop(cause="timed_out")
        with pytest.raises(TurnStopped):
            turn.stream().__enter__()
        assert field(caplog, "stop delivered", "cause") == "timed_out"
        assert field(caplog, "stop delivered", "turn_id") == turn.id


def test_a_holder_that_is_fenced_out(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store, Store(tmp_path / "work.db") as other:
        session = store.create_session()
        turn = session.turn("go").__enter__()
        other.session(session.id).turn("mine", if_busy="take_over").__enter__()
        with pytest.raises(StaleFence):
            turn.stream().__enter__()
        assert "fenced out" in messages(caplog)


def test_a_store_that_is_degraded_and_well_again(caplog: pytest.LogCaptureFixture) -> None:
    database = Failpoints(MemoryDisk().open(), lasting=True)
    with Store(database) as store:
        session = store.create_session()
        database.fail_at = database.steps + 1
        for _ in range(2):
            with pytest.raises(StoreDegraded):
                session.rename("a")
        database.fail_at = None
        session.rename("b")
        session.rename("c")
    assert messages(caplog) == ["store degraded", "store well again"]
    assert field(caplog, "store degraded", "error") == "injected"


def test_a_search_index_that_is_damaged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    fill(path)
    scribble("search_words_data")(path)
    with Store(path, indexing=False) as store, pytest.raises(SearchDamaged):
        store.search("needle")
    assert "search index damaged" in messages(caplog)


@pytest.fixture
def server() -> Shared:
    return shared_server("18")


@pytest.fixture
def proxy(server: Shared) -> Iterator[Proxy]:
    wire = Proxy(server.server.port)
    yield wire
    wire.close()


def test_a_transaction_that_is_retried(
    caplog: pytest.LogCaptureFixture, server: Shared, proxy: Proxy
) -> None:
    database = PostgresDatabase(server.server.url(port=proxy.port), reconnect_seconds=5)
    with Store(database, indexing=False) as store:
        session = store.create_session()
        proxy.blink()
        session.rename("again")
    assert "transaction retried" in messages(caplog)


def test_a_lease_that_is_lost(
    caplog: pytest.LogCaptureFixture, server: Shared, proxy: Proxy
) -> None:
    url = server.server.url(port=proxy.port)
    database = PostgresDatabase(url, lease_seconds=0.6, reconnect_seconds=1)
    with Store(database, indexing=False) as store:
        store.create_session()
        proxy.cut()
        until(lambda: "lease lost" in messages(caplog))
        proxy.heal()


class Failing(logging.Handler):
    """A handler of a user's own that lets its errors out."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        raise RuntimeError(record.getMessage())


@pytest.fixture
def failing_handler() -> Iterator[Failing]:
    handler = Failing()
    logging.getLogger("killick").addHandler(handler)
    yield handler
    logging.getLogger("killick").removeHandler(handler)


@pytest.mark.usefixtures("failing_handler")
def test_a_handler_that_fails_does_not_end_the_writer() -> None:
    database = Failpoints(MemoryDisk().open(), lasting=True)
    with Store(database) as store:
        session = store.create_session()
        database.fail_at = database.steps + 1
        with pytest.raises(StoreDegraded, match="injected"):
            session.rename("a")
        database.fail_at = None
        session.rename("b")
        assert store.status == "ok"


@pytest.mark.usefixtures("failing_handler")
def test_a_handler_that_fails_does_not_end_the_watch_for_stops(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store, Store(tmp_path / "work.db") as other:
        for _ in range(2):
            stop_from_outside(store, other)


def stop_from_outside(store: Store, other: Store) -> None:
    session = store.create_session()
    turn = session.turn("go").__enter__()
    other.session(session.id).stop()
    until(lambda: turn.stop_asked is not None)
    with pytest.raises(TurnStopped):
        turn.stream().__enter__()


def test_a_handler_that_fails_does_not_end_the_lease(
    failing_handler: Failing, server: Shared, proxy: Proxy
) -> None:
    url = server.server.url(port=proxy.port)
    database = PostgresDatabase(url, lease_seconds=0.6, reconnect_seconds=1)
    with Store(database, indexing=False) as store:
        store.create_session()
        proxy.cut()
        until(lambda: "lease lost" in failing_handler.messages)
        proxy.heal()
        until(lambda: is_alive(database))


def is_alive(database: PostgresDatabase) -> bool:
    with database.reading() as reader:
        return reader.is_alive(database.holder)


def test_it_is_silent_unless_it_is_set_up(tmp_path: Path) -> None:
    program = (
        "import killick, sys\n"
        "with killick.Store(sys.argv[1]) as store:\n"
        "    session = store.create_session()\n"
        "    try:\n"
        "        with session.turn('go') as turn:\n"
        "            session.stop()\n"
        "            turn.stream().__enter__()\n"
        "    except killick.TurnStopped: pass\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "work.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
