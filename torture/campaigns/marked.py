"""The tests with the mark `campaign`: too long for `make test-all`, and run by nothing else."""

import subprocess
import sys
from pathlib import Path

from torture.campaign import Campaign, Round, Sizes

ROOT = Path(__file__).parents[2]
_SECONDS = 3_600


def collect() -> list[str]:
    """Their names, in order."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "campaign", "--collect-only", "-q"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return [line for line in done.stdout.splitlines() if "::" in line]


def case(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "campaign", "-q", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-4_000:]


def run(round_: Round) -> None:
    names = collect()
    if names:
        name = names[round_.seed % len(names)]
        round_.check(name, case, name)


CAMPAIGN = Campaign(
    name="marked",
    tries="every test with the mark `campaign`: streams by the thousand, and whatever is too long "
    "for `make test-all`",
    holds="the test passes",
    sizes=Sizes(slice=0, torture=0, long=20),
    run=run,
)
