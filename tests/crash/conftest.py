"""What every crash test starts from: a place for a store, and processes to kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import Nursery


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


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the test's store lies; nothing is there yet."""
    return str(tmp_path / "store.db")
