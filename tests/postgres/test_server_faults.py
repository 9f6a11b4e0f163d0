"""A server that is down, refuses, is too old, in recovery, out of connections or of disk."""

import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from killick import (
    Message,
    ServerTooOld,
    Session,
    Store,
    StoreDegraded,
    StoreError,
    StoreNewer,
    StoreNotOurs,
    StoreReadOnly,
    Text,
)
from killick.stores.postgres import PostgresDatabase, migrate
from killick.stores.postgres.connection import Connection
from tests.crash.journals import check_sound
from tests.postgres.proxy import Proxy
from tests.postgres_fixtures import Shared, shared
from tests.servers import Server, free_port, is_installed
from tests.waiting import until

SOON = 1.0
STATED = 8.0
"""What `reconnect_seconds=SOON` may become on a busy machine; without it, it would be for ever."""


@pytest.fixture
def own() -> Iterator[Server]:
    """A server that one test may do anything to."""
    server = Server(superuser_reserved_connections=1, max_connections=20).create()
    yield server
    server.remove()


def open_store(server: Server) -> Store:
    return Store(PostgresDatabase(server.url(), reconnect_seconds=SOON, wait_seconds=2))


def say(session: Session, text: str) -> None:
    with session.turn(text) as turn:
        turn.record(Message("assistant", [Text(f"answer to {text}")]))


def prompts(session: Session) -> list[str]:
    return [message.text for message in session.messages() if message.role == "user"]


def test_a_server_that_is_not_there_is_said_so() -> None:
    begun = time.monotonic()
    with pytest.raises(StoreDegraded, match="cannot be reached"):
        Store(f"postgresql://postgres@127.0.0.1:{free_port()}/postgres")
    assert time.monotonic() - begun < STATED


def test_no_password_is_shown() -> None:
    with pytest.raises(StoreError) as raised:
        Store(f"postgresql://me:sesame@127.0.0.1:{free_port()}/db")
    assert "sesame" not in str(raised.value)


@pytest.mark.parametrize("url", ["postgresql://h/db?schema=Bad%20Name", "postgresql://h/d?nope=1"])
def test_an_address_that_cannot_be_read_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match=r"schema|address"):
        Store(url)


def test_a_server_goes_down_and_comes_back(own: Server) -> None:
    """While it is down a write fails within the stated time and is not acknowledged; the same store
    works again when the server does, and what was acknowledged is there."""
    with open_store(own) as store:
        session = store.create_session()
        say(session, "before")
        own.stop()
        begun = time.monotonic()
        with pytest.raises(StoreDegraded), session.turn("while"):
            pass
        with pytest.raises(StoreDegraded, match="cannot be reached"):
            session.note("while", None)
        with pytest.raises(StoreDegraded):
            session.messages()
        assert time.monotonic() - begun < 2 * STATED
        assert store.status == "degraded"
        own.start()
        say(session, "after")
        assert store.status == "ok"
        assert prompts(session) == ["before", "after"]
        check_sound(session)


def test_a_turn_outlives_a_crash_of_the_server(own: Server) -> None:
    """kill -9 to the server in mid-turn: the turn goes on when it is back, and misses nothing."""
    with Store(own.url()) as store:
        session = store.create_session()
        with session.turn("go") as turn:
            for number in range(5):
                turn.record(Message("assistant", [Text(str(number))]))
            with turn.stream() as reply:
                reply.text("half ")
                own.kill()
                own.start()
                reply.text("and half")
            turn.record(Message("assistant", [Text("after")]))
        texts = [message.text for message in session.messages()]
        assert texts == ["go", *map(str, range(5)), "half and half", "after"]
        check_sound(session)


def test_connections_that_are_ended_are_opened_again(server: Shared) -> None:
    """An administrator ends every connection, between any two calls: nobody notices."""
    ending = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND application_name = 'killick'"
    )
    with Store(server.server.url()) as store:
        session = store.create_session()
        for number in range(3):
            server.server.execute(ending)
            with session.turn(str(number)) as turn:
                server.server.execute(ending)
                turn.record(Message("assistant", [Text("yes")]))
                server.server.execute(ending)
                assert len(session.messages()) == 2 * number + 2
                server.server.execute(ending)
        assert prompts(session) == ["0", "1", "2"]


