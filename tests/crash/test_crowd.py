"""kill -9 among many streams that flush together: every one of them keeps its own text."""

import random
import signal
import time
from pathlib import Path

import pytest

from killick import Store
from killick.stores import writer
from killick.stores.sqlite import packs
from tests.crash import workload
from tests.crash.journals import check_file
from tests.crash.processes import Channel, Nursery
from torture.campaign import Places
from torture.campaigns.kills import MARGIN, WINDOW, Countdown

pytestmark = [pytest.mark.crash, pytest.mark.timeout(0)]

STREAMS = packs.PACKED_FROM + 8
KILLS = 6
BOUNDARIES = range(900, 1_900, 90)


def crowd(parent: Channel, path: str, notes: str, seed: int, boundary: int | None) -> None:
    """Streams in as many sessions, of which now and then one ends and another begins.

    They are folded many times a second, a few at each step. Dies at a boundary of a statement.
    """
    writer._FOLD_SECONDS = writer._FOLD_STEP_SECONDS = 0.02  # type: ignore[misc]
    packs._LINES_AT_ONCE, packs._STEPS = 8, 100  # type: ignore[misc]
    countdown = Countdown(path, boundary or 10**9)
    store, log, chance = Store(path), workload.Log(notes), random.Random(seed)
    workers = [
        workload.Worker(store.create_session(id=f"s{seed}-{number}"), log, seed + number)
        for number in range(STREAMS)
    ]
    speaking = [worker.begin_to_stream() for worker in workers]
    parent.send("working")
    for round_ in range(10**9):
        for stream in speaking:
            if chance.random() < 0.7:
                stream.say()
        if round_ % 5 == 0:
            which = chance.randrange(STREAMS)
            speaking[which].end()
            speaking[which] = workers[which].begin_to_stream()
        time.sleep(0.004)
    parent.send(countdown.passed)


def test_every_stream_has_its_text(nursery: Nursery, places: Places, tmp_path: Path) -> None:
    """Of the same store that is killed again and again, at moments that chance gives."""
    moments = random.Random(11)
    path, killed = places.at("crowd.db"), list[workload.Killed]()
    for number in range(KILLS):
        notes = str(tmp_path / f"{number}.notes")
        child = nursery.start(crowd, path, notes, 1_000 * number, None)
        child.expect("working")
        time.sleep(0.2 + moments.random() * 0.4)
        killed.append(workload.Killed(notes, time.monotonic()))
        child.kill()
        with Store(path) as store:
            workload.check(store, killed, WINDOW + MARGIN)
    check_file(path)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_at_the_boundary_of_a_statement(nursery: Nursery, tmp_path: Path, boundary: int) -> None:
    """In the midst of a flush, of a fold or of an end."""
    path, notes = str(tmp_path / "crowd.db"), str(tmp_path / "notes")
    child = nursery.start(crowd, path, notes, 0, boundary)
    assert child.wait() == -signal.SIGKILL
    killed = workload.Killed(notes, time.monotonic())
    with Store(path) as store:
        workload.check(store, [killed], WINDOW + MARGIN)
    check_file(path)
