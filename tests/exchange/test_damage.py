"""Thousands of damaged sources of each format: nothing crashes, nothing whole is lost."""

from pathlib import Path

import pytest

from tests.exchange.damage import CASES, check

SLICE = 100
CAMPAIGN = 5_000


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("block", range(SLICE // 50))
def test_a_hundred_damaged_sources(tmp_path: Path, case: str, block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        check(case, tmp_path, seed)


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("block", range(CAMPAIGN // 500))
def test_five_thousand_damaged_sources(tmp_path: Path, case: str, block: int) -> None:
    for seed in range(block * 500, block * 500 + 500):
        check(case, tmp_path, seed)
