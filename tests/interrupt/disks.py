"""Where the stores that are interrupted lie."""

from pathlib import Path

from killick import AsyncStore, Store
from killick.stores.memory import MemoryDisk
from tests.postgres_fixtures import shared

_WINDOW_SECONDS = 0.002
"""Short, so that deltas are flushed while scenarios run."""


class MemoryStores:
    """Stores on one disk that is only in memory."""

    def __init__(self, _folder: Path) -> None:
        self._disk = MemoryDisk()

    def aio(self) -> AsyncStore:
        return AsyncStore(self._disk.open(), window_seconds=_WINDOW_SECONDS)

    def sync(self) -> Store:
        return Store(self._disk.open(), window_seconds=_WINDOW_SECONDS)


class FileStores:
    """Stores on one file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "store.db"

    def aio(self) -> AsyncStore:
        return AsyncStore(self._path, durability="normal", window_seconds=_WINDOW_SECONDS)

    def sync(self) -> Store:
        return Store(self._path, durability="normal", window_seconds=_WINDOW_SECONDS)


class PackedStores(FileStores):
    """The same, where every flush shares a row, and is folded out of it a moment later."""


class ServerStores:
    """Stores on one server."""

    def __init__(self, _folder: Path) -> None:
        server = shared("18")
        server.empty()
        self._url = server.server.url()

    def aio(self) -> AsyncStore:
        return AsyncStore(self._url, durability="normal", window_seconds=_WINDOW_SECONDS)

    def sync(self) -> Store:
        return Store(self._url, durability="normal", window_seconds=_WINDOW_SECONDS)
