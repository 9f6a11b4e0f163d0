"""The runner counts what was tried, reports what failed and can do it again."""

import itertools
import re
from pathlib import Path

import msgspec
import pytest

from tests.museum.museum import PIECES
from torture import findings, report
from torture.campaign import Campaign, Round, Sizes
from torture.campaigns import NAMES, load
from torture.running import Outcome, Schedule, Total, run_here, run_round

ROOT = Path(__file__).parents[2]
ON_A_SERVER = {name for name in NAMES if name.endswith("_on_postgres")} | {"terminated"}


def flaky(round_: Round) -> None:
    """Fails in one case of ten, which chance decides."""
    for number in range(10):
        round_.check(f"number {number}", _not_seven, round_.chance.randrange(10))


def _not_seven(number: int) -> None:
    assert number != 7, "it was seven"


FLAKY = Campaign("flaky", "numbers", "none is seven", Sizes(10, 100, 1_000), flaky)


def test_a_seed_does_the_same_again_and_a_case_of_it_alone_too() -> None:
    outcomes = [run_round(FLAKY, seed) for seed in range(50)]
    failed = next(one for one in outcomes if one.failures)
    again = run_round(FLAKY, failed.seed)
    assert again.failures == failed.failures
    (first, *_) = failed.failures
    alone = run_round(FLAKY, failed.seed, only=first.case)
    assert [(one.case, one.what) for one in alone.failures] == [(first.case, first.what)]
    assert f"--seed {failed.seed} --case {first.case}" in first.command


def test_rounds_go_on_until_there_are_enough_cases_or_until_the_first_failure() -> None:
    assert sum(one.cases for one in run_here(FLAKY, itertools.count(), 100)) == 100
    *whole, last = run_here(FLAKY, itertools.count(), 100_000, until_failure=True)
    assert not any(one.failures for one in whole)
    assert len(last.failures) == 1


def test_a_round_that_breaks_off_is_a_failure() -> None:
    def breaks(round_: Round) -> None:
        raise OSError("no")

    outcome = run_round(FLAKY._replace(run=breaks), 1)
    assert [one.what for one in outcome.failures] == ["the round broke off"]


def test_every_combination_is_visited_in_a_whole_run() -> None:
    """However many cases each has: points are counted, not sampled."""
    schedule = Schedule([FLAKY._replace(rounds=7)], "slice", first_seed=5)
    seeds = []
    while (task := schedule.next()) is not None:
        number, _, seed = task
        seeds.append(seed)
        schedule.took(number, run_round(FLAKY, seed))
    assert seeds[:7] == list(range(5, 12))


@pytest.mark.parametrize("name", NAMES)
def test_every_campaign_says_what_it_tries_and_what_must_hold(name: str) -> None:
    campaign = load(name)
    assert campaign.tries
    assert campaign.holds
    small, middle, large = campaign.sizes
    assert small <= middle <= large or name == "marked"


def test_every_finding_is_kept() -> None:
    """As a test that exists, a seed, or a piece of the museum."""
    pieces = {path.stem for path in PIECES}
    for one in findings.load():
        assert one.campaign in NAMES
        assert one.tests or one.seeds
        assert one.museum is None or one.museum in pieces
        for test in one.tests:
            file, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_the_evidence_is_what_the_last_run_has_written() -> None:
    run = report.read_json(report.DATA.read_bytes())
    assert report.PAGE.read_text(encoding="utf-8") == report.document(run, findings.load())
    tried = {total.name for total in run.totals}
    whole = {name for name in NAMES if load(name).sizes[1]}
    assert tried <= whole
    assert whole - tried <= ON_A_SERVER, "only where there is no server may these be missing"


def test_a_campaign_that_was_run_alone_renews_its_row_and_says_so() -> None:
    first, second, third = (Total(name, "tries", "holds", 5, cases=5) for name in "abc")
    before = report.made([first, second], "torture", 2, 60.0)
    again = report.made([msgspec.structs.replace(second, cases=9), third], "torture", 1, 9.0)
    run = report.renewed(again, before)
    assert [(one.name, one.cases) for one in run.totals] == [("a", 5), ("b", 9), ("c", 5)]
    assert (run.seconds, run.workers) == (before.seconds, before.workers)
    told = f"{again.date}, commit `{again.commit}`"
    page = report.document(run, [])
    assert f"- `b`: {told}" in page
    assert f"- `c`: {told}" in page
    assert "- `a`:" not in page
    hours = report.renewed(report.made([second], "long", 1, 3_660.0), before)
    assert f"- `b`: {told}, with `--long` (61 minutes)\n" in report.document(hours, [])


def test_a_failure_is_in_the_document() -> None:
    failures = next(one.failures for one in map(_round, range(50)) if one.failures)
    total = Total("flaky", "numbers", "none is seven", 10, cases=10, failures=failures)
    text = report.document(report.made([total], "torture", 2, 60.0), [])
    assert failures[0].command in text


def _round(seed: int) -> Outcome:
    return run_round(FLAKY, seed)


def test_each_promise_names_campaigns_and_tests_that_exist() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = re.findall(r"`campaign: ([a-z_]+)`", text)
    assert set(named) <= set(NAMES)
    assert {name for name in NAMES if name != "marked"} <= set(named), "one shows no promise"
    for path in re.findall(r"`(tests/[^`]+)`", text):
        assert (ROOT / path).exists(), path


def test_the_published_data_names_no_path_of_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(round_: Round) -> None:
        raise OSError(f"no room in {tmp_path}")

    (total,) = Schedule([FLAKY], "slice", first_seed=1).totals
    total.failures += run_round(FLAKY._replace(run=breaks), 1).failures
    monkeypatch.setattr(report, "DATA", tmp_path / "evidence.json")
    monkeypatch.setattr(report, "PAGE", tmp_path / "evidence.md")
    report.write_document(report.made([total], "torture", 1, 1.0))
    for written in ("evidence.json", "evidence.md"):
        text = (tmp_path / written).read_text(encoding="utf-8")
        assert "the round broke off" in text
        assert str(tmp_path) not in text
        assert str(ROOT) not in text
