"""Every test here runs on every kind of store."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interrupt.disks import FileStores, MemoryStores, ServerStores
from tests.interrupt.driving import Disk


@pytest.fixture(scope="module", autouse=True)
def _little_garbage() -> Iterator[None]:
    """They collect garbage hundreds of times. What other tests have left is not looked at again."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(
    params=[MemoryStores, FileStores, ServerStores], ids=["memory", "sqlite", "postgres"]
)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    made: Disk = request.param(tmp_path)
    return made
