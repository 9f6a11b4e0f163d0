"""Where the stores of these tests lie."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import AsyncStore, Store
from holdfast.testing.memory import MemoryDisk
from tests.interrupt.driving import Disk

_WINDOW_SECONDS = 0.002
"""Short, so that deltas are flushed while scenarios run."""


class _Memory:
    def __init__(self) -> None:
        self._disk = MemoryDisk()

    def aio(self) -> AsyncStore:
        return AsyncStore(self._disk.open(), window_seconds=_WINDOW_SECONDS)

    def sync(self) -> Store:
        return Store(self._disk.open(), window_seconds=_WINDOW_SECONDS)


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path

    def aio(self) -> AsyncStore:
        return AsyncStore(self._path, durability="normal", window_seconds=_WINDOW_SECONDS)

    def sync(self) -> Store:
        return Store(self._path, durability="normal", window_seconds=_WINDOW_SECONDS)


@pytest.fixture(params=["memory", "sqlite"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    make: dict[str, Callable[[], Disk]] = {
        "memory": _Memory,
        "sqlite": lambda: _File(tmp_path / "store.db"),
    }
    return make[request.param]()
