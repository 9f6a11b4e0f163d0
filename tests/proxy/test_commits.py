"""How many commits a request waits for before it is passed on."""

import asyncio
import gc
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from killick import AsyncStore, Store
from killick.errors import StoreDegraded
from killick.proxy.conversations import Conversations
from killick.proxy.request import read_request
from killick.proxy.wire import AgentSource
from killick.stores.memory import MemoryDisk
from killick.testing.faults import Failpoints

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}


def event(delta: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"


def open_store(path: Path) -> AsyncStore:
    """Open a store whose flushes, which no request waits for, are not counted with the others."""
    return AsyncStore(path, indexing=False, window_seconds=30)


async def commits(
    store: AsyncStore,
    conversations: Conversations,
    said: list[Any],
    *answer: bytes,
    name: str | None = None,
    source: AgentSource | None = None,
    **further: Any,
) -> int:
    """Record a request and its answer; the commits until it could be passed on."""
    asked = {"messages": said, "stream": True, "model": "m"} | further
    before = sum(store.figures.commit_seconds.counts)
    request = read_request("openai-chat", "/v1/chat/completions", json.dumps(asked).encode())
    exchange = await conversations.take(request, source, name, None)
    waited = sum(store.figures.commit_seconds.counts) - before
    exchange.begin()
    await exchange.until_ready()
    for piece in answer:
        await exchange.recording.feed(piece)
    await exchange.finish()
    return waited


ANSWER = event({"content": "Hi."}), event({}, "stop")
CALLS = event({"tool_calls": [{"index": 0, **CALL}]}), event({}, "tool_calls")
HELLO = {"role": "user", "content": "Hello."}
SAID = {"role": "assistant", "content": "Hi."}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "kelp.txt"}
LOOK = {"role": "user", "content": "Look."}
PICTURE = {
    "role": "user",
    "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    ],
}


def counted(path: Path, *requests: tuple[list[Any], tuple[bytes, ...]], **asked: Any) -> list[int]:
    """Record requests one after another; the commits that each of them waited for."""

    async def main() -> list[int]:
        async with open_store(path) as store:
            conversations = Conversations(store, abandon_seconds=60)
            return [
                await commits(store, conversations, said, *answer, **asked)
                for said, answer in requests
            ]

    return asyncio.run(main())


def test_a_request_waits_for_one_commit_the_first_of_a_conversation_too(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with open_store(tmp_path / "s.db") as store:
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
            assert (first, prompt, result) == (1, 1, 1)
            (info,) = await store.sessions()
            turns = await (await store.session(info.id)).turns()
            assert [turn.status for turn in turns] == ["completed", "completed"]

    asyncio.run(main())


def test_a_conversation_that_was_let_go_of_is_found_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_store(tmp_path / "s.db") as store:
            conversations = Conversations(store, abandon_seconds=60)
            said: list[Any] = [{"role": "user", "content": "Hello."}]
            answer = event({"content": "Hi."}), event({}, "stop")
            await commits(store, conversations, said, *answer)
            conversations._families.clear()  # as when there are too many
            said += [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "Look."}]
            await commits(store, conversations, said, *answer)
            assert len(await store.sessions()) == 1

    asyncio.run(main())


def test_a_prompt_with_a_picture_waits_for_one_commit(tmp_path: Path) -> None:
    assert counted(tmp_path / "s.db", ([PICTURE], ANSWER)) == [1]


def test_results_with_words_beside_them_wait_for_one_commit(tmp_path: Path) -> None:
    found = counted(tmp_path / "s.db", ([HELLO], CALLS), ([HELLO, CALLED, RESULT, LOOK], ANSWER))
    assert found == [1, 1]
    with Store(tmp_path / "s.db") as store:
        (info,) = store.sessions()
        (turn,) = store.session(info.id).turns()
        roles = [message.role for message in store.session(info.id).messages()]
        assert (turn.status, roles) == (
            "completed", ["user", "assistant", "tool", "user", "assistant"],
        )  # fmt: skip


