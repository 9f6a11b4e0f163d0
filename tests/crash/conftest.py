"""What every crash test starts from: a place for a store, and processes to kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import Nursery
from tests.postgres_fixtures import OnServer, shared
from torture.campaign import Files, Places

STORES = ("sqlite", "postgres")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that asks for a place runs on both stores."""
    if "places" in metafunc.fixturenames:
        metafunc.parametrize("places", STORES, indirect=True)


@pytest.fixture(scope="session")
def _one_nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def nursery(_one_nursery: Nursery) -> Iterator[Nursery]:
    """Forks children; whatever a test leaves running is killed after it."""
    yield _one_nursery
    _one_nursery.clean_up()
    _one_nursery.on_death = None


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path, nursery: Nursery) -> Places:
    """Where the stores of a test lie; nothing is there yet."""
    found = Files(tmp_path) if request.param == "sqlite" else OnServer(shared("18"))
    # Nobody waits for ten seconds here: the lease of a process that was killed runs out at once.
    nursery.on_death = found.died
    return found


@pytest.fixture
def path(places: Places) -> str:
    """Where the test's one store lies."""
    return places.at("store.db")
