"""A real store for each test, and nothing left behind by any."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from killick import Session, Store
from tests.printable import pytest_runtest_makereport

__all__ = ["no_thread_is_left", "path", "pytest_runtest_makereport", "session", "store"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(1)  # one that was told to end may still be on its way
    assert not [thread.name for thread in left if thread.is_alive()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path, lock_wait_seconds=5) as opened:
        yield opened


@pytest.fixture
def session(store: Store) -> Session:
    return store.create_session(id="s", title="T")
