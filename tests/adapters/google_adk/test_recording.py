"""A run of the ADK, recorded, and what the next one is sent."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="google-adk is not installed here: make adapters")

from google.adk.agents import BaseAgent, LlmAgent, ParallelAgent
from google.adk.apps import App
from google.adk.models import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool
from google.genai import types

from killick import AsyncSession, AsyncStore, Store
from killick.adapters.google_adk import KillickSessionService, Recorder, history
from killick.errors import KillickError
from killick.model.messages import ToolResult
from tests.adapters import interrupting
from tests.adapters.google_adk import scripted
from tests.adapters.google_adk.scripted import PLACE, PROMPT, Scripted, agent, run

SCRIPTED = "tests.adapters.google_adk.scripted"


def results(messages: list[Any]) -> dict[str, tuple[Any, bool]]:
    parts = [part for message in messages for part in message.parts]
    return {
        part.call_id: (part.content, part.is_error)
        for part in parts
        if isinstance(part, ToolResult)
    }


def responses(contents: list[Any]) -> list[str]:
    """What the model is told of its calls, in their order."""
    parts = [part for content in contents for part in content.parts or ()]
    return [
        " ".join(str(value) for value in part.function_response.response.values())
        for part in parts
        if part.function_response is not None
    ]


def words(contents: list[Any]) -> str:
    return "\n".join(part.text for one in contents for part in one.parts or () if part.text)


async def next_request(session: AsyncSession) -> list[Any]:
    """What the model of a second turn is sent."""
    model = Scripted(lambda _: ["Yes."])
    await run(session, LlmAgent(name="agent", model=model), "PROMPT-2")
    return model.asked


@pytest.mark.parametrize("scenario", ["par", "noid", "seq", "text"])
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
    told = responses(asked)
    assert told[:2] == ["result-1", "result-2"]
    assert words(asked).startswith(PROMPT)
    assert "interrupted" in words(asked)
    if scenario == "text":
        assert "word8 " in words(asked)
    else:
        assert "unknown" in told[2]


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
        [told] = store.session("s").context("openai-chat").messages[2:3]
        assert "unknown" in told["content"]


def one_call(name: str, call_id: str | None = "c1") -> Scripted:
    return Scripted(lambda done: ["Well."] if done else [(call_id, name)])


def breaks() -> str:
    """Fail."""
    raise ValueError("no disk")


def picks(number: int) -> str:
    """Pick one."""
    return str(number)


def recorded(tmp_path: Path, made: BaseAgent) -> tuple[dict[str, tuple[Any, bool]], list[Any]]:
    """Run it; results by call, and how the turns ended."""

    async def main() -> tuple[dict[str, tuple[Any, bool]], list[Any]]:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session(id="s")
            with contextlib.suppress(ValueError):
                await run(session, made, PROMPT)
            assert await store.examine_session(session.id) == []
            turns = [turn.status for turn in await session.turns()]
            return results(await session.messages()), turns

    return asyncio.run(main())


def test_a_failing_tool_is_an_error(tmp_path: Path) -> None:
    made = LlmAgent(name="agent", model=one_call("breaks"), tools=[breaks])
    told, turns = recorded(tmp_path, made)
    assert [(is_error, turns) for _, is_error in told.values()] == [(True, ["failed"])]
    assert "no disk" in told["c1"][0]


def test_bad_arguments_are_an_error(tmp_path: Path) -> None:
    made = LlmAgent(name="agent", model=one_call("picks"), tools=[picks])
    told, turns = recorded(tmp_path, made)
    assert told["c1"][1]
    assert "number" in told["c1"][0]
    assert turns == ["completed"]


def test_an_unknown_tool_is_an_error(tmp_path: Path) -> None:
    made = LlmAgent(name="agent", model=one_call("nowhere"), tools=[breaks])
    told, turns = recorded(tmp_path, made)
    assert told["c1"][1]
    assert "no tool with that name" in told["c1"][0]
    assert turns == ["completed"]


@pytest.mark.parametrize("call_id", ["c1", None])
def test_calls_that_share_an_id_are_told_apart(tmp_path: Path, call_id: str | None) -> None:
    """Some models number the calls of each kind, or give none an id; the tools run at once."""
    calls: list[scripted.Said] = [(call_id, "t1"), (call_id, "t2"), (call_id, "t1")]
    model = Scripted(lambda done: ["Well."] if done else calls)
    made = LlmAgent(name="agent", model=model, tools=[scripted.t1, scripted.t2])
    told, turns = recorded(tmp_path, made)
    assert list(told.values()) == [(f"result-{n}", False) for n in (1, 2, 1)]
    assert turns == ["completed"]


def test_a_call_that_a_callback_made_is_recorded(tmp_path: Path) -> None:
    def replace(callback_context: Any, llm_response: Any) -> Any:
        if llm_response.partial or words([llm_response.content]):
            return None
        call = types.FunctionCall(id="other", name="t1", args={})
        content = types.Content(role="model", parts=[types.Part(function_call=call)])
        return llm_response.model_copy(update={"content": content})

    made = LlmAgent(
        name="agent", model=one_call("t2"), tools=[scripted.t1], after_model_callback=replace
    )
    told, _ = recorded(tmp_path, made)
    assert told == {"other": ("result-1", False)}


@pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated")
def test_agents_side_by_side_may_use_one_id_at_once(tmp_path: Path) -> None:
    both = [
        LlmAgent(name=name, model=one_call(tool.__name__), tools=[tool])
        for name, tool in (("first", scripted.t1), ("second", scripted.t2))
    ]
    told, turns = recorded(tmp_path, ParallelAgent(name="both", sub_agents=both))
    assert turns == ["completed"]
    assert sorted(text for text, _ in told.values()) == ["result-1", "result-2"]


@pytest.mark.parametrize("mode", ["single_turn", "chat"])
def test_an_agent_below_another_is_recorded_where_it_runs(tmp_path: Path, mode: str) -> None:
    """One that is asked as a tool has a session of its own; one that takes over has not."""
    before = 0 if mode == "single_turn" else 1  # the response to the transfer
    inner_model = Scripted(lambda done: ["Well."] if done > before else [("c1", "t1")])
    helper = LlmAgent(
        name="helper", mode=mode, description="Helps.", model=inner_model, tools=[scripted.t1]
    )
    asking = Scripted(lambda done: ["Good."] if done else [("s1", "helper")])
    handing = types.FunctionCall(id="s1", name="transfer_to_agent", args={"agent_name": "helper"})

    class Handing(Scripted):
        async def generate_content_async(self, *_: Any, **__: Any) -> Any:
            part = types.Part(function_call=handing)
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    model = asking if mode == "single_turn" else Handing(lambda _: [])
    told, turns = recorded(tmp_path, LlmAgent(name="agent", model=model, sub_agents=[helper]))
    assert turns == ["completed"]
    with Store(tmp_path / "w.db") as store:
        children = store.sessions(type="subagent")
        if mode == "chat":
            assert children == []
            assert told["c1"] == ("result-1", False)
        else:
            [child] = children
            inner = store.session(child.id)
            assert results(inner.messages()) == {"c1": ("result-1", False)}
            assert [turn.status for turn in inner.turns()] == ["completed"]
            assert "Well." in told["s1"][0]


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_call_that_waits_for_a_person_is_asked_once_and_goes_on(
    tmp_path: Path, confirmed: bool
) -> None:
    made = LlmAgent(
        name="agent",
        model=one_call("t1"),
        tools=[FunctionTool(scripted.t1, require_confirmation=True)],
    )

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            service = KillickSessionService(store)
            session = await service.journal(**PLACE, session_id="s")
            heard = await run(session, made, PROMPT, service)
            [turn] = await session.turns()
            assert turn.status == "interrupted"
            [asked] = await session.approvals()
            assert asked.call_id == "c1"
            [waiting] = [
                call
                for event in heard
                for call in event.get_function_calls()
                if call.name == "adk_request_confirmation"
            ]
            answer = types.FunctionResponse(
                id=waiting.id, name=waiting.name, response={"confirmed": confirmed}
            )
            message = types.Content(role="user", parts=[types.Part(function_response=answer)])
            recorder = Recorder()
            async with session.turn(continues=turn.id) as again:
                with recorder.recording(again, of=turn.id):
                    await scripted.events(made, message, service, [recorder])
            assert await session.approvals() == []
            said = responses(await history(session))
            if confirmed:
                assert said == ["result-1"]
            else:
                assert "denied" in said[0] or "refused" in said[0]
            assert (await session.messages())[-1].text == "Well. "

    asyncio.run(main())


def test_the_agent_does_the_same(tmp_path: Path) -> None:
    """Events, in their order and with their content, are as without."""

    def made(call_id: str | None) -> LlmAgent:
        return LlmAgent(name="agent", model=one_call("t1", call_id), tools=[scripted.t1])

    def shape(events: list[Any]) -> list[Any]:
        kept = {"author", "partial", "content"}
        return [event.model_dump(include=kept, exclude_none=True) for event in events]

    async def main() -> None:
        expected = shape(await scripted.events(made("c1"), PROMPT))
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            assert shape(await run(session, made("c1"), PROMPT)) == expected
            heard = await run(await store.create_session(), made(None), PROMPT)
            [call] = [one for event in heard for one in event.get_function_calls()]
            assert str(call.id).startswith("adk-")

    asyncio.run(main())


def test_without_streams_an_answer_is_recorded_when_it_is_whole(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            recorder = Recorder()
            made = LlmAgent(name="agent", model=one_call("t1"), tools=[scripted.t1])
            runner = InMemoryRunner(app=App(name="app", root_agent=made, plugins=[recorder]))
            async with session.turn(PROMPT) as turn:
                with recorder.recording(turn):
                    await runner.run_debug(PROMPT, quiet=True)
            assert [one.text for one in await session.messages() if one.role == "assistant"] == [
                "",
                "Well. ",
            ]

    asyncio.run(main())


def test_a_store_that_fails_raises_into_the_run(tmp_path: Path) -> None:
    opened: list[AsyncStore] = []

    async def unplug() -> str:
        """Close the store."""
        await opened[0].close()
        return "gone"

    made = LlmAgent(name="agent", model=one_call("unplug"), tools=[unplug])

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            opened.append(store)
            session = await store.create_session()
            with pytest.raises(RuntimeError) as raised:
                await run(session, made, PROMPT)
            assert isinstance(raised.value.__cause__, KillickError)

    asyncio.run(main())
