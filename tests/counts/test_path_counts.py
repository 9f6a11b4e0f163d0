"""What each step of a turn costs, counted: a change that needs more here is felt by everybody.

Calls are those of Python functions on all threads; blocks are pieces of memory that are still held
afterwards, which is what a session that goes on for days is made of.
"""

import re
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

from tests.counts.counting import PATHS
from tests.counts.test_append_counts import count


class Cost(NamedTuple):
    """Exactly these statements and syncs; at most so many calls and blocks."""

    statements: str
    syncs: int
    calls: int
    blocks: int


COSTS = {
    "entering a turn": Cost("BEGIN INSERT UPDATE INSERT UPDATE COMMIT", 1, 190, 47),
    "recording a message": Cost("BEGIN INSERT UPDATE COMMIT", 1, 110, 20),
    "entering a stream": Cost("BEGIN INSERT INSERT INSERT UPDATE COMMIT", 1, 166, 48),
    "handing a delta over": Cost("", 0, 12, 5),
    "leaving a stream": Cost(
        "BEGIN INSERT INSERT SELECT INSERT DELETE INSERT UPDATE COMMIT", 1, 214, 35
    ),
    "entering a tool": Cost("BEGIN INSERT UPDATE COMMIT", 1, 128, 15),
    "finishing a tool": Cost("BEGIN SELECT INSERT DELETE UPDATE COMMIT", 1, 130, 20),
    "leaving a turn": Cost("BEGIN INSERT UPDATE UPDATE INSERT COMMIT", 1, 162, 5),
    "reading the newest message": Cost("BEGIN SELECT SELECT ROLLBACK", 0, 300, 120),
}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = count(tmp_path_factory.mktemp("paths"), "paths")
    return found


def test_every_step_is_counted(counted: dict[str, Any]) -> None:
    assert {step: len(costs) for step, costs in counted.items()} == dict.fromkeys(COSTS, PATHS)


@pytest.mark.parametrize("step", COSTS)
def test_a_step_costs_what_is_stated(counted: dict[str, Any], step: str) -> None:
    costs, stated = counted[step], COSTS[step]
    # A watcher looks in now and then; what most of the steps did is what the step does.
    statements = Counter(" ".join(cost["statements"]) for cost in costs)
    assert statements.most_common(1)[0][0] == stated.statements, statements
    assert {cost.get("log syncs", 0) for cost in costs} == {stated.syncs}
    assert median(cost.get("calls", 0) for cost in costs) <= stated.calls
    assert median(cost["kept"] for cost in costs) <= stated.blocks


def test_the_document_states_these_numbers() -> None:
    document = Path(__file__).parents[2] / "docs" / "performance.md"
    row = r"^\| ([^|]+?) +\| +(\d+) +\| +(\d+) +\| +(\d+) +\| +(\d+) +\|$"
    stated = {
        step: tuple(map(int, numbers))
        for step, *numbers in re.findall(row, document.read_text("utf-8"), re.M)
    }
    assert stated == {
        step: (len(cost.statements.split()), cost.syncs, cost.calls, cost.blocks)
        for step, cost in COSTS.items()
    }
