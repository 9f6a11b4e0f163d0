"""What is a retry and what is not, and calls that put themselves off."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, ToolOutput
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from killick import AsyncSession, AsyncStore
from killick.adapters.pydantic_ai import Approvals, Recorder, history
from killick.model import entries as e
from killick.model.messages import Image, Text, ToolResult
from tests.adapters.scripted import answered


def test_without_streams_each_request_is_its_own(tmp_path: Path) -> None:
    """The request after a tool's result repeats nothing."""

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if answered(messages):
            return ModelResponse(parts=[TextPart("Done.")])
        return ModelResponse(parts=[ToolCallPart("look", "{}", "c1")])

    agent = Agent(FunctionModel(model))

    @agent.tool_plain
    def look() -> str:
        return "seen"

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn("Look.") as turn:
                await agent.run(
                    message_history=await history(session),
                    capabilities=[Recorder(turn)],
                )
            calls = [
                one.body
                for one in await session.entries()
                if isinstance(one.body, e.ModelCallStarted)
            ]
            assert [(call.attempt, call.retry_of) for call in calls] == [(1, None), (1, None)]

    asyncio.run(main())


@pytest.mark.parametrize("streaming", [False, True])
def test_a_run_streams_only_if_told_and_all_results_are_recorded(
    tmp_path: Path, streaming: bool
) -> None:
    """Those of no tool too: an unknown tool, bad arguments, the final answer's."""
    asked: list[str] = []
    calls = [
        ToolCallPart("nowhere", "{}", "unknown"),
        ToolCallPart("count", '{"number": "many"}', "bad"),
        ToolCallPart("count", '{"number": 1}', "good"),
        ToolCallPart("count", '{"number": 0}', "failed"),
    ]
    last = ToolCallPart("final_result", '{"number": 7}', "final")

    def next_calls(messages: list[ModelMessage]) -> list[ToolCallPart]:
        return [last] if len(messages) > 1 else calls

    def whole(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        asked.append("whole")
        return ModelResponse(parts=next_calls(messages))

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[DeltaToolCalls]:
        asked.append("stream")
        for index, call in enumerate(next_calls(messages)):
            delta = DeltaToolCall(call.tool_name, str(call.args), tool_call_id=call.tool_call_id)
            yield {index: delta}

    agent = Agent(
        FunctionModel(whole, stream_function=stream),
        output_type=ToolOutput(Number, name="final_result"),
    )

    @agent.tool_plain(retries=2)
    def count(number: int) -> int:
        if not number:
            raise ModelRetry("More than none.")
        return number

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn("Count.") as turn:
                recorder = Recorder(turn, streaming=True) if streaming else Recorder(turn)
                await agent.run(message_history=await history(session), capabilities=[recorder])
            results = [m.parts[0] for m in await session.messages() if m.role == "tool"]
            found = {one.call_id: one.is_error for one in results if isinstance(one, ToolResult)}
            errors = {"unknown": True, "bad": True, "failed": True}
            assert found == {**errors, "good": False, "final": False}
            assert len(results) == 5
            assert (await session.context("anthropic")).repairs == []

    asyncio.run(main())
    assert set(asked) == {"stream" if streaming else "whole"}


class Number(BaseModel):
    number: int


def test_an_agent_inside_of_a_tool_is_a_session_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn("Look.") as turn:
                recorder = Recorder(turn, streaming=True)
                inner = Agent(FunctionModel(stream_function=one_look))
                outer = Agent(FunctionModel(stream_function=one_look))

                @inner.tool_plain
                def look() -> str:
                    return "seen"

                async def ask(ctx: RunContext[object]) -> str:
                    async with recorder.subagent(ctx.tool_call_id, "Help me.") as inside:
                        return (await inner.run("Help me.", capabilities=[inside])).output

                outer.tool(name="look")(ask)
                await outer.run(message_history=await history(session), capabilities=[recorder])
            (child,) = await store.sessions(parent=session.id)
            assert (child.type, child.extra) == ("subagent", {"call_id": "c1"})
            inside = await store.session(child.id)
            roles = [message.role for message in await inside.messages()]
            assert roles == ["user", "assistant", "tool", "assistant"]
            assert [one.status for one in await inside.turns()] == ["completed"]
            assert roles == [message.role for message in await session.messages()]

    asyncio.run(main())


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x09\0\0\0\x09"
PICTURE = BinaryContent(PNG, media_type="image/png")


async def one_look(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
    if answered(messages):
        yield "Well."
    else:
        yield {0: DeltaToolCall(name="look", json_args="{}", tool_call_id="c1")}


@pytest.mark.parametrize(
    ("given", "kinds", "told"),
    [
        (PICTURE, [Image], PICTURE),
        (["a", PICTURE], [Text, Image], ["a", PICTURE]),
        (ToolReturn("a", content=["b", PICTURE]), [Text, Text, Image], ["a", "b", PICTURE]),
        (ToolReturn("a", content="b"), [Text, Text], ["a", "b"]),
        (ImageUrl("https://kelp.test/a.png"), [Text], "https://kelp.test/a.png"),
    ],
    ids=["image", "list", "beside", "words-beside", "address"],
)
def test_what_a_tool_shows_is_kept_and_sent_again(
    tmp_path: Path, given: Any, kinds: list[type], told: Any
) -> None:
    agent = Agent(FunctionModel(stream_function=one_look))

    @agent.tool_plain
    def look() -> Any:
        return given

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn("Look.") as turn:
                await agent.run(
                    message_history=await history(session),
                    capabilities=[Recorder(turn, streaming=True)],
                )
            [result] = (await session.messages())[2].parts
            assert isinstance(result, ToolResult)
            assert [type(part) for part in result.content] == kinds
            for part in result.content:
                if isinstance(part, Image):
                    assert await store.blob(part.blob) == PNG
            [sent] = (await history(session))[2].parts
            assert isinstance(sent, ToolReturnPart)
            assert sent.content == told

    asyncio.run(main())


def test_a_tool_that_is_cancelled_as_it_shows_something_has_its_outcome(tmp_path: Path) -> None:
    agent = Agent(FunctionModel(stream_function=one_look))

    @agent.tool_plain
    async def look() -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return ToolReturn("seen", content=[PICTURE])

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            with contextlib.suppress(asyncio.CancelledError):
                async with session.turn("Look.") as turn:
                    await agent.run(
                        message_history=await history(session),
                        capabilities=[Recorder(turn, streaming=True)],
                    )
            [result] = (await session.messages())[2].parts
            assert isinstance(result, ToolResult)
            assert result.content == "seen"

    asyncio.run(main())


@pytest.mark.parametrize("approved", [True, False])
def test_a_call_that_asks_to_be_approved_itself(tmp_path: Path, approved: bool) -> None:
    """It has started, so it needs a result, also if the person refuses."""

    async def model(
        messages: list[ModelMessage], _: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        if answered(messages):
            yield "Well."
        else:
            yield {0: DeltaToolCall(name="deploy", json_args="{}", tool_call_id="c1")}

    agent = Agent(FunctionModel(stream_function=model))

    @agent.tool
    def deploy(ctx: RunContext[object]) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return "deployed"

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            deciding = asyncio.create_task(decide(session, approved=approved))
            async with session.turn("Deploy.") as turn:
                recorder = Recorder(turn, streaming=True)
                await agent.run(
                    message_history=await history(session),
                    capabilities=[recorder, Approvals(session, recorder)],
                )
            await deciding
            results = [m.parts[0] for m in await session.messages() if m.role == "tool"]
            expected = ("deployed", False) if approved else ("not today", True)
            assert [
                (one.content, one.is_error) for one in results if isinstance(one, ToolResult)
            ] == [expected]
            assert await store.examine_session(session.id) == []

    asyncio.run(main())


async def decide(session: AsyncSession, *, approved: bool) -> None:
    async for item in session.follow():
        if isinstance(item, e.Entry) and isinstance(item.body, e.ApprovalAsked):
            await session.decide_approval(item.body, approved=approved, reason="not today")
            return
