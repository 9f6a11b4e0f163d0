"""A provider of ours, clients that ask it, and a store that they are recorded in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from killick import Store
from tests.recorders.clients import Clients
from tests.recorders.server import Scripted, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def clients(server: Scripted) -> Iterator[Clients]:
    opened = Clients(server)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _nothing_left(server: Scripted) -> None:
    """A test that failed, or cared for something else, may have left something behind."""
    server.scripts.clear()
    server.requests.clear()
    for told in (server.hung_up, server.stalled):
        while told.acquire(blocking=False):
            pass


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "work.db", durability="normal") as opened:
        yield opened
