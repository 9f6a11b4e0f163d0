"""What a flush of many streams costs, counted: the same however old the streams are."""

from collections import Counter
from typing import Any

import pytest

from tests.counts.counting import FLUSHES, FOLDED_EVERY, STREAMS
from tests.counts.test_append_counts import count

PAGES_OF_A_FLUSH = 10
"""Of 256 streams, at most; a row for each was two pages for a dozen, then one for each."""

PAGES_OF_A_FOLD = 90
"""Of 40 flushes, at most: a row for each stream, and a place in the index for each."""


@pytest.fixture(scope="module")
def flushes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    counted: list[dict[str, Any]] = count(tmp_path_factory.mktemp("crowd"), "crowd")["flushes"]
    assert len(counted) == FLUSHES
    return counted


def test_a_flush_is_three_statements_and_one_sync(flushes: list[dict[str, Any]]) -> None:
    """But for the first, which looks for packs of others."""
    statements = Counter(" ".join(cost["statements"]) for cost in flushes[1:])
    assert statements == {"BEGIN INSERT COMMIT": FLUSHES - 1}
    assert Counter(cost["log syncs"] for cost in flushes).most_common(1)[0][0] == 1


def test_a_flush_is_a_few_pages_however_many_came_before(flushes: list[dict[str, Any]]) -> None:
    pages = [cost["log pages"] for cost in flushes]
    assert max(pages) <= PAGES_OF_A_FLUSH < STREAMS
    young, old = pages[FOLDED_EVERY : 2 * FOLDED_EVERY], pages[-FOLDED_EVERY:]
    assert sum(old) <= sum(young) + FOLDED_EVERY


def test_a_fold_costs_less_than_the_flushes_that_it_folds(flushes: list[dict[str, Any]]) -> None:
    folds = [cost["fold"] for cost in flushes if "fold" in cost]
    assert len(folds) == FLUSHES // FOLDED_EVERY
    assert max(folds) <= PAGES_OF_A_FOLD
    assert max(folds) < sum(cost["log pages"] for cost in flushes[:FOLDED_EVERY])
