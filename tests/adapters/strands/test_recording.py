"""A run of Strands, recorded, and what the next one is sent."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands", reason="strands-agents is not installed here: make adapters")

from strands import Agent, tool
from strands.hooks import AfterToolCallEvent, BeforeToolCallEvent
from strands.tools.executors import SequentialToolExecutor

from killick import AsyncSession, AsyncStore, Store
from killick.adapters.strands import history
from killick.errors import KillickError
from killick.model.messages import Image, Text, ToolResult
from tests.adapters import interrupting
from tests.adapters.strands import scripted
from tests.adapters.strands.scripted import PROMPT, Scripted, agent, make, recorder, run

SCRIPTED = "tests.adapters.strands.scripted"


def results(messages: list[Any]) -> dict[str, tuple[Any, bool]]:
    parts = [part for message in messages for part in message.parts]
    return {
        part.call_id: (part.content, part.is_error)
        for part in parts
        if isinstance(part, ToolResult)
    }


def told(messages: list[Any]) -> list[str]:
    """What the model is told of its calls, in their order."""
    blocks = [block for message in messages for block in message["content"]]
    return [block["toolResult"]["content"][0]["text"] for block in blocks if "toolResult" in block]


def words(messages: list[Any]) -> str:
    blocks = [block for message in messages for block in message["content"]]
    return "\n".join(block["text"] for block in blocks if "text" in block)


async def next_request(session: AsyncSession) -> list[Any]:
    """What the model of a second turn is sent."""
    made = make(lambda _: ["Yes."])
    await run(session, made, "PROMPT-2")
    assert isinstance(made.model, Scripted)
    return made.model.asked


@pytest.mark.parametrize("scenario", ["par", "same", "seq", "text"])
@pytest.mark.parametrize("how", ["cancel", "timeout", "kill"])
def test_nothing_is_missing_in_the_next_request(tmp_path: Path, scenario: str, how: str) -> None:
    store_path = tmp_path / "w.db"
    if how == "kill":
        middle = interrupting.is_in_text if scenario == "text" else interrupting.is_in_tools
        interrupting.kill_in_the_middle(SCRIPTED, store_path, scenario, middle)

    async def main() -> list[Any]:
        async with AsyncStore(store_path) as store:
            if how != "kill":
                session = await store.create_session(id="s")

                async def is_middle() -> bool:
                    if scenario == "text":
                        return any("word9 " in one.text for one in await session.messages())
                    return await interrupting.in_tools(session)

                interrupt = interrupting.cancel_in_the_middle
                if how == "timeout":
                    interrupt = interrupting.time_out_in_the_middle
                await interrupt(run(session, agent(scenario), PROMPT), is_middle)
            return await next_request(await store.session("s"))

    asked = asyncio.run(main())
    results_told = told(asked)
    assert results_told[:2] == ["result-1", "result-2"]
    assert words(asked).startswith(PROMPT)
    assert "interrupted" in words(asked)
    if scenario == "text":
        assert "word8 " in words(asked)
    else:
        assert "unknown" in results_told[2]


def test_an_agent_that_is_a_tool_has_a_session_of_its_own(tmp_path: Path) -> None:
    interrupting.kill_in_the_middle(SCRIPTED, tmp_path / "w.db", "sub", interrupting.is_in_tools)
    with Store(tmp_path / "w.db") as store:
        [child] = store.sessions(type="subagent")
        parent = child.about.parent
        assert parent is not None
        assert (parent.session_id, child.title) == ("s", "helper")
        inner = store.session(child.id)
        assert inner.messages()[0].text == "Help."
        assert results(inner.messages()) == {
            "c1": ("result-1", False),
            "c2": ("result-2", False),
        }
        [said] = store.session("s").context("openai-chat").messages[2:3]
        assert "unknown" in said["content"]


def one_call(name: str, call_id: str = "c1") -> Any:
    return lambda done: ["Well."] if done else [(call_id, name)]


@tool
def breaks() -> str:
    """Fail."""
    raise ValueError("no disk")


@tool
def picks(number: int) -> str:
    """Need an argument."""
    return str(number)


def recorded(tmp_path: Path, made: Agent) -> list[Any]:
    """Run it; the results in order, and how the turns ended, a subagent's too."""

    async def main() -> list[Any]:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session(id="s")
            await run(session, made, PROMPT)
            kept: list[Any] = list(results(await session.messages()).values())
            for info in await store.sessions(type=None):
                assert await store.examine_session(info.id) == []
                stored = await store.session(info.id)
                kept += [turn.status for turn in await stored.turns()]
            return kept

    return asyncio.run(main())


@pytest.mark.parametrize(("name", "words"), [("breaks", "no disk"), ("picks", "number")])
def test_a_failing_tool_and_bad_arguments_are_errors(tmp_path: Path, name: str, words: str) -> None:
    [(text, failed), status] = recorded(tmp_path, make(one_call(name), breaks, picks))
    assert (failed, status) == (True, "completed")
    assert words in text


def test_an_unknown_tool_is_an_error(tmp_path: Path) -> None:
    [(text, failed), status] = recorded(tmp_path, make(one_call("nowhere"), breaks))
    assert (failed, status) == (True, "completed")
    assert "nowhere" in text


def test_calls_that_share_an_id_are_told_apart(tmp_path: Path) -> None:
    """Some models number the calls of each kind; the tools run at once."""
    calls = [("c1", "t1"), ("c1", "t2"), ("c1", "t1")]
    made = make(lambda done: ["Well."] if done else list(calls), scripted.t1, scripted.t2)
    *kept, status = recorded(tmp_path, made)
    assert kept == [(f"result-{n}", False) for n in (1, 2, 1)]
    assert status == "completed"


