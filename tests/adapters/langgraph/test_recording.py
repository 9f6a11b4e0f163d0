"""A run of LangChain's agents, recorded, and what the next one is sent."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain", reason="langchain is not installed here: make adapters")

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.types import Command

from killick import AsyncStore, Store
from killick.adapters.langchain import (
    BlockingRecorder,
    Recorder,
    blocking_history,
    history,
)
from killick.adapters.langgraph import KillickSaver
from killick.errors import KillickError
from killick.model import entries as e
from killick.model.messages import ToolResult
from tests.adapters import interrupting
from tests.adapters.langgraph import scripted
from tests.adapters.langgraph.scripted import PROMPT, Scripted, run

SCRIPTED = "tests.adapters.langgraph.scripted"


def results(messages: list[Any]) -> dict[str, tuple[Any, bool]]:
    parts = [part for message in messages for part in message.parts]
    return {
        part.call_id: (part.content, part.is_error)
        for part in parts
        if isinstance(part, ToolResult)
    }


def told(messages: list[Any]) -> dict[str, str]:
    return {one.tool_call_id: one.content for one in messages if one.type == "tool"}


def shown(messages: list[Any]) -> str:
    return "\n".join(str(one.content) for one in messages)


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

                script = scripted.SCENARIOS[scenario]
                await interrupting.cancel_in_the_middle(
                    run(store, session, script, PROMPT), is_middle
                )
            model = Scripted(script=lambda _: ["Yes."], asked=[])
            await run(store, await store.session("s"), model, "PROMPT-2")
            return model.asked

    asked = asyncio.run(main())
    outputs = told(asked)
    calls = [call["id"] for one in asked for call in getattr(one, "tool_calls", ())]
    assert sorted(calls) == sorted(outputs)
    assert (outputs["c1"], outputs["c2"]) == ("result-1", "result-2")
    assert PROMPT in shown(asked)
    assert "interrupted" in shown(asked)
    if scenario == "text":
        assert "word8 " in shown(asked)
    else:
        assert "unknown" in outputs["c3"]


def test_an_agent_inside_of_a_tool_has_a_session_of_its_own(tmp_path: Path) -> None:
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
        assert "unknown" in told(blocking_history(store.session("s")))["s1"]


@tool
def picks(number: int) -> str:
    """Pick one."""
    return str(number)


@tool
def breaks() -> str:
    """Breaks."""
    raise ValueError("no disk")


@tool
def careful() -> str:
    """Takes care."""
    return "done with care"


def one_call(name: str) -> Scripted:
    return Scripted(script=lambda done: ["Well."] if done else [("c1", name)], asked=[])


def test_a_failing_tool_is_an_error_and_fails_the_run(tmp_path: Path) -> None:
    with Store(tmp_path / "w.db") as store:
        session = store.create_session()
        agent = create_agent(one_call("breaks"), [breaks])
        with pytest.raises(ValueError, match="no disk"), session.turn(PROMPT) as turn:
            agent.invoke(
                {"messages": blocking_history(session)}, {"callbacks": [BlockingRecorder(turn)]}
            )
        [(content, failed)] = results(session.messages()).values()
        assert failed
        assert "no disk" in content


@pytest.mark.parametrize("call_id", ["c1", ""])
def test_calls_that_share_an_id_are_told_apart(tmp_path: Path, call_id: str) -> None:
    """Some models number the calls of each kind, or give none an id; the tools run at once."""
    calls = [(call_id, "t1"), (call_id, "t2"), (call_id, "t1")]

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            model = Scripted(script=lambda done: ["Well."] if done else list(calls), asked=[])
            agent = create_agent(model, [scripted.t1, scripted.t2])
            async with session.turn(PROMPT) as turn:
                said = {"messages": await history(session)}
                await agent.ainvoke(said, {"callbacks": [Recorder(turn)]})
            kept = results(await session.messages()).values()
            assert list(kept) == [(f"result-{n}", False) for n in (1, 2, 1)]

    asyncio.run(main())


def test_bad_arguments_are_an_error(tmp_path: Path) -> None:
    with Store(tmp_path / "w.db") as store:
        session = store.create_session()
        with session.turn(PROMPT) as turn:
            create_agent(one_call("picks"), [picks]).invoke(
                {"messages": blocking_history(session)}, {"callbacks": [BlockingRecorder(turn)]}
            )
        [(content, failed)] = results(session.messages()).values()
        assert failed
        assert "number" in content
        assert [one.status for one in session.turns()] == ["completed"]


@pytest.mark.parametrize("streaming", [False, True])
def test_an_unknown_tool_is_told_as_an_error_and_streams_are_asked_for(
    tmp_path: Path, streaming: bool
) -> None:
    """Nothing streams unless it is asked to: then there are deltas."""

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            agent = create_agent(one_call("nowhere"), [breaks])
            async with session.turn(PROMPT) as turn:
                recorder = Recorder(turn, streaming=streaming)
                seen: list[bool] = []
                adds = recorder.on_llm_new_token

                async def new_token(*args: Any, **named: Any) -> None:
                    seen.append(True)
                    await adds(*args, **named)

                recorder.on_llm_new_token = new_token  # type: ignore[method-assign]
                await agent.ainvoke({"messages": await history(session)}, {"callbacks": [recorder]})
            assert bool(seen) is streaming
            [(content, failed)] = results(await session.messages()).values()
            assert failed
            assert "nowhere" in content

    asyncio.run(main())


def test_the_agent_does_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        plain = create_agent(one_call("careful"), [careful])
        expected = await plain.ainvoke({"messages": [HumanMessage(PROMPT)]})
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn(PROMPT) as turn:
                agent = create_agent(one_call("careful"), [careful])
                made = await agent.ainvoke(
                    {"messages": [HumanMessage(PROMPT)]}, {"callbacks": [Recorder(turn)]}
                )
            assert [(one.type, one.content) for one in made["messages"]] == [
                (one.type, one.content) for one in expected["messages"]
            ]

    asyncio.run(main())


@pytest.mark.parametrize("approved", [True, False])
def test_a_run_that_waits_for_a_person_goes_on_in_another_turn(
    tmp_path: Path, approved: bool
) -> None:
    def agent(store: AsyncStore) -> Any:
        return create_agent(
            one_call("careful"),
            [careful],
            checkpointer=KillickSaver(store),
            middleware=[HumanInTheLoopMiddleware(interrupt_on={"careful": True})],
        )

    config: dict[str, Any] = {"configurable": {"thread_id": "s"}}

    async def ask() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session(id="s")
            async with session.turn(PROMPT) as turn:
                recorder = Recorder(turn)
                result = await agent(store).ainvoke(
                    {"messages": [HumanMessage(PROMPT)]}, {**config, "callbacks": [recorder]}
                )
                assert await recorder.pause(result)
            [ended] = await session.turns()
            assert ended.status == "interrupted"

    async def go_on() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.session("s")
            [asked] = await session.approvals()
            await session.decide_approval(asked, approved=approved, by="ann")
            decision: dict[str, Any] = {"type": "approve"} if approved else {"type": "reject"}
            [before] = await session.turns()
            async with session.turn(continues=before.id) as turn:
                await agent(store).ainvoke(
                    Command(resume={"decisions": [decision]}),
                    {**config, "callbacks": [Recorder(turn, of=before.id)]},
                )
            said = told(await history(session))["c1"]
            assert said == "done with care" if approved else "denied" in said
            assert (await session.messages())[-1].text == "Well."

    for step in (ask, go_on):
        asyncio.run(step())


def test_a_repeated_request_is_a_retry(tmp_path: Path) -> None:
    tries: list[int] = []

    def script(_: int) -> list[Any]:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("gone")
        return ["Yes."]

    with Store(tmp_path / "w.db") as store:
        session = store.create_session()
        model = Scripted(script=script, asked=[]).with_retry(stop_after_attempt=2)
        with session.turn(PROMPT) as turn:
            recorder = BlockingRecorder(turn)
            model.invoke(blocking_history(session), {"callbacks": [recorder]})
        calls = [one.body for one in session.entries() if isinstance(one.body, e.ModelCallStarted)]
        assert [call.attempt for call in calls] == [1, 2]
        assert calls[1].retry_of == calls[0].id


def test_a_store_that_fails_raises_into_the_run(tmp_path: Path) -> None:
    opened: list[AsyncStore] = []

    @tool
    async def unplug() -> str:
        """Closes the store."""
        await opened[0].close()
        return "gone"

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            opened.append(store)
            session = await store.create_session()
            agent = create_agent(one_call("unplug"), [unplug])
            with pytest.raises(KillickError):
                async with session.turn(PROMPT) as turn:
                    await agent.ainvoke(
                        {"messages": [HumanMessage(PROMPT)]}, {"callbacks": [Recorder(turn)]}
                    )

    asyncio.run(main())
