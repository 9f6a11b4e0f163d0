"""A tool that is left without a result is recorded as left; one that has a result is not."""

import asyncio
import contextlib

import pytest

from killick import AsyncStore, Message, ToolCall
from killick.stores.memory import MemoryDisk


@pytest.mark.parametrize("printed", ["", "half"])
@pytest.mark.parametrize("finished", [False, True])
def test_a_tool_whose_giver_was_cancelled(printed: str, *, finished: bool) -> None:
    """The result is stored before the cancellation comes out of `finish`."""

    async def main() -> list[str]:
        async with AsyncStore(MemoryDisk().open()) as store:
            session = await store.create_session()
            async with session.turn("Go.") as turn:
                await turn.record(Message("assistant", [ToolCall("c", "shell", "{}")]))
                task = asyncio.create_task(run(turn))
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            return [entry.kind for entry in await session.entries()]

    async def run(turn: object) -> None:
        async with turn.tool("c") as call:  # type: ignore[attr-defined]
            call.output(printed)
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            if finished:
                await call.finish("done")
            await asyncio.sleep(0)

    kinds = asyncio.run(main())
    after = kinds[kinds.index("tool_started") + 1 :]
    assert after == ["tool_result" if finished else "tool_output", "turn_ended"]
