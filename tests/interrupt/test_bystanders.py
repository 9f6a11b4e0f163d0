"""What happens to one caller never takes the writer, the watcher or another caller with it."""

import asyncio
import contextlib
import gc
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import anyio
import pytest
import trio

from killick import (
    AsyncStore,
    HandleClosed,
    Message,
    Session,
    Store,
    StoreDegraded,
    Tool,
    ToolCall,
    ToolResult,
    TurnStopped,
)
from killick.stores.engine.state import Op
from killick.stores.memory import MemoryDisk
from killick.testing.faults import Failpoints
from tests.interrupt.driving import Disk


def test_a_loop_that_was_closed_around_a_follower(disk: Disk) -> None:
    """Writes go on on another event loop."""
    store = disk.aio()
    first = asyncio.new_event_loop()
    session = first.run_until_complete(store.create_session())
    following = session.follow(after=session.head)

    async def begin_to_wait() -> Any:
        waiting = asyncio.ensure_future(anext(following))
        while "killick-watcher" not in {thread.name for thread in threading.enumerate()}:  # noqa: ASYNC110  (a thread has no event)
            await asyncio.sleep(0)
        return waiting

    waiting = first.run_until_complete(begin_to_wait())
    first.close()

    async def go_on() -> None:
        again = await store.session(session.id)
        for name in ("one", "two", "three"):
            await asyncio.wait_for(again.note(name), 5)
        await store.close()

    asyncio.run(go_on())
    waiting._log_destroy_pending = False
    del waiting
    gc.collect()


def test_a_loop_that_was_closed_around_a_turn(disk: Disk) -> None:
    """A stop for a turn whose event loop is gone is recorded, and harms nobody."""
    store = disk.aio()
    first = asyncio.new_event_loop()
    session = first.run_until_complete(store.create_session())
    turn = first.run_until_complete(session.turn("prompt").__aenter__())
    first.close()

    async def stop() -> None:
        assert await session.stop(turn.id) == turn.id
        await session.note("goes on")
        await store.close()

    asyncio.run(stop())


def test_turns_come_and_go_while_the_watcher_looks_for_stops() -> None:
    disk = MemoryDisk()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Store(disk.open()) as store:
            over = threading.Event()

            def run_turns() -> None:
                session = store.create_session()
                while not over.is_set():
                    with session.turn():
                        pass

            threads = [threading.Thread(target=run_turns) for _ in range(6)]
            for thread in threads:
                thread.start()
            try:
                deadline = time.monotonic() + 0.8
                while time.monotonic() < deadline:
                    store._core.runtime()._look_for_stops()
            finally:
                over.set()
                for thread in threads:
                    thread.join()
    finally:
        sys.setswitchinterval(before)