def test_a_prompt_that_leaves_a_turn_behind_waits_for_one_commit(tmp_path: Path) -> None:
    found = counted(tmp_path / "s.db", ([HELLO], CALLS), ([HELLO, CALLED, LOOK], ANSWER))
    assert found == [1, 1]
    with Store(tmp_path / "s.db") as store:
        (info,) = store.sessions()
        turns = store.session(info.id).turns()
        assert [(turn.status, turn.cause) for turn in turns] == [
            ("interrupted", "abandoned"), ("completed", None),
        ]  # fmt: skip


def test_instructions_beside_a_prompt_wait_for_one_commit(tmp_path: Path) -> None:
    told = {"role": "system", "content": "Be brief."}
    found = counted(tmp_path / "s.db", ([HELLO], ANSWER), ([HELLO, SAID, told, LOOK], ANSWER))
    assert found == [1, 1]
    with Store(tmp_path / "s.db") as store:
        (info,) = store.sessions()
        roles = [message.role for message in store.session(info.id).messages()]
        assert roles == ["user", "assistant", "user", "system", "assistant"]


def test_a_conversation_that_began_elsewhere_waits_for_one_commit(tmp_path: Path) -> None:
    assert counted(tmp_path / "s.db", ([HELLO, SAID, LOOK], ANSWER)) == [1]
    with Store(tmp_path / "s.db") as store:
        (info,) = store.sessions()
        assert [turn.status for turn in store.session(info.id).turns()] == ["completed"] * 2


def test_a_session_with_a_name_is_gone_on_with_after_one_commit(tmp_path: Path) -> None:
    for said in ([HELLO], [HELLO, SAID, LOOK]):  # each in a proxy of its own
        assert counted(tmp_path / "s.db", (said, ANSWER), name="mine") == [1]
    with Store(tmp_path / "s.db") as store:
        assert [turn.status for turn in store.session("mine").turns()] == ["completed"] * 2
        assert store.session("mine").notes(name="recorded by the proxy")


def test_a_call_beside_the_conversation_waits_for_one_commit(tmp_path: Path) -> None:
    source = AgentSource("codex", "c-1")
    found = counted(tmp_path / "s.db", ([HELLO], ANSWER), ([LOOK], ANSWER), source=source)
    assert found == [1, 1]
    with Store(tmp_path / "s.db") as store:
        assert {info.about.type for info in store.sessions(archived=None)} == {"hidden"}


def test_a_result_that_could_not_be_stored_is_stored_by_the_next_request() -> None:
    async def main() -> None:
        disk = Failpoints(MemoryDisk().open())
        async with AsyncStore(disk, indexing=False) as store:
            conversations = Conversations(store, abandon_seconds=60)
            await commits(store, conversations, [HELLO], *CALLS)
            disk.fail_at = disk.steps + 1
            with pytest.raises(StoreDegraded):
                await commits(store, conversations, [HELLO, CALLED, RESULT], *ANSWER)
            await commits(store, conversations, [HELLO, CALLED, RESULT], *ANSWER)
            (info,) = await store.sessions()
            messages = await (await store.session(info.id)).messages()
            assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant"]

    asyncio.run(main())


def test_a_first_request_that_fails_at_any_step_leaves_nothing_and_can_be_repeated() -> None:
    async def main() -> int:
        disk = Failpoints(MemoryDisk().open(), fail_at=step)
        async with AsyncStore(disk, indexing=False) as store:
            conversations = Conversations(store, abandon_seconds=60)
            request = read_request(
                "openai-chat", "/v1", json.dumps({"messages": [PICTURE]}).encode()
            )
            try:
                exchange = await conversations.take(request, None, None, None)
            except StoreDegraded:
                assert await store.sessions() == []
                assert conversations.running() == 0
                exchange = await conversations.take(request, None, None, None)
            reached, disk.fail_at = disk.steps, None
            (info,) = await store.sessions()
            session = await store.session(info.id)
            assert [turn.status for turn in await session.turns()] == ["running"]
            assert [m.text for m in await session.messages()] == ["What is this?"]
            await exchange.turn.end()
            return reached

    step = 1
    while asyncio.run(main()) >= step:
        step += 1
    assert step > 5


