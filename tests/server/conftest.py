"""Servers for tests, ended with them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.client import Server

Serve = Callable[..., Server]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start servers on one store; all of them are gone afterwards."""
    started: list[Server] = []

    def start(*options: str, store: str = "work.db") -> Server:
        server = Server(tmp_path / store, *options)
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests of a module that leave it as it was; they make sessions of their own."""
    server = Server(tmp_path_factory.mktemp("server") / "work.db")
    yield server
    server.close()
