"""The framework's history on a store."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agent_framework", reason="agent-framework is not installed: make adapters")

from agent_framework import Agent, Content, Message

from killick import AsyncStore
from killick.adapters.agent_framework import KillickHistoryProvider
from tests.adapters import interrupting
from tests.adapters.agent_framework import scripted
from tests.adapters.agent_framework.scripted import Scripted, recorder

MESSAGES = [
    Message("user", ["continue"]),
    Message("assistant", [Content.from_function_call("c1", "look", arguments='{"at": 1}')]),
    Message("tool", [Content.from_function_result("c1", result="a wall")]),
    Message("assistant", [Content.from_text_reasoning(text="Hm."), "done"], message_id="m1"),
    Message("user", [Content.from_uri("https://kelp.test/a.png", media_type="image/png")]),
]


def test_messages_come_back_exactly_also_those_that_are_alike(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            provider = KillickHistoryProvider(store)
            assert await provider.get_messages("s") == []
            for _ in range(3):
                await provider.save_messages("s", MESSAGES)
        async with AsyncStore(tmp_path / "w.db") as store:
            kept = await KillickHistoryProvider(store).get_messages("s")
            assert [one.to_dict() for one in kept] == [one.to_dict() for one in MESSAGES] * 3
            session = await store.session("s")
            assert await store.examine_session("s") == []
            texts = [one.text for one in await session.messages()]
            assert texts[:4] == ["continue", "", "", "done"]

    asyncio.run(main())


@pytest.mark.parametrize("recorded", [True, False])
def test_a_run_goes_on_with_what_the_first_stored(tmp_path: Path, recorded: bool) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            model = Scripted(lambda _: ["Yes."])
            agent = Agent(model, context_providers=[KillickHistoryProvider(store)])
            theirs = agent.create_session(session_id="s")
            session = await store.open_session("s")
            for prompt in ("One?", "Two?"):
                if not recorded:
                    await agent.run(prompt, session=theirs)
                    continue
                async with session.turn(prompt) as turn:
                    with recorder.recording(turn):
                        await agent.run(prompt, session=theirs, middleware=recorder.middleware)
            assert [one.text.strip() for one in model.asked] == ["One?", "Yes.", "Two?"]
            said = [one.text.strip() for one in await session.messages()]
            assert said == ["One?", "Yes.", "Two?", "Yes."]

    asyncio.run(main())


def test_the_input_is_kept_before_the_model_is_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            provider = KillickHistoryProvider(store)
            agent = Agent(
                Scripted(lambda _: [" ".join(scripted.WORDS)]), context_providers=[provider]
            )
            theirs: Any = agent.create_session(session_id="s")

            async def run() -> None:
                async for _ in agent.run("One?", session=theirs, stream=True):
                    pass

            async def is_middle() -> bool:
                return bool(await provider.get_messages("s"))

            await interrupting.cancel_in_the_middle(run(), is_middle)
            assert [one.text for one in await provider.get_messages("s")] == ["One?"]

    asyncio.run(main())