def test_a_server_without_a_connection_left(own: Server) -> None:
    own.execute("CREATE ROLE plain LOGIN")
    own.execute("CREATE SCHEMA plain AUTHORIZATION plain")
    url = own.url("plain").replace("postgres@", "plain@")
    with Store(PostgresDatabase(url, reconnect_seconds=SOON)) as store:
        session = store.create_session()
        own.execute("ALTER ROLE plain CONNECTION LIMIT 0")
        own.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'plain'"
        )
        with pytest.raises(StoreDegraded, match="too many connections"):
            say(session, "while")
        own.execute("ALTER ROLE plain CONNECTION LIMIT -1")
        say(session, "after")
        assert prompts(session) == ["after"]


def test_no_file_is_left_to_wait_for_the_server_with(server: Shared) -> None:
    """The one that is left is for the connection, and psycopg needs another. It is as if the server
    could not be reached: an error of ours, after which a lease is tried again."""
    url = server.server.url()
    Store(url).close()  # whatever is loaded by the first is loaded
    with pytest.raises(StoreDegraded, match="Too many open files"), files_left(1):
        Store(url)


def test_a_read_that_is_interrupted_as_it_ends_leaves_no_connection(
    server: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl+C comes while the server is told that it is over: nobody would ever end it."""
    in_a_read = "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'"
    execute = Connection.execute

    def interrupted(connection: Connection, sql: Any, *args: Any, **kwargs: Any) -> Any:
        if sql == "ROLLBACK":
            raise KeyboardInterrupt
        return execute(connection, sql, *args, **kwargs)

    with Store(server.server.url(), indexing=False) as store:
        session = store.create_session()
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "execute", interrupted)
            with pytest.raises(KeyboardInterrupt) as raised:  # and what it has seen is kept
                session.messages()
        until(lambda: not server.server.execute(in_a_read), STATED)
        assert session.messages() == []
    del raised


@contextmanager
def files_left(count: int) -> Iterator[None]:
    """This process can open so many files."""
    free = os.dup(0)
    os.close(free)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_an_unprivileged_role_in_a_schema_of_its_own(server: Shared) -> None:
    """It needs no more than its schema; whoever may not even read is told so."""
    server.server.execute("DROP SCHEMA IF EXISTS theirs CASCADE")
    server.server.execute("DROP ROLE IF EXISTS tenant_role")
    server.server.execute("CREATE ROLE tenant_role LOGIN")
    server.server.execute("CREATE SCHEMA theirs AUTHORIZATION tenant_role")
    url = server.server.url("theirs").replace("postgres@", "tenant_role@")
    with Store(url) as store:
        session = store.create_session()
        say(session, "needle")
        assert [hit.snippet for hit in store.search("needle", wait_seconds=30)][-1] == "needle"
        store.rebuild_search(substrings=True)
        assert len(store.search("eedl", substring=True, wait_seconds=30)) == 2
    with pytest.raises(StoreError, match="permission denied"):
        Store(url.replace("theirs", "killick"))
    with pytest.raises(StoreError, match="permission denied"):
        Store(url.replace("theirs", "another"))
    server.server.execute("DROP SCHEMA theirs CASCADE")


def test_an_old_server_is_refused(server: Shared, wire: Callable[[], Proxy]) -> None:
    """There is none here: the newest says of itself that it is older."""
    wire_ = wire()
    wire_.instead = (b"server_version\0" + b"18.", b"server_version\0" + b"14.")
    with pytest.raises(ServerTooOld, match="PostgreSQL 14; a store needs 15"):
        Store(server.server.url(port=wire_.port))
    wire_.instead = (b"server_version\0" + b"18.", b"server_version\0" + b"15.")
    Store(server.server.url(port=wire_.port)).close()


def test_the_servers_of_these_tests_are_what_they_are_called() -> None:
    for version in ("18", "15"):
        assert is_installed(version) is False or shared(version).server.version.startswith(version)


def test_a_schema_that_is_not_ours_is_left_alone(server: Shared) -> None:
    server.server.execute("DROP SCHEMA IF EXISTS foreign_one CASCADE")
    server.server.execute("CREATE SCHEMA foreign_one")
    server.server.execute("CREATE TABLE foreign_one.sessions (x int)")
    with pytest.raises(StoreNotOurs, match="did not make"):
        Store(server.server.url("foreign_one"))
    assert server.server.execute("SELECT * FROM foreign_one.sessions") == []
    server.server.execute("DROP SCHEMA foreign_one CASCADE")


def test_a_store_of_a_newer_version_is_left_alone(server: Shared) -> None:
    """Only `oldest` refuses: a newer version that this code can live with is used."""
    server.server.execute("UPDATE killick.meta SET value = 99 WHERE name = 'version'")
    Store(server.server.url()).close()
    server.server.execute("UPDATE killick.meta SET value = 99 WHERE name = 'oldest'")
    try:
        with pytest.raises(StoreNewer, match="install the newer version"):
            Store(server.server.url())
    finally:
        stored = {"version": len(migrate.migrations()), "oldest": migrate.OLDEST}
        for name, value in stored.items():
            server.server.execute(f"UPDATE killick.meta SET value = {value} WHERE name = '{name}'")


def fill(session: Session) -> int:
    """Write until the disk is full; how much was acknowledged."""
    for number in range(1_000):
        try:
            session.note("filler", os.urandom(100_000).hex())
        except StoreDegraded as error:
            assert "disk is full" in str(error)  # noqa: PT017
            return number
    raise AssertionError("the disk is never full")


@pytest.mark.slow
def test_a_standby_is_read_and_can_be_promoted(own: Server) -> None:
    """On a standby in recovery everything can be read and nothing written; after its promotion the
    same store writes."""
    with Store(own.url()) as store:
        session_id = store.create_session(title="it").id
        say(store.session(session_id), "before")
    standby = Server().copy_of(own, slot="one", name="standby")
    try:
        until(lambda: standby.execute("SELECT 1 FROM killick.entries OFFSET 4"))
        with Store(own.url()) as store:
            said = [one.what for one in store.check_file()]
            assert [one for one in said if "follow asynchronously" in one]
        with open_store(standby) as store:
            session = store.session(session_id)
            assert prompts(session) == ["before"]
            with pytest.raises(StoreReadOnly, match="standby"):
                say(session, "no")
            assert [one.what for one in store.check_file() if "standby" in one.what]
            own.kill()
            standby.promote()
            say(session, "after")
            assert prompts(session) == ["before", "after"]
    finally:
        standby.remove()


def test_a_full_disk_loses_nothing_that_was_acknowledged() -> None:
    """The tables lie on a small disk. When it is full a write fails and says why; when there is
    room again the same store goes on."""
    server = Server(max_wal_size="64MB")
    small = server.folder / "small"
    small.mkdir()
    mounted = os.getuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", small], check=False
    )
    if not mounted or mounted.returncode != 0:
        server.remove()
        pytest.skip("no small disk can be made here: mounting is not allowed")
    try:
        server.create()
        place = small / "space"
        place.mkdir()
        assert server.owner is not None
        os.chown(place, *server.owner)
        small.chmod(0o755)
        server.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
        server.execute("ALTER DATABASE postgres SET default_tablespace = small")
        with Store(server.url(), indexing=False) as store:
            session = store.create_session()
            ballast = small / "ballast"
            ballast.write_bytes(b"x" * 1_000_000)
            said = fill(session)
            with pytest.raises(StoreDegraded, match="disk is full"):
                session.note("filler", os.urandom(2_000_000).hex())
            ballast.unlink()
            session.note("after", None)
            kept = [entry for entry in session.entries() if entry.kind == "note"]
            assert len(kept) == said + 1
    finally:
        server.kill()
        subprocess.run(["umount", small], check=False)
        server.remove()
