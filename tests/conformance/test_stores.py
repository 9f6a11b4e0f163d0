"""Every store passes the published suite, on the synchronous face, asyncio and trio."""

from collections.abc import Callable
from pathlib import Path

import pytest

from killick.stores.contract import Database
from killick.stores.memory import MemoryDisk
from killick.stores.sqlite import SqliteDatabase
from killick.testing.conformance import CHECKS, Check, World
from killick.testing.conformance.world import FACES, Face


def _sqlite(folder: Path) -> Callable[[], Database]:
    return lambda: SqliteDatabase(folder / "store.db")


def _memory(_: Path) -> Callable[[], Database]:
    return MemoryDisk().open


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("make", [_sqlite, _memory], ids=["sqlite", "memory"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
def test_conformance(
    check: Check, make: Callable[[Path], Callable[[], Database]], face: Face, tmp_path: Path
) -> None:
    World(face, make(tmp_path)).run(check)
