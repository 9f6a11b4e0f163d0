"""Stores without a disk."""

from collections.abc import Iterator

import pytest

from killick import Store
from killick.stores.memory import MemoryDisk


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(MemoryDisk().open()) as opened:
        yield opened


@pytest.fixture
def other() -> Iterator[Store]:
    with Store(MemoryDisk().open()) as opened:
        yield opened
