"""`python -m mutate`: plant a sample of small bugs, and see whether the tests near them notice."""

import argparse
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mutate import summary
from mutate.coverage import Coverage, Project
from mutate.operators import Mutant
from mutate.trying import Outcome, Trial, is_equivalent, read_equivalents, sample

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("journal", "views", "stores", "session")
TESTS: Final = (
    *("tests/unit", "tests/conformance", "tests/bad_input", "tests/counts", "tests/logger"),
    *("tests/search", "tests/upkeep", "tests/postgres", "tests/property"),
    "tests/views/test_reading_writes_nothing.py",
    *("tests/recorders/test_tools.py", "tests/exchange/test_import_entries.py"),
    "tests/exchange/test_copying.py",
)
"""The tests that are asked: not those whose own processes or browsers run the package."""

ENOUGH: Final = 0.9

_MEMORY: Final = Path("/dev/shm")


def main() -> int:
    with TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        return _run(_options(), Path(folder))


def _run(options: argparse.Namespace, scratch: Path) -> int:
    began = time.monotonic()

    def is_over() -> bool:
        return bool(time.monotonic() - began > options.hours * 3_600)

    project = Project(ROOT, ROOT / "src" / "killick", TESTS, ROOT / ".mutate", scratch)
    coverage = Coverage(project)
    coverage.measure(_say, is_over, options.workers)
    trial = Trial(project, coverage, options.seed)
    wanted = [
        mutant
        for mutant in sample(project, PACKAGES, options.count, options.seed)
        if options.only in mutant.id
    ]
    judged = read_equivalents(Path(__file__).parent / "equivalent.toml")
    open_ = [one for one in wanted if not is_equivalent(one, trial.source(one), judged)]
    folders = [scratch / f"copy-{number}" for number in range(options.workers)]
    try:
        trial.run(open_, folders, _Progress(trial, open_), is_over)
    except KeyboardInterrupt:
        _say("interrupted; the next run goes on from here")
    figures = summary.figures(trial, wanted, judged, options.seed)
    print(summary.table(figures))
    for mutant in open_:
        outcome = trial.known(mutant)
        if outcome is not None and outcome.verdict in ("survived", "not covered"):
            print(f"{outcome.verdict}: {mutant.id}\n    {mutant.shown(trial.source(mutant))}")
    if options.write_docs:
        summary.write(figures)
    return 0 if figures.share >= ENOUGH else 1


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Progress:
    """A line for each mutant that was tried."""

    def __init__(self, trial: Trial, wanted: list[Mutant]) -> None:
        self._all = len(wanted)
        self._done = sum(1 for mutant in wanted if trial.known(mutant) is not None)
        if self._done:
            _say(f"{self._done} of {self._all} are known from an earlier run")

    def __call__(self, mutant: Mutant, outcome: Outcome) -> None:
        self._done += 1
        _say(
            f"{self._done} of {self._all}  {outcome.verdict:11} {outcome.seconds:6.1f} s  "
            f"{outcome.tests:2} tests  {mutant.id}"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=400, help="how many mutants are drawn")
    parser.add_argument("--seed", type=int, default=1, help="by which they are drawn")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose id has this in it")
    parser.add_argument("--hours", type=float, default=2.0, help="the next run goes on after that")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write-docs", action="store_true", help="renew docs/evidence.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
