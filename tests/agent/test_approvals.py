"""A call that a person must be asked about: decided in the journal, run exactly as approved."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from killick import (
    AsyncSession,
    AsyncStore,
    AsyncTurn,
    CallNotFound,
    InvalidEntry,
    Message,
    ToolAlreadyStarted,
)
from killick.agent import Agent, Workspace, pending_approvals
from killick.agent.approvals import allow_always, allowances, ask_again, decide_allowed
from killick.model import entries as e
from killick.model.messages import ToolCall, ToolResult

ARGUMENTS = '{"path": "a.txt",  "content": "approved"}'


async def writing(
    messages: list[ModelMessage], _: AgentInfo
) -> AsyncIterator[str | DeltaToolCalls]:
    """A model that writes a file, and then says what it was told about it."""
    told = [
        part.model_response_str()
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    if told:
        yield f"I was told: {told[-1]}"
    else:
        yield {0: DeltaToolCall(name="write_file", json_args=ARGUMENTS, tool_call_id="c1")}


def agent(root: Path, *, allowed: tuple[str, ...] = ()) -> Agent:
    model = FunctionModel(stream_function=writing)
    return Agent(model, tools=Workspace(root).tools(), allowed=allowed)


async def answer(made: Agent, session: AsyncSession, *, continues: str | None = None) -> None:
    prompt = None if continues else "Write it."
    async with session.turn(prompt, continues=continues) as turn:
        await made.answer(session, turn)


async def asked(session: AsyncSession) -> None:
    async for item in session.follow():
        if isinstance(item, e.Entry) and isinstance(item.body, e.ApprovalAsked):
            return


def kinds(entries: list[e.Entry]) -> list[str]:
    wanted = ("approval_asked", "approval_decided", "tool_started", "tool_result", "late_result")
    return [entry.kind for entry in entries if entry.kind in wanted]


async def said(session: AsyncSession) -> str:
    return (await session.messages())[-1].text


@pytest.mark.parametrize("approved", [True, False])
def test_a_decision_from_anywhere(tmp_path: Path, approved: bool) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store, AsyncStore(tmp_path / "w.db") as other:
            session = await store.create_session()
            task = asyncio.create_task(answer(agent(tmp_path), session))
            elsewhere = await other.session(session.id)
            await asked(elsewhere)
            (pending,) = await pending_approvals(elsewhere)
            assert pending.call.arguments == ARGUMENTS
            assert not (tmp_path / "a.txt").exists()
            await elsewhere.decide_approval(pending.asked, approved=approved, reason="not now")
            await task
            assert (tmp_path / "a.txt").exists() is approved
            assert ("not now" in await said(session)) is not approved
            started = ["tool_started", "tool_result"] if approved else []
            assert kinds(await session.entries()) == [
                "approval_asked",
                "approval_decided",
                *started,
            ]
            assert await pending_approvals(session) == []

    asyncio.run(main())


def test_what_is_allowed_is_not_asked_about(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            await answer(agent(tmp_path, allowed=("write_file",)), session)
            assert kinds(await session.entries()) == ["tool_started", "tool_result"]

    asyncio.run(main())


def test_a_turn_that_waits_when_its_process_ends(tmp_path: Path) -> None:
    """It says what it waited for; the call runs in a turn that continues it, once."""

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            task = asyncio.create_task(answer(agent(tmp_path), session))
            await asked(session)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.session(session.id)
            (first,) = await session.turns()
            assert (first.status, first.reason) == ("interrupted", "awaiting_approval")
            (pending,) = await pending_approvals(session)
            await session.decide_approval(pending.asked, approved=True)
            await answer(agent(tmp_path), session, continues=first.id)
            assert (tmp_path / "a.txt").read_text("utf-8") == "approved"
            assert kinds(await session.entries()) == [
                "approval_asked",
                "approval_decided",
                "tool_started",
                "late_result",
            ]
            assert await said(session) == "I was told: Wrote 8 characters to a.txt."
            context = (await session.context("neutral")).messages
            assert [m["role"] for m in context][:3] == ["user", "assistant", "tool"]
            (tmp_path / "a.txt").unlink()
            await answer(agent(tmp_path), session, continues=first.id)
            assert not (tmp_path / "a.txt").exists(), "it ran a second time"

    asyncio.run(main())


def test_a_call_of_another_turn_is_started_only_by_one_that_continues_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            first = await interrupted(session)
            async with session.turn("Go on.") as turn:
                with pytest.raises(InvalidEntry, match="continues that one"):
                    await enter(turn, "c1", first)
            async with session.turn(None, continues=first) as turn:
                with pytest.raises(CallNotFound):
                    await enter(turn, "c9", first)
                async with turn.tool("c1", of=first) as tool:
                    await tool.finish("done")
                with pytest.raises(ToolAlreadyStarted):
                    await enter(turn, "c1", first)
            assert await store.examine_session(session.id) == []
            results = [m.parts[0] for m in await session.messages() if m.role == "tool"]
            assert results == [ToolResult("c1", "done")]

    asyncio.run(main())


def test_interrupted_while_it_runs_its_outcome_is_unknown(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            first = await interrupted(session)
            with pytest.raises(asyncio.CancelledError):
                async with session.turn(None, continues=first) as turn, turn.tool("c1", of=first):
                    raise asyncio.CancelledError
            told = [m for m in (await session.context("neutral")).messages if m["role"] == "tool"]
            assert "unknown" in told[0]["parts"][0]["content"]

    asyncio.run(main())


async def interrupted(session: AsyncSession) -> str:
    """A turn that has made a call and did not live to start it."""
    with contextlib.suppress(asyncio.CancelledError):
        async with session.turn("Write it.") as turn:
            await turn.record(Message("assistant", [ToolCall("c1", "write_file", ARGUMENTS)]))
            raise asyncio.CancelledError
    return turn.id


async def enter(turn: AsyncTurn, call_id: str, of: str) -> None:
    async with turn.tool(call_id, of=of):
        raise AssertionError("it was started")


async def wait_for_question(session: AsyncSession, turn: AsyncTurn, arguments: str) -> None:
    async with turn.stream() as reply:
        reply.tool_call("c1", name="shell", arguments=arguments)
    await turn.ask_approval("c1", arguments)


def test_an_allowance_is_for_one_session_one_tool_and_one_set_of_arguments(tmp_path: Path) -> None:
    """It outlives the process that made it, can be taken back, and is not a fork's."""

    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn("go") as turn:
                await wait_for_question(session, turn, "{}")
                (pending,) = await decide_allowed(session)
                await allow_always(session, pending, "ann")
                await allow_always(session, pending, "ann")
                assert await decide_allowed(session) == []
            (decided,) = [
                entry.body
                for entry in await session.entries()
                if isinstance(entry.body, e.ApprovalDecided)
            ]
            assert (decided.approved, decided.by) == (True, "always")
            fork = await session.fork()
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.session(session.id)
            (allowed,) = await allowances(session)
            assert (allowed.tool, allowed.arguments, allowed.by) == ("shell", "{}", "ann")
            async with session.turn("go") as turn:
                await wait_for_question(session, turn, "{}")
                assert await decide_allowed(session) == []
            async with session.turn("go") as turn:
                await wait_for_question(session, turn, '{"x": 1}')
                assert len(await decide_allowed(session)) == 1
            fork = await store.session(fork.id)
            assert await allowances(fork) == []
            async with fork.turn("go") as turn:
                await wait_for_question(fork, turn, "{}")
                assert len(await decide_allowed(fork)) == 1
            assert await ask_again(session, "shell", allowed.arguments_hash)
            assert not await ask_again(session, "shell", allowed.arguments_hash)
            assert await allowances(session) == []
            async with session.turn("go") as turn:
                await wait_for_question(session, turn, "{}")
                (pending,) = await decide_allowed(session)
                await allow_always(session, pending)
                assert await decide_allowed(session) == []

    asyncio.run(main())


def test_a_question_that_its_turn_did_not_outlive_is_left_to_a_person(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            with contextlib.suppress(asyncio.CancelledError):
                async with session.turn("go") as turn:
                    await wait_for_question(session, turn, "{}")
                    raise asyncio.CancelledError
            (pending,) = await pending_approvals(session)
            await allow_always(session, pending)
            assert len(await decide_allowed(session)) == 1

    asyncio.run(main())
