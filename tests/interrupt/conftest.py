"""Every test here runs on both kinds of store."""

from pathlib import Path

import pytest

from tests.interrupt.disks import FileStores, MemoryStores
from tests.interrupt.driving import Disk


@pytest.fixture(params=[MemoryStores, FileStores], ids=["memory", "sqlite"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    made: Disk = request.param(tmp_path)
    return made
