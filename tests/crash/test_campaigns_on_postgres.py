"""The campaigns that kill processes and let them race, on a server: the same code, the same checks.

On a file `make test-all` runs a slice of each, and `make torture` the whole.
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
    pytest.param("races", 1, id="stop meets asyncio"),
    pytest.param("races", 3, id="take-over meets sync"),
]
LONGER = [
    *(("kills", seed) for seed in range(8, 136)),
    *(("races", seed) for seed in range(6)),
    *(("fences", seed) for seed in range(1, 5)),
    *(("processes", seed) for seed in range(2)),
]
"""Sixteen of the first stop at every boundary of a statement, before and after."""


@pytest.mark.parametrize(("name", "seed"), ROUNDS)
def test_a_round(name: str, seed: int) -> None:
    outcome = run_round(load(name), seed, places=OnServer(shared("18")))
    told = [f"{one.what}\n{one.error}" for one in outcome.failures[:3]]
    assert not outcome.failures, "\n".join(told)
    assert outcome.cases


@pytest.mark.campaign
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("name", "seed"), LONGER)
def test_many_rounds(name: str, seed: int) -> None:
    test_a_round(name, seed)
