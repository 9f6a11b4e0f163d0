"""A run of the framework, recorded, and what the next one is sent."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agent_framework", reason="agent-framework is not installed: make adapters")

from agent_framework import Agent, Content, Message, MiddlewareFailure, tool

from killick import AsyncSession, AsyncStore, Store
from killick.adapters.agent_framework import Recorder, history
from killick.errors import KillickError
from killick.model.messages import Image, Text, ToolResult
from tests.adapters import interrupting
from tests.adapters.agent_framework import scripted
from tests.adapters.agent_framework.scripted import PROMPT, Scripted, agent, recorder, run

pytestmark = pytest.mark.filterwarnings("ignore:An actionable function_call had an empty call_id")
SCRIPTED = "tests.adapters.agent_framework.scripted"


def results(messages: list[Any]) -> dict[str, tuple[Any, bool]]:
    parts = [part for message in messages for part in message.parts]
    return {
        part.call_id: (part.content, part.is_error)
        for part in parts
        if isinstance(part, ToolResult)
    }


def told(messages: list[Message]) -> list[str]:
    """What the model is told of its calls, in their order."""
    contents = [content for message in messages for content in message.contents]
    return [str(content.result) for content in contents if content.type == "function_result"]


def words(messages: list[Message]) -> str:
    return "\n".join(message.text for message in messages)


async def next_request(session: AsyncSession) -> list[Message]:
    """What the model of a second turn is sent."""
    model = Scripted(lambda _: ["Yes."])
    await run(session, Agent(model, name="agent"), "PROMPT-2")
    return model.asked


@pytest.mark.parametrize("scenario", ["par", "noid", "seq", "text"])
@pytest.mark.parametrize("how", ["cancel", "timeout", "kill"])
def test_nothing_is_missing_in_the_next_request(tmp_path: Path, scenario: str, how: str) -> None:
    store_path = tmp_path / "w.db"
    if how == "kill":
        middle = interrupting.is_in_text if scenario == "text" else interrupting.is_in_tools
        interrupting.kill_in_the_middle(SCRIPTED, store_path, scenario, middle)

    async def main() -> list[Message]:
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
        assert parent.session_id == "s"
        inner = store.session(child.id)
        assert inner.messages()[0].text == "Help."
        assert results(inner.messages()) == {
            "c1": ("result-1", False),
            "c2": ("result-2", False),
        }
        [said] = store.session("s").context("openai-chat").messages[2:3]
        assert "unknown" in said["content"]


def one_call(name: str, call_id: str = "c1") -> Scripted:
    return Scripted(lambda done: ["Well."] if done else [(call_id, name)])


def breaks() -> str:
    """Fail."""
    raise ValueError("no disk")


def picks(number: int) -> str:
    """Need an argument."""
    return str(number)


@tool(approval_mode="always_require")
def careful() -> str:
    """Ask first."""
    return "done with care"


async def run_whole(session: AsyncSession, made: Agent[Any], prompt: str) -> None:
    """Run without streams."""
    async with session.turn(prompt) as turn:
        with recorder.recording(turn):
            await made.run(await history(session), middleware=recorder.middleware)


def recorded(tmp_path: Path, made: Agent[Any], *, stream: bool = True) -> list[Any]:
    """Run it; the results in order, and how the turn ended."""

    async def main() -> list[Any]:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session(id="s")
            await (run if stream else run_whole)(session, made, PROMPT)
            assert await store.examine_session(session.id) == []
            kept = results(await session.messages())
            return [*kept.values(), *(turn.status for turn in await session.turns())]

    return asyncio.run(main())


@pytest.mark.parametrize("call_id", ["c1", ""])
def test_calls_that_share_an_id_are_told_apart(tmp_path: Path, call_id: str) -> None:
    """Some models number the calls of each kind, or give none an id; the tools run at once."""
    calls = [(call_id, "t1"), (call_id, "t2"), (call_id, "t1")]
    model = Scripted(lambda done: ["Well."] if done else list(calls))
    made = Agent(model, name="agent", tools=[scripted.t1, scripted.t2])
    *kept, status = recorded(tmp_path, made, stream=False)
    assert kept == [(f"result-{n}", False) for n in (1, 2, 1)]
    assert status == "completed"


@pytest.mark.parametrize("stream", [True, False])
def test_a_failing_tool_is_an_error(tmp_path: Path, stream: bool) -> None:
    made = Agent(one_call("breaks"), tools=[breaks])
    [(text, failed), status] = recorded(tmp_path, made, stream=stream)
    assert (failed, status) == (True, "completed")
    assert "no disk" in text


@pytest.mark.parametrize("call_id", ["c1", ""])
def test_bad_arguments_are_an_error(tmp_path: Path, call_id: str) -> None:
    made = Agent(one_call("picks", call_id), tools=[picks])
    [(_, failed), status] = recorded(tmp_path, made)
    assert (failed, status) == (True, "completed")


def test_an_unknown_tool_is_an_error(tmp_path: Path) -> None:
    made = Agent(one_call("nowhere"), tools=[breaks])
    [(text, failed), status] = recorded(tmp_path, made)
    assert (failed, status) == (True, "completed")
    assert "not found" in text


def test_without_streams_an_answer_is_recorded_when_it_is_whole(tmp_path: Path) -> None:
    made = Agent(one_call("t1"), tools=[scripted.t1])
    assert recorded(tmp_path, made, stream=False) == [("result-1", False), "completed"]


def test_what_a_tool_shows_is_kept_and_sent_again(tmp_path: Path) -> None:
    png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x09\0\0\0\x09"

    def shows() -> list[Content]:
        """Show a picture."""
        return [Content.from_text("Look:"), Content.from_data(png, "image/png")]

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            await run(session, Agent(one_call("shows"), tools=[shows]), PROMPT)
            [(shown, _)] = results(await session.messages()).values()
            assert [type(part) for part in shown] == [Text, Image]
            [result] = [
                content
                for message in await history(session)
                for content in message.contents
                if content.type == "function_result"
            ]
            assert [item.type for item in result.items or ()] == ["text", "data"]

    asyncio.run(main())


@pytest.mark.parametrize("approved", [True, False])
def test_a_call_that_waits_for_a_person_is_asked_once_and_goes_on(
    tmp_path: Path, approved: bool
) -> None:
    made = Agent(one_call("careful"), tools=[careful])

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session(id="s")
            theirs = made.create_session()
            async with session.turn(PROMPT) as turn:
                with recorder.recording(turn):
                    response = await made.run(
                        PROMPT, session=theirs, middleware=recorder.middleware
                    )
                    assert await recorder.pause(response)
            [first] = await session.turns()
            assert first.status == "interrupted"
            [asked] = await session.approvals()
            assert asked.call_id == "c1"
            answers = [
                request.to_function_approval_response(approved)
                for request in response.user_input_requests
            ]
            async with session.turn(continues=first.id) as again:
                with recorder.recording(again, of=first.id):
                    await made.run(
                        Message("user", answers), session=theirs, middleware=recorder.middleware
                    )
            assert await session.approvals() == []
            [said] = told(await history(session))
            if approved:
                assert said == "done with care"
            else:
                assert "denied" in said or "refused" in said
            assert (await session.messages())[-1].text == "Well. "

    asyncio.run(main())


def test_the_agent_does_the_same(tmp_path: Path) -> None:
    """Updates, in their order and with their content, are as without."""

    def made() -> Agent[Any]:
        return Agent(one_call("t1"), name="agent", tools=[scripted.t1])

    async def updates(running: Any) -> list[Any]:
        return [
            [content.to_dict(exclude={"id"}) for content in update.contents]
            async for update in running
        ]

    async def main() -> None:
        expected = await updates(made().run(PROMPT, stream=True))
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn(PROMPT) as turn:
                own = Recorder()
                with own.recording(turn):
                    running = made().run(PROMPT, stream=True, middleware=own.middleware)
                    assert await updates(running) == expected

    asyncio.run(main())


@pytest.mark.parametrize("stream", [True, False])
def test_a_store_that_fails_raises_into_the_run(tmp_path: Path, stream: bool) -> None:
    opened: list[AsyncStore] = []

    async def unplug() -> str:
        """Close the store."""
        await opened[0].close()
        return "gone"

    made = Agent(one_call("unplug"), tools=[unplug])

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            opened.append(store)
            session = await store.create_session()
            asking = run if stream else run_whole
            with pytest.raises(MiddlewareFailure) as raised:
                await asking(session, made, PROMPT)
            assert isinstance(raised.value.__cause__, KillickError)

    asyncio.run(main())
