"""The store on SQLite passes the published suite, on the synchronous face, asyncio and trio."""

from pathlib import Path

import pytest

from killick.stores.sqlite import SqliteDatabase
from killick.testing.conformance import CHECKS, Check, World
from killick.testing.conformance.world import FACES, Face


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
def test_conformance(check: Check, face: Face, tmp_path: Path) -> None:
    World(face, lambda: SqliteDatabase(tmp_path / "store.db")).run(check)
