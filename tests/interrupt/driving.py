"""Running one scenario with one interruption, under asyncio and under trio."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Protocol

import anyio
import trio

from killick import AsyncStore, Store
from tests.interrupt.ledger import use_again
from tests.interrupt.points import Moment, Points
from tests.interrupt.scenarios import Run, Scenario

Way = Literal["cancel", "cancel twice", "cancel on and on", "timeout", "anyio scope", "trio scope"]
"""What interrupts."""

_ON_AND_ON = 20
_HELD_SECONDS = 0.004
_POINTS_BEFORE_WAITING = 2


class Disk(Protocol):
    """Where stores can be opened again and again."""

    def aio(self) -> AsyncStore: ...
    def sync(self) -> Store: ...


class Visit:
    """One scenario, to be cut off at its points in one way at one moment."""

    def __init__(self, disk: Disk, scenario: Scenario, held: str | None) -> None:
        self.disk = disk
        self.scenario = scenario
        self.held = held
        self.way: Way = "cancel"
        self.moment: Moment = "at once"

    async def one_point(self, at: int) -> bool:
        """Run the scenario and cut it off at one point; False when it has no such point."""
        times = {"cancel twice": 2, "cancel on and on": _ON_AND_ON}.get(self.way, 1)
        points = Points(set(range(at, at + times)), self.moment)
        await self._once(points)
        return bool(points.fired)

    async def _once(self, points: Points) -> None:
        before, files = set(threading.enumerate()), open_files()
        store, other = self.disk.aio(), self.disk.aio()
        async with store, other:
            run = Run(self.disk.aio, store, other, points)
            await run.prepare()
            await self._beside_a_holder(run)
            _no_task_is_left()
        for opened in run.opened:
            await opened.close()
        _no_thread_is_left(before)
        with self.disk.sync() as fresh:
            run.ledger.check(fresh)
            for session_id in (run.session.id, run.second.id):
                use_again(fresh.session(session_id))
            for info in fresh.sessions():
                fresh.delete_session(info.id)
        assert open_files() <= files, "files are left open"

    async def _beside_a_holder(self, run: Run) -> None:
        if self.held is None:
            await self._interrupted(run)
            return
        async with anyio.create_task_group() as others:
            others.start_soon(run.hold, self.held or None)
            await run.held.wait()
            others.start_soon(_release_later, run)
            await self._interrupted(run)
            run.waiting.set()
            run.release.set()

    async def _interrupted(self, run: Run) -> None:
        """The scenario ends untouched, or what leaves it is the interruption and nothing else."""
        ways: dict[Way, Callable[[Run], Awaitable[bool]]] = {
            "cancel": self._by_cancel,
            "cancel twice": self._by_cancel,
            "cancel on and on": self._by_cancel,
            "timeout": self._by_timeout,
            "anyio scope": self._by_anyio_scope,
            "trio scope": self._by_trio_scope,
        }
        interrupted = await ways[self.way](run)
        if run.points.fired and not interrupted:
            # What is delivered by the event loop can come too late, but only for the last point.
            assert not self.way.startswith("cancel")
            assert run.points.count - run.points.fired_at <= 1, "the interruption was swallowed"

    async def _by_cancel(self, run: Run) -> bool:
        async def body() -> None:
            await run.points.watch(self.scenario(run))

        task = asyncio.create_task(body())
        run.points.interrupt = task.cancel
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        return task.cancelled()

    async def _by_timeout(self, run: Run) -> bool:
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(None)
        run.points.interrupt = lambda: limit.reschedule(loop.time())
        try:
            async with limit:
                await run.points.watch(self.scenario(run))
        except TimeoutError:
            assert limit.expired()
            return True
        return False

    async def _by_anyio_scope(self, run: Run) -> bool:
        with anyio.CancelScope() as scope:
            run.points.interrupt = scope.cancel
            await run.points.watch(self.scenario(run))
        return scope.cancelled_caught

    async def _by_trio_scope(self, run: Run) -> bool:
        with trio.CancelScope() as scope:
            run.points.interrupt = scope.cancel
            await run.points.watch(self.scenario(run))
        return scope.cancelled_caught


async def _release_later(run: Run) -> None:
    """Let the holder go soon after somebody began to wait for it, and not before."""
    await run.waiting.wait()
    while run.points.count < _POINTS_BEFORE_WAITING and not run.release.is_set():  # noqa: ASYNC110  (a count has no event)
        await anyio.sleep(0.001)
    with anyio.move_on_after(_HELD_SECONDS):
        await run.release.wait()
    run.release.set()


def open_files() -> set[str]:
    """The files of stores that this process has open."""
    found = set()
    with contextlib.suppress(FileNotFoundError):  # no /proc: the test sees the rest
        for one in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the one that lists them is gone already
                found.add(str(one.readlink()))
    return {name for name in found if ".db" in name}


def _no_task_is_left() -> None:
    if not trio.lowlevel.in_trio_run():  # trio's own nurseries see to it
        assert asyncio.all_tasks() == {asyncio.current_task()}


def _no_thread_is_left(before: set[threading.Thread]) -> None:
    left = [x for x in threading.enumerate() if x not in before and x.name.startswith("killick")]
    for thread in left:
        thread.join(2)  # one that was told to end may still be on its way
    assert not [thread.name for thread in left if thread.is_alive()]
