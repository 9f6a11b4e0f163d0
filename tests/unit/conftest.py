"""What every unit test must leave as it found it."""

import threading
from collections.abc import Iterator

import pytest

from tests.printable import pytest_runtest_makereport

__all__ = ["no_thread_is_left", "pytest_runtest_makereport"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(1)  # one that was told to end may still be on its way
    assert not [thread.name for thread in left if thread.is_alive()]
