"""Cancelled at every suspension point: nothing acknowledged is lost, every turn has one ending.

After each interruption the store is opened anew. What left the scenario was the interruption; what
was acknowledged is there; text that was handed over is there, as partial; each turn that began has
one ending, `interrupted` unless its block was already being left; no delta, task or thread stays
behind; and the session takes its next turn.
"""

import asyncio

import pytest
import trio

from tests.interrupt.driving import Disk, Visit, Way
from tests.interrupt.points import Moment
from tests.interrupt.scenarios import SCENARIOS

pytestmark = pytest.mark.slow

ASYNCIO: list[tuple[Way, Moment]] = [
    ("cancel", "at once"),
    ("cancel", "answered"),
    ("cancel twice", "soon"),
    ("timeout", "soon"),
    ("anyio scope", "at once"),
]
TRIO: list[tuple[Way, Moment]] = [("trio scope", "at once"), ("trio scope", "soon")]
MORE: list[tuple[Way, Moment]] = [
    ("cancel", "soon"),
    ("cancel twice", "at once"),
    ("cancel twice", "answered"),
    ("timeout", "answered"),
    ("anyio scope", "soon"),
    ("anyio scope", "answered"),
]


def ids(value: object) -> str:
    return str(value).replace(" ", "_")


def visit(disk: Disk, name: str, way: Way, moment: Moment) -> None:
    scenario, at_least, held = SCENARIOS[name]
    visits = Visit(disk, scenario, held)
    visits.way, visits.moment = way, moment
    if way == "trio scope":
        points = trio.run(visits.all_points)
    else:
        points = asyncio.run(visits.all_points())
    assert points >= at_least, "the scenario suspends less often than it was written to"


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize(("way", "moment"), ASYNCIO, ids=ids)
def test_in_asyncio(disk: Disk, name: str, way: Way, moment: Moment) -> None:
    visit(disk, name, way, moment)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize(("way", "moment"), TRIO, ids=ids)
def test_in_trio(disk: Disk, name: str, way: Way, moment: Moment) -> None:
    visit(disk, name, way, moment)


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("repeat", range(5))
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize(("way", "moment"), [*ASYNCIO, *TRIO, *MORE], ids=ids)
def test_every_way_many_times(disk: Disk, name: str, way: Way, moment: Moment, repeat: int) -> None:
    visit(disk, name, way, moment)
