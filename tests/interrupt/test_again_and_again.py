"""Interrupted while a turn's block is entered or left, and again in whatever is done about it.

Here the turn is held all the while, as a variable of a function that goes on holds it: that it is
let go of at last does not help. Its session can be used again at once.
"""

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from killick import AsyncStore, KillickError, SessionBusy, Store, Turn
from killick.stores.memory import MemoryDisk
from killick.testing.faults import Failpoints
from tests.interrupt.ledger import use_again
from tests.interrupt.tracing import Interrupter

HERE = str(Path(__file__).parent)
SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture(autouse=True)
def finalisers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An interruption that lands while a generator is collected is printed by Python, and lost."""
    printed: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: printed.append(one.exc_type))
    yield
    gc.collect()
    ours = [kind for kind in printed if issubclass(kind, KillickError | AssertionError)]
    assert not ours, printed


def a_block(turn: Turn) -> None:
    with turn:
        pass


def a_block_that_is_interrupted_itself(turn: Turn) -> None:
    with turn:
        raise KeyboardInterrupt


def a_stack(turn: Turn) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(turn)


@pytest.mark.parametrize("times", [1, 2, 4])
@pytest.mark.parametrize("work", [a_block, a_block_that_is_interrupted_itself])
def test_a_block_that_was_left_is_over_however_often_leaving_it_is_interrupted(
    work: Callable[[Turn], None], times: int
) -> None:
    with Store(MemoryDisk().open()) as store:
        places = 0
        while _interrupted_at(store, set(range(places + 1, places + 1 + times)), work):
            places += times
        assert places > 100


def _interrupted_at(store: Store, places: set[int], work: Callable[[Turn], None]) -> bool:
    session = store.create_session()
    turn = session.turn("go")
    interrupter = Interrupter(places, HERE)
    with contextlib.suppress(KeyboardInterrupt):
        interrupter.run(partial(work, turn))
        assert not interrupter.fired, "the interruption was swallowed"
    try:
        use_again(session)
    except SessionBusy as busy:
        raise AssertionError(f"it still runs after {interrupter.fired}") from busy
    begun = [one for one in session.turns() if one.id == turn.id]
    known = (turn.status, turn.reason)
    assert all((one.status, one.reason) == known for one in begun), (
        begun,
        known,
        interrupter.fired,
    )
    return bool(interrupter.fired)


def test_more_than_one_interruption_is_made() -> None:
    """The tests above would show nothing if the second never came."""
    with Store(MemoryDisk().open()) as store:
        interrupter = Interrupter(set(range(80, 90)), HERE)
        with pytest.raises(KeyboardInterrupt):
            interrupter.run(partial(a_block, store.create_session().turn("go")))
        assert len(interrupter.fired) > 2


def test_an_ending_that_fails_after_its_caller_has_given_up_waiting_is_written_later() -> None:
    """Two interruptions while the ending is written, and then the write fails."""
    with Store(failing := Failpoints(MemoryDisk().open(), lasting=True)) as store:
        places = 0
        while _interrupted_on_a_failing_disk(store, failing, places):
            places += 2
        assert places > 20


def _interrupted_on_a_failing_disk(store: Store, disk: Failpoints, places: int) -> bool:
    session = store.create_session()
    turn = session.turn("go")
    interrupter = Interrupter({places + 1, places + 2}, HERE)

    def leave() -> None:
        with turn:
            disk.fail_at = disk.steps
            interrupter.count = 0

    with contextlib.suppress(KeyboardInterrupt, Exception):
        interrupter.run(leave)
    disk.fail_at = None
    with session.turn("next", if_busy="wait", wait_seconds=10):
        pass
    assert all(one.status != "running" for one in session.turns())
    return bool(interrupter.fired)


def test_a_stack_that_was_left_lets_go_of_its_turn() -> None:
    """A stack is Python too: what it drops when it is interrupted is over once nobody holds it."""
    with Store(MemoryDisk().open()) as store:
        session = store.create_session()
        places = 0
        while True:
            interrupter = Interrupter({places + 1, places + 2}, HERE)
            with contextlib.suppress(KeyboardInterrupt):
                interrupter.run(lambda: a_stack(session.turn("go")))
            gc.collect()
            use_again(session)
            if not interrupter.fired:
                break
            places += 9
        assert places > 100


@pytest.mark.parametrize("times", [2, 5])
def test_an_awaited_block_that_was_left_is_over(times: int) -> None:
    """KeyboardInterrupt lands in the coroutine itself, as a second Ctrl+C does under asyncio."""
    disk = MemoryDisk()
    with Store(disk.open()) as other:
        places = 0
        while _awaited_at(disk, other, set(range(places + 1, places + 1 + times))):
            places += times
        assert places > 100


def _awaited_at(disk: MemoryDisk, other: Store, places: set[int]) -> bool:
    session = other.create_session()
    store = AsyncStore(disk.open())
    held = []

    async def work() -> None:
        mine = await store.session(session.id)
        held.append(mine.turn("go"))
        interrupter.count = 0
        async with held[0]:
            pass

    interrupter = Interrupter(places, HERE, within=SOURCE)
    with contextlib.suppress(KeyboardInterrupt):
        interrupter.run(lambda: asyncio.run(work()))
    try:
        with session.turn("next", if_busy="wait", wait_seconds=5):
            pass
    except SessionBusy as busy:
        raise AssertionError(f"it still runs after {interrupter.fired}") from busy
    asyncio.run(store.close())
    return bool(interrupter.fired)


def test_asking_a_running_turn_how_it_is_left_does_not_end_it() -> None:
    with Store(MemoryDisk().open()) as store:
        session = store.create_session()
        turn = session.turn("go")
        assert hasattr(turn, "__exit__")
        with turn:
            assert hasattr(turn, "__exit__")
            session.note("still here")
            assert [one.status for one in session.turns()] == ["running"]
        assert turn.status == "completed"


def test_a_turn_that_is_entered_again_after_an_interruption_is_another_turn() -> None:
    with Store(MemoryDisk().open()) as store:
        session = store.create_session()
        places = 0
        while True:
            turn = session.turn("go")
            interrupter = Interrupter({places + 1, places + 2}, HERE)
            with contextlib.suppress(KeyboardInterrupt):
                interrupter.run(partial(a_block, turn))
            with turn:
                session.note("again")
                assert session.turns()[-1].status == "running"
            assert (turn.status, session.turns()[-1].status) == ("completed", "completed")
            if not interrupter.fired:
                break
            places += 2
