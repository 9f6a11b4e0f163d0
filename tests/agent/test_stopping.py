"""Ctrl+C in a chat whose store fails: the turn is stopped all the same, and the person is told."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from killick import AsyncStore
from killick.agent import Agent
from killick.cli.chat.slash import run_command
from killick.cli.chat.talk import Talk
from killick.stores.memory import MemoryDisk
from killick.testing.faults import Failpoints


def test_a_turn_is_stopped_though_the_store_cannot_be_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = Failpoints(MemoryDisk().open(), lasting=True)

    async def main() -> None:
        asked = asyncio.Event()

        async def thinks(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str]:
            asked.set()
            await asyncio.Event().wait()
            yield "never"

        async with AsyncStore(disk) as store:
            session = await store.create_session()
            agent = Agent(FunctionModel(stream_function=thinks))
            talk = Talk(store, session, agent, run_command, url=None)
            talk.begin("Go.")
            await asked.wait()
            disk.fail_at = 0
            talk.interrupt()
            assert talk._turn is not None
            await asyncio.wait({talk._turn}, timeout=10)
            assert talk._turn.cancelled()
            disk.fail_at = None
            async with session.turn("And now?"):
                pass
            assert [turn.status for turn in await session.turns()] == ["interrupted", "completed"]

    asyncio.run(main())
    assert "injected" in capsys.readouterr().out