def test_what_is_remembered_of_conversations_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("killick.proxy.conversations._FOUND_MAX", 300)

    async def main() -> None:
        async with AsyncStore(MemoryDisk().open(), indexing=False) as store:
            conversations = Conversations(store, abandon_seconds=60)
            for number in range(400):
                said = [{"role": "user", "content": f"Question {number}"}]
                await commits(store, conversations, said, *ANSWER)
                assert len(conversations._families) <= 256 + 128
            assert conversations._listed is not None
            assert len(conversations._listed) == 300
            early = [{"role": "user", "content": "Question 120"}, SAID, LOOK]
            assert ("content", conversations._key(read(early), None, None)[1]) not in (
                conversations._families
            )
            await commits(store, conversations, early, *ANSWER)
            assert len(await store.sessions(limit=1_000)) == 400

    def read(said: list[Any]) -> Any:
        return read_request("openai-chat", "/v1", json.dumps({"messages": said}).encode())

    asyncio.run(main())


def test_what_is_kept_in_memory_is_the_same_after_twice_as_many_conversations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No object of any kind is left over for a conversation, beyond those that are remembered."""
    monkeypatch.setattr("killick.proxy.conversations._FOUND_MAX", 40)
    monkeypatch.setattr("killick.proxy.conversations._RESPONSES_MAX", 40)
    monkeypatch.setattr("killick.proxy.conversations._IDLE_MAX", 16)
    monkeypatch.setattr("killick.stores.engine.state._STATES_MAX", 16)
    monkeypatch.setattr("killick.session.runtime._VERIFIED_MAX", 16)

    async def main() -> None:
        async with AsyncStore(tmp_path / "s.db", window_seconds=0.001, indexing=False) as store:
            conversations = Conversations(store, abandon_seconds=60)

            async def one(number: int) -> None:
                said = [{"role": "user", "content": f"Question {number}"}]
                asked = {"messages": said, "stream": True, "model": "m"}
                body = json.dumps(asked).encode()
                request = read_request("openai-chat", "/v1/chat/completions", body)
                exchange = await conversations.take(request, None, None, None)
                exchange.begin()
                await exchange.until_ready()
                identified = ANSWER[0].replace(b'"id": "c"', b'"id": "c%d"' % number)
                await exchange.recording.feed(identified + ANSWER[1])
                await exchange.finish()
                conversations.answered(exchange)
                await store.session(exchange.thread.session.id)

            kept: list[Counter[type]] = []
            for number in range(241):
                await one(number)
                if number in (120, 240):
                    gc.collect()
                    kept.append(Counter(type(found) for found in gc.get_objects()))
            # One left over for each is 120 more; how long ago each cache was aged makes some 20.
            assert {kind: n for kind, n in (kept[1] - kept[0]).items() if n > 60} == {}

    asyncio.run(main())


def test_another_process_that_was_faster_has_the_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_store(tmp_path / "s.db") as store:
            slow, fast = (Conversations(store, abandon_seconds=60) for _ in range(2))
            (family := slow._family(("/s", "mine"), None, "mine")).loaded = True
            assert not family.threads  # it has looked, and there was none
            await commits(store, fast, [HELLO], *ANSWER, name="mine")
            await commits(store, slow, [HELLO, SAID, LOOK], *ANSWER, name="mine")
            turns = await (await store.session("mine")).turns()
            assert [turn.status for turn in turns] == ["completed"] * 2

    asyncio.run(main())
