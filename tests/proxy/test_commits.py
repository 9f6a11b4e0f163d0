"""How many commits a request waits for before it is passed on."""

import asyncio
import json
from pathlib import Path
from typing import Any

from killick import AsyncStore
from killick.proxy.conversations import Conversations
from killick.proxy.request import read_request

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}


def event(delta: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"


async def commits(
    store: AsyncStore, conversations: Conversations, said: list[Any], *answer: bytes
) -> int:
    """Record a request and its answer; the commits until it could be passed on."""
    body = json.dumps({"messages": said, "stream": True, "model": "m"}).encode()
    before = sum(store.figures.commit_seconds.counts)
    request = read_request("openai-chat", "/v1/chat/completions", body)
    exchange = await conversations.take(request, None, None, None)
    waited = sum(store.figures.commit_seconds.counts) - before
    exchange.begin()
    await exchange.until_ready()
    for piece in answer:
        await exchange.recording.feed(piece)
    await exchange.finish()
    return waited


def test_a_request_waits_for_one_commit_and_the_first_of_a_conversation_for_two(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "s.db", indexing=False) as store:
            conversations = Conversations(store, abandon_seconds=60)
            said: list[Any] = [{"role": "user", "content": "Hello."}]
            first = await commits(
                store, conversations, said, event({"content": "Hi."}), event({}, "stop")
            )
            said += [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "Look."}]
            calls = event({"tool_calls": [{"index": 0, **CALL}]})
            prompt = await commits(store, conversations, said, calls, event({}, "tool_calls"))
            said += [
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "kelp.txt"},
            ]
            result = await commits(
                store, conversations, said, event({"content": "One."}), event({}, "stop")
            )
            assert (first, prompt, result) == (2, 1, 1)
            (info,) = await store.sessions()
            turns = await (await store.session(info.id)).turns()
            assert [turn.status for turn in turns] == ["completed", "completed"]

    asyncio.run(main())


def test_a_conversation_that_was_let_go_of_is_found_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "s.db", indexing=False) as store:
            conversations = Conversations(store, abandon_seconds=60)
            said: list[Any] = [{"role": "user", "content": "Hello."}]
            answer = event({"content": "Hi."}), event({}, "stop")
            await commits(store, conversations, said, *answer)
            conversations._families.clear()  # as when there are too many
            said += [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "Look."}]
            await commits(store, conversations, said, *answer)
            assert len(await store.sessions()) == 1

    asyncio.run(main())