def test_a_generator_that_is_collected_on_the_writers_own_thread(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends as it does on every other thread, and nothing is printed."""
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with disk.sync() as store:
        session = store.create_session()
        kept = [_half_an_answer(session)]
        next(kept[0])
        store._core.runtime().writer.submit(Op(lambda engine: kept.clear())).wait()
        with session.turn("next"):
            pass
        assert unraisable == []
        assert [(t.status, t.reason) for t in session.turns()] == [
            ("interrupted", "closed"),
            ("completed", None),
        ]
        assert [m.text for m in session.messages() if m.state == "partial"] == ["half"]
        assert store.counts()["deltas"] == 0


def _half_an_answer(session: Session) -> Iterator[None]:
    with session.turn("prompt") as turn, turn.stream() as reply:
        reply.text("half")
        yield


def test_the_first_calls_come_at_once(disk: Disk) -> None:
    """Four tasks use a store that nobody has opened: it is opened once."""

    def writers() -> int:
        return sum(thread.name == "killick-writer" for thread in threading.enumerate())

    async def main() -> None:
        before = writers()
        store = disk.aio()
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(store.create_session)
        assert writers() - before == 1
        await store.close()
        assert writers() == before

    asyncio.run(main())


def test_a_failed_write_is_the_cause_of_the_cancellation_in_trio() -> None:
    """Whoever is cancelled while a write fails can see that it failed."""
    seen: list[BaseException | None] = []

    async def main() -> None:
        database = Failpoints(MemoryDisk().open())
        async with AsyncStore(database) as store:
            session = await store.create_session()
            database.fail_at = database.steps + 1
            with trio.CancelScope() as scope:
                scope.cancel()
                try:
                    await session.note("lost")
                except trio.Cancelled as cancelled:
                    seen.append(cancelled.__cause__)
                    raise

    trio.run(main)
    assert isinstance(seen[0], StoreDegraded)


def test_a_stop_that_comes_before_the_turn_knows_that_it_runs() -> None:
    """Another opening asks for the stop after the start was committed, while the event loop of the
    holder is busy with something else: it is noticed all the same."""
    disk = MemoryDisk()

    async def main() -> None:
        async with AsyncStore(disk.open()) as store:
            busy = await store.create_session()
            session = await store.create_session()

            async def hold() -> None:
                async with session.turn("prompt"):
                    await asyncio.Event().wait()

            async with busy.turn("keeps the watcher awake"):
                await asyncio.sleep(0.12)
                holder = asyncio.create_task(hold())
                await asyncio.sleep(0)
                _stop_from_elsewhere(disk, session.id)
                time.sleep(0.2)  # noqa: ASYNC251  (the loop is busy: that is what is tested)
                with pytest.raises(TurnStopped, match="enough"):
                    await holder

    asyncio.run(main())


def _stop_from_elsewhere(disk: MemoryDisk, session_id: str) -> None:
    with Store(disk.open()) as other:
        session = other.session(session_id)
        deadline = time.monotonic() + 5
        while not session.stop(reason="enough"):
            assert time.monotonic() < deadline


def test_a_delta_that_comes_while_another_thread_leaves_is_kept_or_refused(disk: Disk) -> None:
    """A thread that reads a tool's pipe is never told that text was taken which is then dropped."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with disk.sync() as store:
            session = store.create_session()
            for _ in range(40):
                _finish_while_another_prints(session)
    finally:
        sys.setswitchinterval(before)


def _finish_while_another_prints(session: Session) -> None:
    taken: list[str] = []
    begun = threading.Event()

    def pump(call: Tool) -> None:
        with contextlib.suppress(HandleClosed):
            while True:
                call.output(f"{len(taken)} ")
                taken.append(f"{len(taken)} ")
                begun.set()

    with session.turn() as turn:
        turn.record(Message("assistant", [ToolCall("a", "shell", "{}")]))
        with turn.tool("a") as call:
            thread = threading.Thread(target=pump, args=[call])
            thread.start()
            begun.wait()
            call.finish()
        thread.join()
    printed = session.messages()[-1].parts[0]
    assert isinstance(printed, ToolResult)
    assert str(printed.content).startswith("".join(taken))


def test_a_turn_whose_ending_was_written_says_so_though_its_task_was_cancelled() -> None:
    async def main() -> None:
        async with AsyncStore(MemoryDisk().open()) as store:
            session = await store.create_session()
            turn = session.turn("prompt")

            async def work() -> None:
                async with turn:
                    asyncio.get_running_loop().call_soon(task.cancel)  # while it is being left

            task = asyncio.ensure_future(work())
            with pytest.raises(asyncio.CancelledError):
                await task
            [stored] = await session.turns()
            assert (turn.status, turn.reason) == (stored.status, stored.reason)
            assert stored.status == "completed"

    asyncio.run(main())


@pytest.mark.parametrize("way", ["cancel", "anyio scope"])
@pytest.mark.parametrize("step", ["entering", "leaving"])
def test_a_turn_that_is_cancelled_while_its_write_fails_is_ended_afterwards(
    step: str, way: str
) -> None:
    """What goes on is the cancellation, and the session is free as soon as the store can write."""

    async def main() -> None:
        database = Failpoints(MemoryDisk().open(), lasting=True)
        async with AsyncStore(database, indexing=False) as store:
            session = await store.create_session()
            begun = database.steps
            first = await session.turn("first").__aenter__()
            entered = database.steps
            await first.__aexit__(None, None, None)
            steps = {"entering": entered - begun, "leaving": database.steps - entered}
            turn = session.turn("second")
            if step == "leaving":
                await turn.__aenter__()
            database.fail_at = database.steps + steps[step]  # the commit, and all that follows
            work = turn.__aenter__() if step == "entering" else turn.__aexit__(None, None, None)
            await _cancelled(work, way)
            database.fail_at = None
            async with session.turn("third", if_busy="wait", wait_seconds=5):
                pass
            assert [one.status for one in await session.turns()][-1] == "completed"

    asyncio.run(main())


async def _cancelled(work: Coroutine[Any, Any, object], way: str) -> None:
    if way == "cancel":
        task = asyncio.ensure_future(work)
        asyncio.get_running_loop().call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        return
    with anyio.CancelScope() as scope:
        scope.cancel()
        await work
    assert scope.cancelled_caught


def test_a_read_while_the_store_is_being_closed_is_refused_in_our_words() -> None:
    async def main() -> None:
        async with AsyncStore(MemoryDisk().open()) as store:
            session = await store.create_session()
            await session.entries()
            pool = store._core.runtime()._pool
            assert pool is not None
            pool.shutdown()  # as close() does before it says that the store is closed
            with pytest.raises(HandleClosed, match="open it again"):
                await session.entries()

    asyncio.run(main())
