"""A real store without a disk: what is looked at is what the views make of its journal."""

from collections.abc import Iterator

import pytest

from killick import Session, Store
from killick.stores.memory import MemoryDisk


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(MemoryDisk().open()) as store:
        yield store


@pytest.fixture
def session(store: Store) -> Session:
    return store.create_session()
