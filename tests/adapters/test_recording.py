"""What is a retry and what is not, and calls that put themselves off."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from holdfast import AsyncSession, AsyncStore
from holdfast.adapters.pydantic_ai import Approvals, Recorder, history
from holdfast.model import entries as e
from holdfast.model.parts import ToolResult
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
                    capabilities=[Recorder(turn, streaming=False)],
                )
            calls = [
                one.body
                for one in await session.entries()
                if isinstance(one.body, e.ModelCallStarted)
            ]
            assert [(call.attempt, call.retry_of) for call in calls] == [(1, None), (1, None)]

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
                recorder = Recorder(turn)
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
