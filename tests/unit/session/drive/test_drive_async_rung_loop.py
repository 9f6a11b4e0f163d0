"""How an event loop learns of outcomes: by a descriptor that goes with the loop, or by a call."""

import asyncio
import contextlib
import contextvars
import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from killick import AsyncStore
from killick.session.drive import drive_async
from killick.session.drive.drive_async import in_thread
from killick.stores.memory import MemoryDisk
from tests.interrupt.tracing import Interrupter
from tests.unit.session.drive.test_wakeup_fd import eventfds, no_more_descriptors
from tests.waiting import until


async def _use_a_store() -> None:
    async with AsyncStore(MemoryDisk().open()) as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            await asyncio.gather(*(session.note("n", {"number": number}) for number in range(20)))
        assert [one.status for one in await session.turns()] == ["completed"]
        assert turn.id


class _NoReaders(asyncio.SelectorEventLoop):
    """As a loop that cannot wait for descriptors."""

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        if fd != self._ssock.fileno():  # type: ignore[attr-defined]
            raise NotImplementedError
        super().add_reader(fd, callback, *args)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before, loops = _collected()
    yield
    until(lambda: _collected() == (before, loops))


def _collected() -> tuple[int, int]:
    """What is left; a thread that has answered may not have ended yet."""
    gc.collect()
    return eventfds(), len(drive_async._loops)


@pytest.mark.linux
def test_a_loop_has_one_descriptor_as_long_as_it_is_open() -> None:
    before = eventfds()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_use_a_store())
    loop.run_until_complete(_use_a_store())
    assert eventfds() == before + 1
    loop.close()
    until(lambda: _collected()[0] == before)  # though the loop is still there
    assert loop.is_closed()


@pytest.mark.linux
def test_a_loop_that_nobody_closed_takes_its_descriptor_along() -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(in_thread(lambda: None))
    gone = weakref.ref(loop)
    del loop
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        until(lambda: _collected() and gone() is None)


def test_many_loops_in_threads_are_each_woken() -> None:
    done: list[None] = []
    threads = [
        threading.Thread(target=lambda: done.append(asyncio.run(_use_a_store()))) for _ in range(24)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 24


@pytest.mark.parametrize("kind", [asyncio.SelectorEventLoop, _NoReaders])
def test_a_loop_that_is_closed_during_a_write_is_let_go(
    kind: type[asyncio.SelectorEventLoop],
) -> None:
    loop, go_on = kind(), threading.Event()
    begun = threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait()

    before = set(threading.enumerate())
    task = loop.create_task(in_thread(work))
    loop.call_soon(loop.stop)
    loop.run_forever()
    begun.wait()
    loop.close()
    go_on.set()
    for thread in set(threading.enumerate()) - before:
        thread.join()  # an error in it would be a warning, and so fail
    with contextlib.suppress(RuntimeError):  # the loop is closed
        task.cancel()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    gone = weakref.ref(loop)
    del task, loop
    until(lambda: _collected() and gone() is None)


def test_a_loop_without_readers_is_called() -> None:
    before = eventfds()
    with contextlib.closing(_NoReaders()) as loop:
        loop.run_until_complete(_use_a_store())
        assert eventfds() == before


def test_where_there_are_no_eventfds_a_loop_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    before = eventfds()
    with contextlib.closing(asyncio.SelectorEventLoop()) as loop:
        loop.run_until_complete(_use_a_store())
        assert eventfds() == before


@pytest.mark.linux
def test_without_a_descriptor_left_a_loop_is_called() -> None:
    with contextlib.closing(asyncio.SelectorEventLoop()) as loop:
        gc.collect()
        with no_more_descriptors():
            assert loop.run_until_complete(in_thread(lambda: 1)) == 1
        loop.run_until_complete(_use_a_store())


@pytest.mark.linux
def test_a_ring_for_nobody_is_passed_over() -> None:
    async def scenario() -> None:
        await in_thread(lambda: None)
        callers = drive_async._callers_of(asyncio.get_running_loop())
        assert callers._bell is not None
        for _ in range(3):
            callers.wake([])
            await asyncio.sleep(0)
            callers._look()  # as if a forked child had heard it first
        await _use_a_store()

    asyncio.run(scenario())


def test_the_first_callers_context_is_not_kept() -> None:
    class Held:
        pass

    variable: contextvars.ContextVar[Held] = contextvars.ContextVar("variable")

    async def scenario() -> None:
        async def first() -> "weakref.ref[Held]":
            held = Held()
            variable.set(held)
            await in_thread(lambda: None)
            return weakref.ref(held)

        held = await asyncio.create_task(first())
        await asyncio.sleep(0)  # the loop lets go of the step before
        gc.collect()
        assert held() is None

    asyncio.run(scenario())


@pytest.mark.linux
def test_an_interruption_of_the_loop_loses_no_answer() -> None:
    """A signal handler may raise wherever the loop looks for answers; it may run on afterwards."""
    tried, at = 0, 0
    with contextlib.closing(asyncio.SelectorEventLoop()) as loop:
        while tried == at:
            at += 1
            tried += _interrupted_at(loop, at)
    assert at > 5


def _interrupted_at(loop: asyncio.AbstractEventLoop, at: int) -> bool:
    """Interrupt the loop at one place; False where it has no such place."""
    interrupter = Interrupter({at}, __file__, within=drive_async.__file__)
    finished = threading.Event()
    tasks: list[asyncio.Task[int]] = []

    async def begin() -> None:
        tasks.extend(loop.create_task(in_thread(lambda: 1)) for _ in range(3))
        await asyncio.sleep(0)
        for thread in threading.enumerate():
            if thread.name == "killick-opening":
                thread.join()  # all three are answered together, by one look
        callers = drive_async._callers_of(loop)
        assert callers._bell is not None
        with contextlib.suppress(KeyboardInterrupt):
            interrupter.run(callers._look)
        finished.set()

    loop.run_until_complete(begin())
    assert finished.is_set()
    assert loop.run_until_complete(asyncio.wait_for(asyncio.gather(*tasks), 10)) == [1, 1, 1]
    return bool(interrupter.fired)


def test_a_forked_child_that_closes_its_copy_leaves_the_parent_woken() -> None:
    with contextlib.closing(asyncio.SelectorEventLoop()) as loop:
        loop.run_until_complete(_use_a_store())
        child = os.fork()
        if not child:
            os.closerange(3, 1024)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        loop.run_until_complete(_use_a_store())
