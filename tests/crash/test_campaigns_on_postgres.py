"""The campaigns that kill processes and let them race, on a server: the same code, the same checks.

On a file `make test` runs a slice of each, and `make torture` the whole.
"""

import pytest

from tests.postgres_fixtures import OnServer, shared
from torture.campaigns import load
from torture.running import run_round

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(180)]

ROUNDS = [
    pytest.param("kills", 0, id="killed at statements"),
    pytest.param("kills", 1, id="killed in streams"),
    pytest.param("kills", 2, id="killed at random moments"),
    pytest.param("kills", 4, id="killed at statements of a recovery"),
    pytest.param("fences", 0, id="fenced out"),
    pytest.param("processes", 0, id="eight processes"),
    pytest.param("races", 0, id="stop, sync"),
    pytest.param("races", 2, id="take-over, trio"),
    pytest.param("races", 5, id="take-over, asyncio"),
]


@pytest.mark.parametrize(("name", "seed"), ROUNDS)
def test_a_round(name: str, seed: int) -> None:
    outcome = run_round(load(name), seed, places=OnServer(shared("18")))
    told = [f"{one.what}\n{one.error}" for one in outcome.failures[:3]]
    assert not outcome.failures, "\n".join(told)
    assert outcome.cases


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(8, 136))
def test_every_boundary_and_many_moments(seed: int) -> None:
    """Sixteen rounds along statements stop at every one of them, before and after."""
    outcome = run_round(load("kills"), seed, places=OnServer(shared("18")))
    assert outcome.failures == []
