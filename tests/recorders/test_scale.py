"""Many streams through one Store object: nothing piles up, is lost, or is there twice."""

import asyncio
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from killick import AsyncStore, Store
from killick.recorders import record
from tests.recorders.clients import SHAPES, AsyncClients, Clients
from tests.recorders.saying import answer, plain_events
from tests.recorders.server import Script, Scripted
from tests.waiting import resident

WORDS = [f"w{number} " for number in range(20)]


def stream_many(store: Store, server: Scripted, clients: Clients, count: int) -> list[int]:
    """Every second stream is cut; memory is looked at ten times on the way."""
    whole = answer("openai-chat", WORDS)
    seen = []
    session = store.create_session()
    for number in range(count):
        cut = number % 2 == 1
        server.scripts.append(Script(whole.events[:11], "eof") if cut else whole)
        if number % 50 == 0:
            session = store.create_session()
        with session.turn("Hi.") as turn:
            stream = record(turn, "openai-chat", lambda: clients.ask("openai-chat"), cut="keep")
            for _ in stream:
                pass
        said = session.messages(last=1)[0]
        assert (said.id, said.state) == (stream.id, "partial" if cut else "complete")
        assert said.text == "".join(WORDS[:11] if cut else WORDS)
        server.requests.clear()
        if number % (count // 10) == count // 10 - 1:
            gc.collect()
            seen.append(resident(os.getpid()))
    return seen


@pytest.mark.slow
def test_three_hundred_streams_leave_no_delta(
    store: Store, server: Scripted, clients: Clients
) -> None:
    stream_many(store, server, clients, 300)
    assert store.counts()["deltas"] == 0


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_ten_thousand_streams_leave_memory_flat(
    store: Store, server: Scripted, clients: Clients
) -> None:
    seen = stream_many(store, server, clients, 10_000)
    print("resident MB:", [round(size / 1e6, 1) for size in seen])
    assert store.counts()["deltas"] == 0
    # After the first tenth every cache is warm; nine thousand streams may not add 8 MB to that.
    assert seen[-1] - seen[0] < 8_000_000


def test_a_hundred_turns_on_one_session_object_every_third_cancelled(
    tmp_path: Path, server: Scripted
) -> None:
    """Nothing lost, nothing twice, whichever SDK a turn used."""

    async def main() -> None:
        async with AsyncStore(tmp_path / "work.db") as store, AsyncClients(server.url) as clients:
            session = await store.create_session()
            for number in range(100):
                shape: Any = SHAPES[number % 4]
                words = [f"{number}:{word}" for word in WORDS]
                cancelled = number % 3 == 2
                server.scripts.append(answer(shape, words, stalls=cancelled))
                task = asyncio.create_task(_turn(session, clients, shape, number, words[-1]))
                if cancelled:
                    while not await asyncio.to_thread(server.stalled.acquire, timeout=0.01):
                        pass
                    await _said(session, words[-1])
                    task.cancel()
                await asyncio.wait([task])
                assert task.cancelled() == cancelled
            messages = await session.messages()
            turns = await session.turns()
        assert [one.status for one in turns] == [
            "interrupted" if number % 3 == 2 else "completed" for number in range(100)
        ]
        expected = []
        for number in range(100):
            state = "partial" if number % 3 == 2 else "complete"
            expected.append((f"prompt {number}", "complete"))
            expected.append(("".join(f"{number}:{word}" for word in WORDS), state))
        assert [(message.text, message.state) for message in messages] == expected

    asyncio.run(main())


async def _turn(session: Any, clients: AsyncClients, shape: Any, number: int, last: str) -> None:
    async with session.turn(f"prompt {number}") as turn:
        async for _ in record(turn, shape, clients.ask(shape)):
            pass


async def _said(session: Any, word: str) -> None:
    """Until a word is on the disk."""
    async for followed in session.follow(after=session.head):
        if followed.kind == "delta" and word in followed.text:
            return


def test_streams_side_by_side_in_one_turn_do_not_mix(store: Store) -> None:
    """Two recordings, read in turns: each message has its own text."""
    session = store.create_session()
    with session.turn("Hi.") as turn:
        left = record(turn, "openai-chat", iter(plain_events("openai-chat", ["a"] * 50)))
        right = record(turn, "anthropic", iter(plain_events("anthropic", ["b"] * 47)))
        ours = [iter(left), iter(right)]
        for _ in zip(*ours, strict=False):
            pass
        for one in ours:
            list(one)
    texts = {message.id: message.text for message in session.messages()}
    assert (texts[left.id], texts[right.id]) == ("a" * 50, "b" * 47)
