"""The store in memory passes the published suite, on the synchronous face, asyncio and trio."""

import pytest

from killick.stores.memory import MemoryDisk
from killick.testing.conformance import CHECKS, Check, World
from killick.testing.conformance.world import FACES, Face


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
def test_conformance(check: Check, face: Face) -> None:
    World(face, MemoryDisk().open).run(check)