def test_a_call_without_an_id_is_dropped_by_strands_itself() -> None:
    """It asks the model again and again, also without a recorder; so there is nothing to record."""
    asked: list[int] = []

    def script(results: int) -> list[Any]:
        asked.append(results)
        return ["Enough."] if len(asked) > 3 else [("", "t1")]

    plain = Agent(model=Scripted(script), tools=[scripted.t1], callback_handler=None)
    asyncio.run(plain.invoke_async(PROMPT))
    assert asked == [0, 0, 0, 0]


@pytest.mark.parametrize("executor", [None, SequentialToolExecutor()])
def test_agents_inside_of_tools_are_children_one_after_another(
    tmp_path: Path, executor: Any
) -> None:
    helper = make(one_call("t1"), scripted.t1, name="helper", description="Helps.")

    def both(done: int) -> list[Any]:
        return ["Good."] if done else [("s1", "helper"), ("c2", "t2")]

    kept = recorded(tmp_path, make(both, helper, scripted.t2, tool_executor=executor))
    assert [text.strip() for text, _ in kept[:2]] == ["Well.", "result-2"]
    assert kept[2:] == ["completed", "completed"]


def test_a_tool_that_a_hook_has_run_again_has_its_last_result(tmp_path: Path) -> None:
    runs: list[int] = []

    @tool
    def unsteady() -> str:
        """Fail at first."""
        runs.append(1)
        return f"run {len(runs)}"

    made = make(one_call("unsteady"), unsteady)

    def again(event: AfterToolCallEvent[Any]) -> None:
        event.retry = len(runs) < 2

    made.hooks.add_callback(AfterToolCallEvent, again)
    assert recorded(tmp_path, made) == [("run 2", False), "completed"]


def test_a_call_that_a_hook_refused_did_not_start(tmp_path: Path) -> None:
    made = make(one_call("t1"), scripted.t1)

    def refuse(event: BeforeToolCallEvent[Any]) -> None:
        event.cancel_tool = "not today"

    made.hooks.add_callback(BeforeToolCallEvent, refuse)
    assert recorded(tmp_path, made) == [("not today", True), "completed"]


def test_what_a_tool_shows_is_kept_and_sent_again(tmp_path: Path) -> None:
    png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x09\0\0\0\x09"

    @tool
    def shows() -> Any:
        """Show a picture."""
        image = {"image": {"format": "png", "source": {"bytes": png}}}
        return {"status": "success", "content": [{"text": "Look:"}, image]}

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            await run(session, make(one_call("shows"), shows), PROMPT)
            [(shown, _)] = results(await session.messages()).values()
            assert [type(part) for part in shown] == [Text, Image]
            [result] = [
                block["toolResult"]
                for message in await history(session)
                for block in message["content"]
                if "toolResult" in block
            ]
            image = {"image": {"format": "png", "source": {"bytes": png}}}
            assert result["content"] == [{"text": "Look:"}, image]

    asyncio.run(main())


@pytest.mark.parametrize("approved", [True, False])
def test_a_call_that_waits_for_a_person_is_asked_once_and_goes_on(
    tmp_path: Path, approved: bool
) -> None:
    made = make(one_call("t1"), scripted.t1)

    def ask(event: BeforeToolCallEvent[Any]) -> None:
        if event.interrupt("approval", reason="May it?") != "yes":
            event.cancel_tool = "not today"

    made.hooks.add_callback(BeforeToolCallEvent, ask)

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session(id="s")
            async with session.turn(PROMPT) as turn:
                with recorder.recording(turn):
                    made.messages = await history(session)
                    result = await made.invoke_async()
                    assert await recorder.pause(result)
            [first] = await session.turns()
            assert first.status == "interrupted"
            [asked] = await session.approvals()
            assert asked.call_id == "c1"
            answer = "yes" if approved else "no"
            said: Any = [
                {"interruptResponse": {"interruptId": one.id, "response": answer}}
                for one in result.interrupts or ()
            ]
            async with session.turn(continues=first.id) as again:
                with recorder.recording(again, of=first.id):
                    await made.invoke_async(said)
            assert await session.approvals() == []
            [text] = told(await history(session))
            if approved:
                assert text == "result-1"
            else:
                assert "denied" in text or "refused" in text
            assert (await session.messages())[-1].text == "Well. "

    asyncio.run(main())


def test_the_agent_does_the_same(tmp_path: Path) -> None:
    """Events, in their order and with their content, are as without."""

    async def events(made: Agent) -> list[Any]:
        return [
            event["event"] if "event" in event else event["message"]["content"]
            async for event in made.stream_async(PROMPT)
            if "event" in event or "message" in event
        ]

    async def main() -> None:
        plain = Agent(model=Scripted(one_call("t1")), tools=[scripted.t1], callback_handler=None)
        expected = await events(plain)
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn(PROMPT) as turn:
                with recorder.recording(turn):
                    assert await events(make(one_call("t1"), scripted.t1)) == expected

    asyncio.run(main())


def test_a_store_that_fails_raises_into_the_run(tmp_path: Path) -> None:
    opened: list[AsyncStore] = []

    @tool
    async def unplug() -> str:
        """Close the store."""
        await opened[0].close()
        return "gone"

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            opened.append(store)
            session = await store.create_session()
            with pytest.raises(Exception) as raised:  # noqa: PT011  (Strands may wrap it)
                await run(session, make(one_call("unplug"), unplug), PROMPT)
            causes = [raised.value, raised.value.__cause__, raised.value.__context__]
            assert any(isinstance(cause, KillickError) for cause in causes)

    asyncio.run(main())
