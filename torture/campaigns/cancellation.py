"""Cut off at every suspension point of every scenario, in every way; twice, too.

The scenarios and how a coroutine is driven from point to point are those of `tests/interrupt`. A
seed names a combination of scenario, way, moment and store; its round visits every point there is.
"""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import trio

from tests.interrupt import closing, keyboard
from tests.interrupt.disks import FileStores, MemoryStores, ServerStores
from tests.interrupt.driving import Disk, Visit, Way
from tests.interrupt.points import Moment
from tests.interrupt.scenarios import SCENARIOS
from torture.campaign import Campaign, Round, Sizes

_POINTS_MAX: Final = 500
_STRIDE: Final = 40
"""A round of Ctrl+C visits every fortieth place; forty rounds visit all."""

WAYS: Final[list[tuple[Way, Moment]]] = [
    ("cancel", "at once"),
    ("cancel", "soon"),
    ("cancel", "answered"),
    ("cancel twice", "at once"),
    ("cancel twice", "soon"),
    ("cancel twice", "answered"),
    ("cancel on and on", "at once"),
    ("cancel on and on", "soon"),
    ("cancel on and on", "answered"),
    ("timeout", "soon"),
    ("timeout", "answered"),
    ("anyio scope", "at once"),
    ("anyio scope", "soon"),
    ("anyio scope", "answered"),
    ("trio scope", "at once"),
    ("trio scope", "soon"),
]


def visit_scenario(name: str, way: Way, moment: Moment, round_: Round, disk: Disk) -> None:
    """Every point of one scenario."""
    scenario, at_least, held = SCENARIOS[name]
    visit = Visit(disk, scenario, held)
    visit.way, visit.moment = way, moment
    points = _every_point(
        round_,
        f"{name}, {way} {moment}",
        lambda at: _run(partial(visit.one_point, at), in_trio=way == "trio scope"),
    )
    if points < at_least:
        round_.fail(name, AssertionError(f"{points} points; it was written to have {at_least}"))


def close_generator(
    in_trio: bool,  # noqa: FBT001
    generator: tuple[closing.Make, int],
    round_: Round,
    disk: Disk,
) -> None:
    """`aclose` at every yield, and the consumer cancelled at every suspension of both."""
    make, yields_in_all = generator
    for yields in range(yields_in_all + 1):
        close = partial(closing.closed_after, disk, make, yields)
        round_.check(f"closed at yield {yields}", partial(_run, close, in_trio=in_trio))
    _every_point(
        round_,
        "the consumer is cancelled",
        lambda at: _run(partial(closing.cancelled_in_next, disk, make, at), in_trio=in_trio),
    )


def press_keys(work: keyboard.Work, times: int, round_: Round, disk: Disk) -> None:
    """Ctrl+C at places of the synchronous face, in the midst of whatever line."""
    places = keyboard.interrupt(disk, set(), work).count
    first = 1 + round_.chance.randrange(_STRIDE)
    for at in range(first, places, _STRIDE):
        gaps = (round_.chance.randrange(1, 120) for _ in range(times - 1))
        keys = set(itertools.accumulate(gaps, initial=at))
        round_.check(f"Ctrl+C at {sorted(keys)}", keyboard.interrupt, disk, keys, work)


def _every_point(round_: Round, what: str, visit: Callable[[int], bool]) -> int:
    """Visit the first point, the second, until none is left; how many there were."""
    for at in range(1, _POINTS_MAX):
        if round_.check(f"{what}, point {at}", visit, at) is False:
            round_.more(-1)  # there was no such point
            return at - 1
    raise AssertionError("the scenario never ends")


def _run(main: Callable[[], Any], *, in_trio: bool) -> Any:
    return trio.run(main) if in_trio else asyncio.run(main())


def _rounds(disks: Sequence[Any]) -> list[Callable[[Round], None]]:
    """Every combination, well mixed, so that the first few are of every kind."""
    kinds: list[Callable[[Round, Disk], None]] = [
        partial(visit_scenario, name, way, moment) for name in SCENARIOS for way, moment in WAYS
    ]
    kinds += [
        partial(close_generator, in_trio, generator)
        for in_trio in (False, True)
        for generator in closing.GENERATORS
    ]
    kinds += [partial(press_keys, work, times) for work in keyboard.TURNS for times in (1, 2, 5)]
    rounds = [partial(_on, disk, kind) for kind in kinds for disk in disks]
    random.Random(0).shuffle(rounds)
    return list(rounds)


def _on(disk: Any, kind: Callable[[Round, Disk], None], round_: Round) -> None:
    kind(round_, disk(round_.quick))


ROUNDS: Final = _rounds([MemoryStores, FileStores])
ON_A_SERVER: Final = _rounds([ServerStores])


def run(round_: Round) -> None:
    rounds = ON_A_SERVER if round_.places.slow else ROUNDS
    rounds[round_.seed % len(rounds)](round_)


CAMPAIGN = Campaign(
    name="cancellation",
    tries="a task is cancelled, timed out or closed, or Ctrl+C comes, at every suspension point of "
    "every scenario, once and a second time during the clean-up, in asyncio and trio",
    holds="every point was visited; what was told is stored; one ending for each turn; no task, "
    "thread or delta is left",
    sizes=Sizes(slice=500, torture=10_000, long=200_000),
    run=run,
    rounds=len(ROUNDS),
)
