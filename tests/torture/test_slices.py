"""A slice of every campaign, and everything that a campaign has ever found, again."""

import itertools
import sys

import pytest

from torture import findings
from torture.campaigns import NAMES, load
from torture.running import run_here, run_round

_SEED = 1
FOUND = [(one.campaign, seed) for one in findings.load() for seed in one.seeds]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name in NAMES if load(name).cases("slice")])
def test_a_slice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seeds every time, as `python -m torture --slice` runs them."""
    # pytest's own is Python: an interruption that lands in it ends the test.
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    campaign = load(name)
    missing = campaign.lacks()
    if missing is not None:
        pytest.skip(missing)
    outcomes = list(run_here(campaign, itertools.count(_SEED), campaign.cases("slice")))
    failures = [failure for outcome in outcomes for failure in outcome.failures]
    told = [f"{one.command}: {one.what}\n{one.error}" for one in failures[:3]]
    assert not failures, "\n".join(told)
    assert sum(outcome.cases for outcome in outcomes) >= campaign.cases("slice")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), FOUND)
def test_what_was_found_is_not_there_again(name: str, seed: int) -> None:
    outcome = run_round(load(name), seed)
    assert outcome.cases
    assert outcome.failures == []
