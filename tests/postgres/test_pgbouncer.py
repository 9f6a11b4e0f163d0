"""Behind pgbouncer in transaction mode: nothing outlives a transaction, and all works the same."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from killick import Message, Store, Text, TurnStopped
from killick.stores.postgres import PostgresDatabase
from killick.testing.conformance import CHECKS, Check, World
from killick.testing.conformance.world import Face
from tests.crash.journals import check_store
from tests.postgres_fixtures import Shared, shared
from tests.servers import free_port, run_as
from tests.waiting import until

PROGRAM = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"

CHOSEN = [
    check
    for check in CHECKS
    if check.__module__.rsplit(".", 1)[-1] in ("leases", "turns", "reading", "searching")
    and check.__name__ != "the_first_messages_are_whole_however_late_they_were_ended"
]


@pytest.fixture(scope="module")
def bouncer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a pooler before the shared server."""
    if not Path(PROGRAM).exists():
        pytest.skip("pgbouncer is not installed: apt-get install pgbouncer")
    server = shared("18").server
    port, folder = free_port(), server.folder / "pgbouncer"
    folder.mkdir(exist_ok=True)
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        "[databases]\n"
        f"postgres = host=127.0.0.1 port={server.port} dbname=postgres\n"
        "[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {folder}/users\nlogfile = {folder}/log\n"
        "pool_mode = transaction\nmax_client_conn = 200\ndefault_pool_size = 10\n"
    )
    (folder / "users").write_text('"postgres" ""\n')
    run = run_as()
    if run:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, run["user"], run["group"])
    process = subprocess.Popen([PROGRAM, settings], stderr=subprocess.DEVNULL, **run)
    try:
        until(lambda: answers(port))
        yield port
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    try:
        psycopg.connect(f"host=127.0.0.1 port={port} user=postgres dbname=postgres").close()
    except psycopg.OperationalError:
        return False
    return True


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
