"""Which event loop runs here."""

import asyncio
import sys
from types import ModuleType

import pytest

from killick import AsyncSession, AsyncStore, TurnStopped
from killick.session.drive.drive_async import in_trio
from killick.session.drive.exit_guard import ending
from killick.stores.memory import MemoryDisk


def test_a_trio_that_is_being_imported_does_not_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """By another thread: its modules are there already, and empty."""
    for name in ("trio", "trio.lowlevel"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert not in_trio()
    assert ending("turn", ValueError("no")).status == "failed"


async def stop_itself(session: AsyncSession) -> None:
    async with session.turn("go") as turn:
        await session.stop(turn.id)
        await asyncio.Event().wait()


def test_a_stop_is_told_from_a_cancellation_of_before() -> None:
    """A task that was cancelled once, and goes on, may run a turn: its Stop is no cancellation."""

    async def scenario() -> None:
        async with AsyncStore(MemoryDisk().open()) as store:
            session = await store.create_session()
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.Event().wait()
            with pytest.raises(TurnStopped):
                await stop_itself(session)
            assert task.cancelling() == 1

    asyncio.run(scenario())
