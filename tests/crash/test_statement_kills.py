"""kill -9 before and after every single SQL statement of a small scenario."""

import os
import signal
import time
from pathlib import Path

import apsw
import pytest

from holdfast import Store
from tests.crash import workload
from tests.crash.journals import check_file, check_sound
from tests.crash.processes import Channel, Nursery

pytestmark = [pytest.mark.crash, pytest.mark.timeout(0)]

NEVER = 10**9


class Countdown:
    """Kills this process at the n-th boundary of a statement, on any connection."""

    def __init__(self, boundary: int) -> None:
        self._boundary = boundary
        self.passed = 0

    def watch(self, connection: apsw.Connection) -> None:
        mask = apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE
        connection.trace_v2(mask, self._event)

    def _event(self, event: dict[str, object]) -> None:
        # Polling for other processes' commits happens at any time and any number of times.
        if "data_version" in str(event.get("sql", "")) or event.get("trigger"):
            return
        self.passed += 1
        if self.passed == self._boundary:
            os.kill(os.getpid(), signal.SIGKILL)


def scenario(parent: Channel, path: str, notes: str, boundary: int) -> None:
    """Makes a store, a session and a turn with every kind of step; dies at the boundary."""
    countdown = Countdown(boundary)
    apsw.connection_hooks.append(countdown.watch)
    log = workload.Log(notes)
    with Store(path, durability="normal") as store:  # the moments are the same, only quicker
        session = store.create_session(id="s")
        workload.Worker(session, log, 1).every_kind()
    parent.send(countdown.passed)


def again(parent: Channel, path: str, notes: str, boundary: int) -> None:
    """Opens what `scenario` left when it was killed, and dies while it recovers."""
    countdown = Countdown(boundary)
    apsw.connection_hooks.append(countdown.watch)
    with Store(path, durability="normal") as store:
        store.session("s")
    parent.send(countdown.passed)


def _run(nursery: Nursery, folder: Path, boundary: int) -> int | None:
    """How many boundaries the scenario has, or None if it was killed at one."""
    path, notes = str(folder / f"{boundary}.db"), str(folder / f"{boundary}.notes")
    child = nursery.start(scenario, path, notes, boundary)
    status = child.wait()
    passed = int(child.receive()) if status == 0 else None
    assert status in (0, -signal.SIGKILL)
    with Store(path, durability="normal") as store:
        workload.check(store, [workload.Killed(notes, time.monotonic())], 0.3)
        # Whatever the moment was, the store takes up work as if nothing had been.
        log = workload.Log(f"{notes}-after")
        session = store.create_session(id="s")
        workload.Worker(session, log, 2).every_kind()
        workload.check(
            store,
            [workload.Killed(notes, 0.0), workload.Killed(f"{notes}-after", 0.0)],
            0.0,
        )
    check_file(path)
    return passed


@pytest.mark.parametrize("half", ["odd", "even"])
def test_killed_at_every_boundary_of_a_statement(
    nursery: Nursery, tmp_path: Path, half: str
) -> None:
    """Whichever statement was the last, also of the first opening: the store opens, everything
    acknowledged is there, the turn has one ending, and the next turn works."""
    whole = _run(nursery, tmp_path, NEVER)
    assert whole is not None
    assert whole > 100  # the tracing works
    finished = 0
    # Flushes come when they come, so runs differ by a few statements.
    for boundary in range(1 if half == "odd" else 2, whole + 20, 2):
        finished += _run(nursery, tmp_path, boundary) is not None
    assert finished <= 20


def test_killed_at_every_boundary_of_a_recovery(nursery: Nursery, tmp_path: Path) -> None:
    """A recovery that is killed at any statement is done by the next one: one ending in the end."""
    notes = str(tmp_path / "notes")
    boundary, passed = 0, None
    while passed is None:
        boundary += 1
        path = str(tmp_path / f"{boundary}.db")
        child = nursery.start(stream, path, notes)
        child.expect("streaming")
        child.kill()
        child = nursery.start(again, path, notes, boundary)
        assert child.wait() in (0, -signal.SIGKILL)
        if child.wait() == 0:
            passed = child.receive()
        with Store(path, durability="normal") as store:
            session = store.session("s")
            assert [(t.status, t.reason) for t in session.turns()] == [("interrupted", "crashed")]
            check_sound(session)
            assert store.counts()["deltas"] == 0
    assert boundary > 20


def stream(parent: Channel, path: str, notes: str) -> None:
    """A turn with a stream and a tool in the middle of everything."""
    with Store(path, durability="normal") as store:
        session = store.create_session(id="s")
        with session.turn("go") as turn, turn.stream() as reply:
            reply.text("text")
            reply.tool_call("call", name="shell", arguments="{}")
            with turn.tool("call") as call:
                call.output("output")
                parent.send("streaming")
                parent.hang()
