"""The store on PostgreSQL passes the published suite, on the newest server and on the oldest."""

import pytest

from killick.testing.conformance import CHECKS, Check, World
from killick.testing.conformance.world import FACES, Face
from tests.postgres_fixtures import shared


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("version", ["18", "15"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
def test_conformance(check: Check, version: str, face: Face) -> None:
    World(face, shared(version).empty()).run(check)
