"""What every crash test starts from: a place for a store, and processes to kill."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.processes import Nursery
from tests.postgres_fixtures import shared

ON_POSTGRES = {
    *("test_stop_and_follow", "test_sleeping_holder", "test_interrupted_turns"),
    *("test_many_processes", "test_recovery_races"),
}
"""Whose tests run on both stores. The others look into SQLite's file, or count its statements."""

LONG_ON_POSTGRES = {"test_stop_races"}
"""Hundreds of races each: on a server they are for `make torture`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "path" in metafunc.fixturenames:
        module = metafunc.module.__name__.rsplit(".", 1)[-1]
        stores: list[Any] = ["sqlite"]
        if module in ON_POSTGRES:
            stores.append("postgres")
        elif module in LONG_ON_POSTGRES:
            stores.append(pytest.param("postgres", marks=pytest.mark.campaign))
        metafunc.parametrize("path", stores, indirect=True)


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
def path(request: pytest.FixtureRequest, tmp_path: Path, nursery: Nursery) -> str:
    """Where the test's store lies; nothing is there yet."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    server = shared("18")
    server.empty()
    # Nobody waits for ten seconds here: the lease of a process that was killed runs out at once.
    nursery.on_death = server.end_lease
    return server.server.url()
