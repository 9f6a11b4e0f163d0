"""Ten minutes of many streams and twice as many followers; only `make torture` runs it."""

import json
import subprocess
import sys

import pytest

from tests.server.client import ROOT


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_followers_keep_up_and_memory_stays_flat() -> None:
    command = [sys.executable, "-m", "benchmarks.serving", "--seconds", "600"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    print(done.stdout)
    assert figures["deltas_read"] > 0.99 * figures["expected"]
    assert figures["behind_ms"]["p99"] <= 250
    # What waits for the readers that never read is bounded, and is all that may grow.
    assert figures["server_mb"][-1] - figures["server_mb"][1] < 10 + 2 * figures["stuck"]
