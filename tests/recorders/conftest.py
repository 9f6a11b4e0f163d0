"""A provider of ours, clients that ask it, and a store that they are recorded in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Store
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
    """A test that failed may have left a script behind."""
    server.scripts.clear()
    server.requests.clear()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "work.db", durability="normal") as opened:
        yield opened
