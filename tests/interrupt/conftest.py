"""Every test here runs on every kind of store."""

from pathlib import Path

import pytest

from tests.interrupt.disks import FileStores, MemoryStores, ServerStores
from tests.interrupt.driving import Disk


@pytest.fixture(
    params=[MemoryStores, FileStores, ServerStores], ids=["memory", "sqlite", "postgres"]
)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    made: Disk = request.param(tmp_path)
    return made
