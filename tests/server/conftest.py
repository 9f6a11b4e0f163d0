"""Servers for tests, ended with them."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.postgres_fixtures import shared
from tests.server.client import Server

Serve = Callable[..., Server]
_schemas = count(1)


@pytest.fixture(scope="module")
def database() -> str:
    """Where the stores of a module's tests lie: a file. A module that runs on more says so."""
    return "sqlite"


def empty_store(database: str) -> str:
    """A store that nobody has used: for PostgreSQL a schema of its own on the shared server."""
    if database == "sqlite":
        return "work.db"
    return shared("18").server.url(f"served_{next(_schemas)}")


@pytest.fixture
def serve(tmp_path: Path, database: str) -> Iterator[Serve]:
    """Start servers on one store; all of them are gone afterwards."""
    started: list[Server] = []
    store = empty_store(database)

    def start(*options: str) -> Server:
        server = Server(tmp_path, *options, store=store)
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, database: str) -> Iterator[Server]:
    """One for all tests of a module that leave it as it was; they make sessions of their own."""
    server = Server(tmp_path_factory.mktemp("server"), store=empty_store(database))
    yield server
    server.close()
