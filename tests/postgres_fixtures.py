"""One PostgreSQL server for all tests of a process, and an empty store for each of them."""

from collections.abc import Callable, Iterator
from functools import cache

import psycopg
import pytest

from holdfast.stores.postgres import PostgresDatabase
from holdfast.stores.postgres.connection import Durability
from tests.servers import Server, is_installed

_TABLES = (
    *("session_ids", "sessions", "entries", "deltas", "labels", "usage", "blobs"),
    *("blob_references", "erasures", "search_documents", "search_words", "search_substrings"),
    "holders",
)


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
        emptying = "; ".join(f"DELETE FROM holdfast.{name}" for name in _TABLES)
        resetting = "UPDATE holdfast.search_state SET substrings = false, damage = NULL"
        self._connection.execute(f"{emptying}; {resetting}".encode())
        url = self.server.url()
        return lambda: PostgresDatabase(url, durability=self._durability)

    def end_lease(self, pid: int) -> None:
        """As if the time of all leases that this process holds had run out."""
        self._connection.execute(
            "UPDATE holdfast.holders SET until = clock_timestamp() WHERE holder LIKE %s",
            (f"%/{pid}/%",),
        )

    def close(self) -> None:
        self._connection.close()
        self.server.remove()


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


@pytest.fixture(scope="session", autouse=True)
def _no_server_is_left() -> Iterator[None]:
    yield
    while _running:
        _running.pop().close()
