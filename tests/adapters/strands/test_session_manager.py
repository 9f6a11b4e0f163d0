"""Strands' sessions on a store, by its own tests where they are here."""

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands", reason="strands-agents is not installed here: make adapters")

from strands.types.session import SessionMessage

from killick import AsyncStore, Store
from killick.adapters.strands import KillickSessionManager
from tests.adapters.strands.scripted import Scripted, make, recorder
from tests.adapters.upstreams import run_theirs, suite_of

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x09\0\0\0\x09"


def test_an_agent_goes_on_with_messages_and_state_in_another_opening(tmp_path: Path) -> None:
    with Store(tmp_path / "w.db") as store:
        first = make(lambda _: ["Yes."], session_manager=KillickSessionManager("s", store))
        image: Any = {"image": {"format": "png", "source": {"bytes": PNG}}}
        first.state.set("color", "red")
        asyncio.run(first.invoke_async([{"text": "One?"}, image]))
        expected = first.messages
    with Store(tmp_path / "w.db") as store:
        manager = KillickSessionManager("s", store)
        again = make(lambda _: ["Yes."], session_manager=manager)
        assert [one["content"] for one in again.messages] == [one["content"] for one in expected]
        assert again.state.get("color") == "red"
        texts = [one.text.strip() for one in store.session(manager.stored_id()).messages()]
        assert texts == ["One?", "Yes."]
        assert store.examine_session(manager.stored_id()) == []


def test_a_redacted_message_is_read_as_redacted(tmp_path: Path) -> None:
    with Store(tmp_path / "w.db") as store:
        manager = KillickSessionManager("s", store)
        made = make(lambda _: ["Yes."], session_manager=manager)
        asyncio.run(made.invoke_async("One?"))
        hidden: Any = {"role": "assistant", "content": [{"text": "[hidden]"}]}
        manager.redact_latest_message(hidden, made)
        kept = manager.session_repository.list_messages("s", "default")
        assert [one.to_message()["content"] for one in kept][-1] == hidden["content"]
        assert isinstance(kept[0], SessionMessage)


def test_with_a_recorder_what_was_said_is_there_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            for prompt in ("One?", "Two?"):
                manager = KillickSessionManager("s", store)
                session = await store.open_session(manager.stored_id())
                async with session.turn(prompt) as turn:
                    with recorder.recording(turn):
                        made = make(lambda _: ["Yes."], session_manager=manager)
                        await made.invoke_async(prompt)
            assert isinstance(made.model, Scripted)
            asked = [one["content"][0]["text"].strip() for one in made.model.asked]
            assert asked == ["One?", "Yes.", "Two?"]
            said = [one.text.strip() for one in await session.messages()]
            assert said == ["One?", "Yes.", "Two?", "Yes."]

    asyncio.run(main())


# -- their own tests -----------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_their_own_tests_pass() -> None:
    """Without their conftest, which asks for a stand-in of AWS; anyio runs what is asynchronous."""
    folder = suite_of(f"strands_agents-{version('strands-agents')}")
    file = "tests/strands/session/test_repository_session_manager.py"
    here = Path(__file__).parent
    ran = run_theirs(folder, here, "--noconftest", "-o", "anyio_mode=auto", file)
    assert ran.failed == {}
    assert ran.passed >= 51
    assert ran.counted("repositories were Killick's") >= 50
