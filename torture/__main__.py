"""`python -m torture`: every campaign, or one, or one case of one again."""

import argparse
import itertools
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from torture import report
from torture.campaign import Campaign, Size
from torture.campaigns import NAMES, load
from torture.running import Schedule, Total, run_all, run_here, run_round

_SLICE_SEED = 1
"""CI tries the same every time: what it finds was not there before."""


def main() -> int:
    options = _options()
    if options.docs_from is not None:
        report.write_document(report.read_json(options.docs_from.read_bytes()))
        return 0
    if options.seed is not None:
        return _replay(options)
    if options.slice:
        return _slice(options)
    return _campaign(options)


def _replay(options: argparse.Namespace) -> int:
    """One round again, or one case of it; exit status 1 when something did not hold."""
    (name,) = options.campaign
    outcome = run_round(
        load(name),
        options.seed,
        only=options.case,
        until_failure=options.until_failure,
        size="long" if options.long else "torture",
    )
    print(f"{name}, seed {outcome.seed}: {outcome.cases} cases, {len(outcome.failures)} failures")
    for failure in outcome.failures:
        print(f"\ncase {failure.case}: {failure.what}\n{failure.error}")
    return 1 if outcome.failures else 0


def _slice(options: argparse.Namespace) -> int:
    """The rounds that CI runs, here and now."""
    failed = False
    for campaign in _possible(options.campaign or NAMES):
        seeds = itertools.count(_SLICE_SEED)
        for outcome in run_here(
            campaign, seeds, campaign.cases("slice"), until_failure=options.until_failure
        ):
            for failure in outcome.failures:
                failed = True
                print(f"{failure.command}: {failure.what}\n{failure.error}")
    return 1 if failed else 0


def _campaign(options: argparse.Namespace) -> int:
    size: Size = "long" if options.long else "torture"
    first = options.first_seed or random.SystemRandom().randrange(1, 1_000_000) * 1_000
    campaigns = _possible(options.campaign or NAMES)
    began = time.monotonic()
    totals = run_all(campaigns, size, first, options.workers, _Progress(), share=options.share)
    seconds = time.monotonic() - began
    if sys.stderr.isatty():
        print(f"\r{'':100}\r", end="", file=sys.stderr)
    run = report.made(totals, size, options.workers, seconds, options.share)
    print(report.table(run))
    for failure in (one for total in totals for one in total.failures):
        print(f"\n{failure.command}\n{failure.what}\n{failure.error}")
    if options.json:
        options.json.write_bytes(report.as_json(run))
    if options.write_docs:
        before = report.read_json(report.DATA.read_bytes()) if options.campaign else None
        report.write_document(run if before is None else report.renewed(run, before))
    return 1 if any(total.failures for total in totals) else 0


def _possible(names: Sequence[str]) -> list[Campaign]:
    """Load the campaigns that can run here; say which cannot, and why."""
    campaigns = []
    for name in names:
        campaign = load(name)
        missing = campaign.lacks()
        if missing is None:
            campaigns.append(campaign)
        else:
            print(f"{name} is not run: {missing}", file=sys.stderr)
    return campaigns


class _Progress:
    """One line that changes on a terminal; elsewhere a line every half minute."""

    def __init__(self) -> None:
        self._began = self._told = time.monotonic()
        self._live = sys.stderr.isatty()

    def __call__(self, schedule: Schedule) -> None:
        now = time.monotonic()
        if now - self._told < (0.2 if self._live else 30):
            return
        self._told = now
        wanted = [one for one in schedule.totals if one.wanted]
        running = [one for one in wanted if one.rounds and one.cases < one.wanted]
        done = sum(1 for one in wanted if one.cases >= one.wanted)
        failures = sum(len(one.failures) for one in wanted)
        words = ", ".join(_how_far(one) for one in running)
        line = (
            f"{now - self._began:5.0f} s  {done} of {len(wanted)} done, "
            f"{failures} failures  {words}"
        )
        print(
            f"\r{line:100}" if self._live else line,
            end="" if self._live else "\n",
            file=sys.stderr,
            flush=True,
        )


def _how_far(total: Total) -> str:
    return f"{total.name} {total.cases:,} of {total.wanted:,}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument(
        "--campaign",
        action="append",
        choices=NAMES,
        metavar="NAME",
        help=f"only this one; there are {', '.join(NAMES)}",
    )
    parser.add_argument("--seed", type=int, help="run this round again, exactly")
    parser.add_argument("--case", type=int, help="only this case of the round")
    parser.add_argument("--slice", action="store_true", help="what CI runs, in this process")
    parser.add_argument("--long", action="store_true", help="for hours instead of minutes")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first failure")
    parser.add_argument("--first-seed", type=int, help="begin here, not at a random seed")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases, to be quicker")
    parser.add_argument("--workers", type=int, default=(os.cpu_count() or 2) + 1)
    parser.add_argument(
        "--write-docs", action="store_true", help="renew docs/evidence.md; with --campaign its row"
    )
    parser.add_argument("--docs-from", type=Path, metavar="FILE", help="of a run that was kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the run there")
    options = parser.parse_args()
    if options.seed is not None and len(options.campaign or ()) != 1:
        parser.error("--seed needs the --campaign that it is of")
    return options


if __name__ == "__main__":
    sys.exit(main())
