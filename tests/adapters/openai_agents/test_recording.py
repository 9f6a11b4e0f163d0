"""A run of the SDK, recorded, and what the next one is sent."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed here: make adapters")

from agents import (
    Agent,
    ModelBehaviorError,
    RunConfig,
    RunHooks,
    Runner,
    UserError,
    function_tool,
    set_tracing_disabled,
)

from killick import AsyncSession, AsyncStore, Store
from killick.adapters.openai_agents import Recorder, history, paused
from killick.errors import KillickError
from killick.model.messages import ToolResult
from tests.adapters import interrupting
from tests.adapters.openai_agents import scripted
from tests.adapters.openai_agents.scripted import PROMPT, Scripted, agent, run

SCRIPTED = "tests.adapters.openai_agents.scripted"


@pytest.fixture(autouse=True)
def _no_traces() -> None:
    set_tracing_disabled(True)


def results(messages: list[Any]) -> dict[str, tuple[Any, bool]]:
    parts = [part for message in messages for part in message.parts]
    return {
        part.call_id: (part.content, part.is_error)
        for part in parts
        if isinstance(part, ToolResult)
    }


def outputs(items: list[Any]) -> dict[str, str]:
    return {
        item["call_id"]: item["output"]
        for item in items
        if item.get("type") == "function_call_output"
    }


async def next_request(session: AsyncSession) -> list[Any]:
    """What the model of a second turn is sent."""
    model = Scripted(lambda _: ["Yes."])
    await run(session, Agent(name="agent", model=model), "PROMPT-2")
    return model.asked


@pytest.mark.parametrize("scenario", ["par", "seq", "text"])
@pytest.mark.parametrize("how", ["cancel", "kill"])
def test_nothing_is_missing_in_the_next_request(tmp_path: Path, scenario: str, how: str) -> None:
    store_path = tmp_path / "w.db"
    if how == "kill":
        middle = interrupting.is_in_text if scenario == "text" else interrupting.is_in_tools
        interrupting.kill_in_the_middle(SCRIPTED, store_path, scenario, middle)

    async def main() -> list[Any]:
        async with AsyncStore(store_path) as store:
            if how == "cancel":
                session = await store.create_session(id="s")

                async def is_middle() -> bool:
                    if scenario == "text":
                        return any("word9 " in one.text for one in await session.messages())
                    return await interrupting.in_tools(session)

                await interrupting.cancel_in_the_middle(
                    run(session, agent(scenario), PROMPT), is_middle
                )
            return await next_request(await store.session("s"))

    asked = asyncio.run(main())
    told = outputs(asked)
    assert (told["c1"], told["c2"]) == ("result-1", "result-2")
    assert PROMPT in json.dumps(asked)
    assert "interrupted" in json.dumps(asked)
    if scenario == "text":
        assert "word8 " in json.dumps(asked)
    else:
        assert "unknown" in told["c3"]


def test_an_agent_that_is_a_tool_has_a_session_of_its_own(tmp_path: Path) -> None:
    interrupting.kill_in_the_middle(SCRIPTED, tmp_path / "w.db", "sub", interrupting.is_in_tools)
    with Store(tmp_path / "w.db") as store:
        [child] = store.sessions(type="subagent")
        parent = child.about.parent
        assert parent is not None
        assert (parent.session_id, child.title) == ("s", "helper")
        inner = store.session(child.id)
        assert results(inner.messages()) == {
            "c1": ("result-1", False),
            "c2": ("result-2", False),
        }
        outer = store.session("s").context("openai-responses").messages
        assert "unknown" in outputs(list(outer))["s1"]


@function_tool
def breaks() -> str:
    raise ValueError("no disk")


@function_tool
def picks(number: int) -> str:
    return str(number)


@function_tool(needs_approval=True)
def careful() -> str:
    return "done with care"


def one_call(name: str) -> Scripted:
    return Scripted(lambda done: ["Well."] if done else [("c1", name)])


def test_a_failing_tool_is_an_error(tmp_path: Path) -> None:
    made = Agent(name="agent", model=one_call("breaks"), tools=[breaks])
    with_whole_answers(tmp_path, made, {"c1": True})


def test_bad_arguments_are_an_error(tmp_path: Path) -> None:
    made = Agent(name="agent", model=one_call("picks"), tools=[picks])
    with_whole_answers(tmp_path, made, {"c1": True})


def test_an_unknown_tool_is_an_error_if_the_run_goes_on(tmp_path: Path) -> None:
    made = Agent(name="agent", model=one_call("nowhere"), tools=[breaks])
    config = RunConfig(tool_not_found_behavior="return_error_to_model")
    with_whole_answers(tmp_path, made, {"c1": True}, run_config=config)


def test_a_handoff_has_its_result(tmp_path: Path) -> None:
    other = Agent(name="other", model=Scripted(lambda _: ["Here."]))
    first = Scripted(lambda _: [("c1", "transfer_to_other")])
    made = Agent(name="agent", model=first, handoffs=[other])
    with_whole_answers(tmp_path, made, {"c1": False})


def with_whole_answers(
    tmp_path: Path, made: Agent[Any], errors: dict[str, bool], **given: Any
) -> None:
    """Run without streams; the results are recorded with these marks, once each."""

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn(PROMPT) as turn:
                recorder = Recorder(turn, **given)
                await Runner.run(
                    made, await history(session), hooks=recorder, run_config=recorder.run_config
                )
            found = results(await session.messages())
            assert {name: failed for name, (_, failed) in found.items()} == errors
            assert [one.status for one in await session.turns()] == ["completed"]

    asyncio.run(main())


def test_a_call_of_nothing_fails_the_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            made = Agent(name="agent", model=one_call("nowhere"), tools=[breaks])
            with pytest.raises(ModelBehaviorError):
                await run(session, made, PROMPT)
            [turn] = await session.turns()
            assert turn.status == "failed"
            assert "did not run" in outputs(await history(session))["c1"]

    asyncio.run(main())


@pytest.mark.parametrize("approved", [True, False])
def test_a_run_that_waits_for_a_person_is_kept_and_goes_on(tmp_path: Path, approved: bool) -> None:
    made = Agent(name="agent", model=one_call("careful"), tools=[careful])

    async def ask() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session(id="s")
            async with session.turn(PROMPT) as turn:
                recorder = Recorder(turn)
                result = await Runner.run(
                    made, await history(session), hooks=recorder, run_config=recorder.run_config
                )
                assert await recorder.pause(result)

    async def decide() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.session("s")
            [turn] = await session.turns()
            assert turn.status == "interrupted"
            [asked] = await session.approvals()
            waiting = await paused(session, made)
            assert waiting is not None
            assert waiting.waiting == 1
            await session.decide_approval(asked, approved=approved, by="ann")

    async def go_on() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.session("s")
            found = await paused(session, made)
            assert found is not None
            assert found.waiting == 0
            async with session.turn(continues=found.turn_id) as turn:
                recorder = Recorder(turn, of=found.turn_id)
                await Runner.run(made, found.state, hooks=recorder, run_config=recorder.run_config)
            said = outputs(await history(session))["c1"]
            if approved:
                assert said == "done with care"
            else:
                assert "denied" in said or "refused" in said
            assert (await session.messages())[-1].text == "Well. "
            assert await session.approvals() == []

    for step in (ask, decide, go_on):
        asyncio.run(step())


class Heard(RunHooks[Any]):
    def __init__(self) -> None:
        self.names: list[str] = []

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.names.append(f"start {tool.name}")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.names.append(f"end {tool.name}")

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        self.names.append(f"agent {agent.name}")


def test_the_agent_does_the_same_and_its_hooks_are_called(tmp_path: Path) -> None:
    """Events, final output, the agent that is last and what hooks hear are as without."""

    def made() -> Agent[Any]:
        return Agent(name="agent", model=Scripted(scripted.text_short), tools=[scripted.t1])

    async def events(result: Any) -> list[str]:
        return [
            event.data.type if event.type == "raw_response_event" else event.name
            async for event in result.stream_events()
            if event.type in ("raw_response_event", "run_item_stream_event")
        ]

    async def main() -> None:
        without, plain_hooks = made(), Heard()
        result = Runner.run_streamed(without, PROMPT, hooks=plain_hooks)
        expected = await events(result)
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            recorded, hooks = made(), Heard()
            model, tools = recorded.model, list(recorded.tools)
            async with session.turn(PROMPT) as turn:
                recorder = Recorder(turn, hooks=hooks)
                again = Runner.run_streamed(
                    recorded, PROMPT, hooks=recorder, run_config=recorder.run_config
                )
                assert await events(again) == expected
        assert again.final_output == result.final_output
        assert again.last_agent is recorded
        assert (recorded.model, recorded.tools) == (model, tools)
        assert hooks.names == plain_hooks.names != []

    asyncio.run(main())


def test_a_store_that_fails_raises_into_the_run(tmp_path: Path) -> None:
    @function_tool
    async def unplug() -> str:
        await opened[0].close()
        return "gone"

    opened: list[AsyncStore] = []
    made = Agent(name="agent", model=one_call("unplug"), tools=[unplug])

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            opened.append(store)
            session = await store.create_session()
            with pytest.raises(UserError) as raised:
                await run(session, made, PROMPT)
            assert isinstance(raised.value.__cause__, KillickError)

    asyncio.run(main())
