"""kill -9 at random moments: nothing acknowledged is missing, ever."""

import random
import statistics
import time
from pathlib import Path

import pytest

from holdfast import Store
from tests.crash import workload
from tests.crash.journals import check_file
from tests.crash.processes import Channel, Nursery

pytestmark = [pytest.mark.crash, pytest.mark.timeout(0)]

WINDOW = 0.050
MARGIN = 0.250
"""For a machine that does something else: the writer's thread must be scheduled, and the disk must
sync, between handing text over and the kill."""

KILLS_PER_STORE = 15


def work(parent: Channel, path: str, notes: str, seed: int) -> None:
    """Random turns on two sessions, until killed."""
    store = Store(path)
    log = workload.Log(notes)
    workers = [
        workload.Worker(store.create_session(id=name), log, seed + number)
        for number, name in enumerate(("first", "second"))
    ]
    parent.send("working")
    while True:
        for worker in workers:
            worker.one_turn()


def stream(parent: Channel, path: str, notes: str, seed: int) -> None:
    """One stream that says something every few milliseconds, until killed."""
    store = Store(path)
    session = store.create_session(id="first")
    parent.send("working")
    workload.Worker(session, workload.Log(notes), seed).stream_for_ever()


def _kills(nursery: Nursery, folder: Path, seed: int, kills: int) -> None:
    moments = random.Random(seed)
    killed: list[workload.Killed] = []
    path = ""
    for number in range(kills):
        if number % KILLS_PER_STORE == 0:
            path, killed = str(folder / f"{number}.db"), []
        notes = str(folder / f"{number}.notes")
        child = nursery.start(work, path, notes, seed * 100_000 + number)
        if moments.random() < 0.9:
            child.expect("working")  # the others are killed while they open the store
        time.sleep(moments.random() ** 2 * 0.25)
        killed.append(workload.Killed(notes, time.monotonic()))
        child.kill()
        with Store(path) as store:
            workload.check(store, killed, WINDOW + MARGIN)
        check_file(path)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_acknowledged_is_missing(nursery: Nursery, tmp_path: Path, seed: int) -> None:
    """After 50 kills at random moments every acknowledged turn, message, start, result and ending
    is there; streamed text is a prefix that misses at most the window; seqs are dense; every turn
    has one ending; no delta is left."""
    _kills(nursery, tmp_path, seed, 50)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(1_000, 1_020))
def test_nothing_acknowledged_is_missing_after_thousands(
    nursery: Nursery, tmp_path: Path, seed: int
) -> None:
    """The same, 5,000 times."""
    _kills(nursery, tmp_path, seed, 250)


def test_streamed_text_misses_at_most_the_window(nursery: Nursery, tmp_path: Path) -> None:
    """After kill -9 in mid-stream what is missing was handed over within the window: at the median
    of the kills within the stated 50 ms, always within 50 ms and the margin."""
    moments = random.Random(7)
    ages: list[float] = []
    for number in range(25):
        path, notes = str(tmp_path / f"{number}.db"), str(tmp_path / f"notes-{number}")
        child = nursery.start(stream, path, notes, number)
        child.expect("working")
        time.sleep(0.35 + moments.random() * 0.1)
        killed = workload.Killed(notes, time.monotonic())
        child.kill()
        with Store(path) as store:
            ages += workload.check(store, [killed], WINDOW + MARGIN)
    assert statistics.median(ages) <= WINDOW
