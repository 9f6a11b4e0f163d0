"""The store on SQLite passes the published suite, on the synchronous face, asyncio and trio."""

from pathlib import Path

import pytest

from killick.stores import writer
from killick.stores.sqlite import SqliteDatabase, packs
from killick.testing.conformance import CHECKS, Check, World
from killick.testing.conformance.world import FACES, Face


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
def test_conformance(check: Check, face: Face, tmp_path: Path) -> None:
    World(face, lambda: SqliteDatabase(tmp_path / "store.db")).run(check)


@pytest.mark.parametrize("seconds", [0.0, 3_600.0])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
def test_conformance_of_packs(
    check: Check, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every flush shares a row, and is folded at once, or as good as never."""
    monkeypatch.setattr(packs, "PACKED_FROM", 1)
    monkeypatch.setattr(writer, "_FOLD_SECONDS", seconds)
    World("sync", lambda: SqliteDatabase(tmp_path / "store.db")).run(check)
