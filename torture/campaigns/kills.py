"""kill -9 at random moments, and at every boundary of a statement.

A seed divisible by four walks along statements: of a first opening with a turn of every kind, or of
a recovery; 128 seeds in a row stop at every one. The others kill at moments that chance gives.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import apsw

from killick import Store
from killick.model.limits import LEASE_SECONDS
from tests.crash import workload
from tests.crash.journals import check_file, check_sound
from tests.crash.processes import Channel, Nursery
from torture.campaign import Campaign, Places, Round, Sizes

WINDOW: Final = 0.050
MARGIN: Final = 0.250
"""For a machine that does something else: the writer's thread must be scheduled, and the disk must
sync, between handing text over and the kill."""

_REOPENING_SECONDS: Final = 1.0
_KILLS: Final = 15
"""Of one store, one after the other."""

_STRIDE: Final = 16
"""A round along statements stops at every sixteenth; sixteen rounds stop at all."""

_KINDS: Final = 8

_NEVER: Final = 10**9

_AT_ANY_TIME: Final = ("killick-lease", "killick-listener", "killick-watcher")
"""Threads whose statements come when they come."""


# -- what is killed ------------------------------------------------------------------------------


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


class Countdown:
    """Kills this process at the n-th boundary of a statement, on any connection it opens."""

    def __init__(self, path: str, boundary: int) -> None:
        self._boundary = boundary
        self._mutex = threading.Lock()
        self.passed = 0
        if "://" in path:
            self._watch_server()
        else:
            apsw.connection_hooks.append(self._watch_file)

    def _watch_file(self, connection: apsw.Connection) -> None:
        mask = apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE
        connection.trace_v2(mask, self._event)

    def _event(self, event: dict[str, object]) -> None:
        # Polling for other processes' commits happens at any time and any number of times.
        if "data_version" in str(event.get("sql", "")) or event.get("trigger"):
            return
        self._passed_one()

    def _watch_server(self) -> None:
        """Before a statement is handed over, and before and after every wait for the server."""
        from killick.stores.postgres.connection import Connection

        def counted(call: Any, after: bool) -> Any:  # noqa: FBT001
            def instead(*args: Any, **kwargs: Any) -> Any:
                ours = not threading.current_thread().name.startswith(_AT_ANY_TIME)
                if ours:
                    self._passed_one()
                result = call(*args, **kwargs)
                if ours and after:
                    self._passed_one()
                return result

            return instead

        Connection.execute = counted(Connection.execute, after=False)  # type: ignore[method-assign]
        Connection.wait = counted(Connection.wait, after=True)  # type: ignore[method-assign]

    def _passed_one(self) -> None:
        with self._mutex:
            self.passed += 1
            if self.passed == self._boundary:
                os.kill(os.getpid(), signal.SIGKILL)


def every_kind(parent: Channel, path: str, notes: str, boundary: int) -> None:
    """Makes a store, a session and a turn with every kind of step; dies at the boundary."""
    countdown = Countdown(path, boundary)
    log = workload.Log(notes)
    with Store(path, durability="normal") as store:  # the moments are the same, only quicker
        session = store.create_session(id="s")
        workload.Worker(session, log, 1).every_kind()
    parent.send(countdown.passed)


def in_the_middle(parent: Channel, path: str) -> None:
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


def again(parent: Channel, path: str, boundary: int) -> None:
    """Opens what was left of that, and dies while it recovers."""
    countdown = Countdown(path, boundary)
    with Store(path, durability="normal") as store:
        store.session("s")
    parent.send(countdown.passed)


# -- the cases -----------------------------------------------------------------------------------


class Kills:
    """Children of one round, and what is checked when each is dead."""

    def __init__(self, nursery: Nursery, folder: Path, places: Places, chance: Any) -> None:
        self._nursery = nursery
        self._folder = folder
        self._places = places
        self._chance = chance
        self._killed: list[workload.Killed] = []

    def at_a_random_moment(self, number: int) -> None:
        """The same store is killed again and again; nothing of all its processes is missing."""
        path, notes = self._places.at("random.db"), str(self._folder / f"{number}.notes")
        child = self._nursery.start(work, path, notes, self._chance.randrange(10**9))
        if self._chance.random() < 0.9:
            child.expect("working")  # the others are killed while they open the store
        time.sleep(self._chance.random() ** 2 * 0.25)
        self._killed.append(workload.Killed(notes, time.monotonic()))
        child.kill()
        with _reopened(path) as store:
            workload.check(store, self._killed, WINDOW + MARGIN)
        check_file(path)

    def in_a_stream(self, number: int) -> None:
        path, notes = self._places.at(f"{number}.db"), str(self._folder / f"stream-{number}")
        child = self._nursery.start(stream, path, notes, number)
        child.expect("working")
        time.sleep(0.1 + self._chance.random() * 0.1)
        killed = workload.Killed(notes, time.monotonic())
        child.kill()
        with _reopened(path) as store:
            workload.check(store, [killed], WINDOW + MARGIN)

    def at_a_statement(self, boundary: int) -> int:
        """How many boundaries the scenario passed; 0 if it was killed at one."""
        path, notes = self._places.at(f"{boundary}.db"), str(self._folder / f"{boundary}.notes")
        child = self._nursery.start(every_kind, path, notes, boundary)
        status = child.wait()
        assert status in (0, -signal.SIGKILL)
        passed = int(child.receive()) if status == 0 else 0
        with _reopened(path, durability="normal") as store:
            workload.check(store, [workload.Killed(notes, child.ended_at)], 0.3)
            # Whatever the moment was, the store takes up work as if nothing had been.
            log = workload.Log(f"{notes}-after")
            session = store.create_session(id="s")
            workload.Worker(session, log, 2).every_kind()
            both = [workload.Killed(notes, 0.0), workload.Killed(f"{notes}-after", 0.0)]
            workload.check(store, both, 0.0)
        check_file(path)
        return passed

    def at_a_statement_of_a_recovery(self, boundary: int) -> int:
        path = self._places.at(f"recovery-{boundary}.db")
        child = self._nursery.start(in_the_middle, path)
        child.expect("streaming")
        child.kill()
        child = self._nursery.start(again, path, boundary)
        status = child.wait()
        assert status in (0, -signal.SIGKILL)
        passed = int(child.receive()) if status == 0 else 0
        with _reopened(path, durability="normal") as store:
            session = store.session("s")
            assert [(t.status, t.reason) for t in session.turns()] == [("interrupted", "crashed")]
            check_sound(session)
            assert store.counts()["deltas"] == 0
            texts = [message.text for message in session.messages() if message.role == "assistant"]
            assert texts in (["text"], [])
        return passed


@contextlib.contextmanager
def _reopened(path: str, **settings: Any) -> Iterator[Store]:
    began, used = time.monotonic(), time.process_time()
    with Store(path, **settings) as store:
        for info in store.sessions():
            store.session(info.id)
        # In seconds of the processor: how long the machine does something else is not our doing.
        assert time.process_time() - used < _REOPENING_SECONDS
        assert time.monotonic() - began < LEASE_SECONDS / 2, "a lease was waited for"
        yield store


def run(round_: Round) -> None:
    nursery = Nursery(round_.places.died)
    try:
        kills = Kills(nursery, round_.folder, round_.places, round_.chance)
        kind = round_.seed % _KINDS
        if kind in (0, 4):
            recovery = kind == 4
            case = kills.at_a_statement_of_a_recovery if recovery else kills.at_a_statement
            whole = case(_NEVER)
            assert whole > (10 if recovery else 100), "the statements are not counted"
            stride = 2 if recovery and not round_.places.slow else _STRIDE
            first = 1 + round_.seed // _KINDS % stride
            # Flushes come when they come, so runs differ by a few statements.
            for boundary in range(first, whole + 5, stride):
                round_.check(f"killed at statement {boundary}", case, boundary)
        for number in range(_KILLS // 2 if round_.places.slow else _KILLS):
            if kind == 1:
                round_.check("killed in a stream", kills.in_a_stream, number)
            elif kind not in (0, 4):
                round_.check("killed at random", kills.at_a_random_moment, number)
    finally:
        nursery.close()


CAMPAIGN = Campaign(
    name="kills",
    tries="kill -9 at random moments of random turns, in streams, while a store is made, and at "
    "every boundary of a statement, of a recovery too",
    holds="everything acknowledged is there; of streamed text at most the window is missing; "
    "reopening takes less than a second; one ending for each turn",
    sizes=Sizes(slice=150, torture=2_000, long=100_000),
    run=run,
    rounds=_KINDS * _STRIDE,
)
