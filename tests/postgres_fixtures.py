"""One PostgreSQL server for all tests of a process, and an empty store for each of them."""

import contextlib
from collections.abc import Callable, Iterator
from functools import cache

import psycopg
import pytest

from killick.stores.postgres import PostgresDatabase
from killick.stores.postgres.connection import Durability
from tests.servers import Server, is_installed
from tests.waiting import until

_TABLES = (
    *("session_ids", "sessions", "entries", "deltas", "labels", "usage", "blobs"),
    *(
        "blob_references",
        "erasures",
        "retention",
        "search_documents",
        "search_words",
        "search_substrings",
    ),
    *("holders", "news", "counted", "usage_sums", "activity_sums"),
)


_AT_WORK = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'killick' AND state <> 'idle'"


class Shared:
    """A server that many tests use, one after the other: making a schema takes longer than most.

    Its machine is not crashed by any of them, so it need not wait for the disk.
    """

    def __init__(self, version: str, durability: Durability) -> None:
        self._durability = durability
        self.server = Server(version, max_connections=200, fsync="off").create()
        PostgresDatabase(self.server.url()).close()
        self._connection = psycopg.connect(self.server.conninfo(), autocommit=True)

    def empty(self) -> Callable[[], PostgresDatabase]:
        """A function that opens the store, in which nothing is left of the test before."""
        emptying = "; ".join(f"DELETE FROM killick.{name}" for name in _TABLES)
        resetting = "UPDATE killick.search_state SET substrings = false, damage = NULL"
        self._connection.execute(f"{emptying}; {resetting}".encode())
        url = self.server.url()
        return lambda: PostgresDatabase(url, durability=self._durability)

    def end_lease(self, pid: int) -> None:
        """As if the time of all leases that this dead process held had run out.

        After the server has done what it was told before: that may be on its way still.
        """
        with contextlib.suppress(AssertionError):  # it may be at work for others
            until(lambda: not self._connection.execute(_AT_WORK).fetchall(), 2)
        self._connection.execute(
            "UPDATE killick.holders SET until = clock_timestamp() WHERE holder LIKE %s",
            (f"%/{pid}/%",),
        )

    def close(self) -> None:
        self._connection.close()
        self.server.remove()


class OnServer:
    """Where the stores of a test lie, one after the other: all of them in the same schema."""

    slow = True

    def __init__(self, server: Shared) -> None:
        self._server = server
        self._name: str | None = None

    def at(self, name: str) -> str:
        if name != self._name:
            self._server.empty()
        self._name = name
        return self._server.server.url()

    def died(self, pid: int) -> None:
        self._server.end_lease(pid)


_HELD = (
    "SELECT 1 FROM killick.holders AS h, pg_locks AS k WHERE h.holder LIKE %s AND k.granted "
    "AND k.locktype = 'advisory' "
    "AND (k.classid::bigint << 32) | k.objid::bigint = hashtextextended(h.holder, 0)"
)


class OnServerWithLeases(OnServer):
    """The same, and a dead process is known by its lock: its lease has most of its time left."""

    def died(self, pid: int) -> None:
        """Wait until the server has noticed the end of its connections, as it does by itself."""
        until(lambda: not self._server.server.execute(_HELD, f"%/{pid}/%"))


_running: list[Shared] = []


@cache
def shared(version: str) -> Shared:
    """Started by the first test that asks."""
    if not is_installed(version):
        pytest.skip(f"PostgreSQL {version} is not installed: apt-get install postgresql-{version}")
    # The oldest server is asked whether it understands everything, not whether its disk is slow.
    made = Shared(version, "full" if version == "18" else "normal")
    _running.append(made)
    return made


def close_servers() -> None:
    """End every server that this process has started."""
    while _running:
        _running.pop().close()


@pytest.fixture(scope="session", autouse=True)
def _no_server_is_left() -> Iterator[None]:
    yield
    close_servers()
