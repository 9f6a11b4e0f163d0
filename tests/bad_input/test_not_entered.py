"""A turn that is used without its block says how it is used."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from killick import AsyncStore, AsyncTurn, Message, Store, Text, UsageError
from killick.stores.memory import MemoryDisk

SAYS = r"`with session\.turn\(...\) as turn:`, or `async with session\.turn\(...\) as turn:`"
USES: dict[str, Callable[[Any], Any]] = {
    "stream": lambda turn: turn.stream(),
    "tool": lambda turn: turn.tool("c"),
    "record": lambda turn: turn.record(Message("assistant", (Text("x"),))),
}


@pytest.mark.parametrize("name", USES)
def test_a_turn_without_its_block(name: str) -> None:
    def use(turn: object) -> None:
        with USES[name](turn):
            pass

    with Store(MemoryDisk().open()) as store:
        session = store.create_session()
        with pytest.raises(UsageError, match=SAYS):
            use(session.turn("x"))
        assert session.messages() == []


@pytest.mark.parametrize("name", USES)
def test_an_asynchronous_turn_without_its_block(name: str) -> None:
    async def use(turn: AsyncTurn) -> None:
        result = USES[name](turn)
        if hasattr(result, "__await__"):
            await result
        async with result:
            pass

    async def run() -> list[Message]:
        async with AsyncStore(MemoryDisk().open()) as store:
            session = await store.create_session()
            with pytest.raises(UsageError, match=SAYS):
                await use(session.turn("x"))
            return await session.messages()

    assert asyncio.run(run()) == []
