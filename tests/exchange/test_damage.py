"""Thousands of damaged sources of each format: nothing crashes, nothing whole is lost."""

from pathlib import Path

import pytest

from killick.exchange.importer import READERS
from tests.exchange.damage import CASES, NEW, check

SLICE = 100
CAMPAIGN = 5_000


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("block", range(SLICE // 50))
def test_a_hundred_damaged_sources(tmp_path: Path, case: str, block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        check(case, tmp_path, seed)


@pytest.mark.parametrize("case", NEW)
@pytest.mark.parametrize("block", [2, 3])
def test_a_hundred_more_of_the_newer_formats(tmp_path: Path, case: str, block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        check(case, tmp_path, seed)


def test_no_format_is_forgotten() -> None:
    cases = {case.removesuffix("-lines") for case in CASES}
    assert {name for name in READERS if name not in cases} == set()


FOUND = [
    # A compaction that names seqs which the file has lost is the same one on the next import.
    ("killick", 476),
    ("killick", 600),
    ("killick", 1652),
    # One entry with too large a seq takes none of the next with it.
    ("killick", 2835),
    # A line that is a record twice is named.
    ("hermes-lines", 2437),
    # A session of which nothing can be read is said to be left.
    ("deerflow", 2495),
    # The type of a block may be anything.
    ("deerflow-files", 4569),
    # An ending may be anything.
    ("simple", 340),
    # What has the id of a prompt does not take its place.
    ("gemini-lines", 89),
    # A result that stands twice and differs is kept both times.
    ("gemini-lines", 343),
    # A result that stands twice before its call is taken once.
    ("qwen", 6869210733),
]


@pytest.mark.parametrize(("case", "seed"), FOUND)
def test_what_was_found_once_stays_found(tmp_path: Path, case: str, seed: int) -> None:
    check(case, tmp_path, seed)


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("block", range(CAMPAIGN // 500))
def test_five_thousand_damaged_sources(tmp_path: Path, case: str, block: int) -> None:
    for seed in range(block * 500, block * 500 + 500):
        check(case, tmp_path, seed)
