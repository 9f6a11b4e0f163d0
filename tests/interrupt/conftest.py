"""Every test here runs on every kind of store."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from killick.stores import writer
from killick.stores.sqlite import packs
from tests.interrupt.disks import FileStores, MemoryStores, PackedStores, ServerStores
from tests.interrupt.driving import Disk


@pytest.fixture(scope="module", autouse=True)
def _little_garbage() -> Iterator[None]:
    """They collect garbage hundreds of times. What other tests have left is not looked at again."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(
    params=[MemoryStores, FileStores, PackedStores, ServerStores],
    ids=["memory", "sqlite", "packs", "postgres"],
)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param is PackedStores:
            patch.setattr(packs, "PACKED_FROM", 1)
            patch.setattr(writer, "_FOLD_SECONDS", 0.004)
        made: Disk = request.param(tmp_path)
        yield made
