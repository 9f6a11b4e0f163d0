"""An agent of pydantic-ai is interrupted, and the next turn's model is told all that is true."""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)

from killick import AsyncSession, AsyncStore, Entry
from killick.adapters.pydantic_ai import Recorder, history
from killick.model import entries as e
from killick.views.phrases import outcome
from tests.adapters import scripted

Interrupt = Callable[[Path, AsyncSession, str], Awaitable[str]]


async def in_the_middle(session: AsyncSession, scenario: str) -> None:
    """Until the third tool runs and the others have returned, or enough of the text is stored."""
    text, started, results = "", 0, 0
    async for followed in session.follow():
        if isinstance(followed, Entry):
            started += isinstance(followed.body, e.ToolStarted)
            results += isinstance(followed.body, e.ToolFinished)
        else:
            text += followed.text
        if scenario != "str" and (started, results) == (3, 2):
            return
        if scenario == "str" and text.count("word") > scripted.SHOWN:
            return


async def cancel(path: Path, session: AsyncSession, scenario: str) -> str:
    task = asyncio.create_task(scripted.run(session, scenario))
    await in_the_middle(session, scenario)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return "cancelled"


async def kill(path: Path, session: AsyncSession, scenario: str) -> str:
    command = [sys.executable, "-m", "tests.adapters.scripted", str(path), session.id, scenario]
    process = await asyncio.create_subprocess_exec(*command)
    try:
        await in_the_middle(session, scenario)
    finally:
        process.kill()
        await process.wait()
    return "crashed"


@pytest.mark.crash
@pytest.mark.parametrize("interrupt", [cancel, kill], ids=["cancel", "kill"])
@pytest.mark.parametrize("scenario", list(scripted.SCENARIOS))
def test_nothing_is_lost(tmp_path: Path, scenario: str, interrupt: Interrupt) -> None:
    asked = asyncio.run(interrupted_then_asked(tmp_path / "work.db", scenario, interrupt))

    prompts = texts_of(asked)
    assert prompts[0] == scripted.PROMPT
    assert prompts[-1] == "PROMPT-2"
    assert any("was interrupted before it was complete" in text for text in prompts)
    returned = {part.tool_call_id: part.content for part in returns_of(asked)}
    assert (returned["c1"], returned["c2"]) == ("result-1", "result-2")
    if scenario == "str":
        assert set(returned) == {"c1", "c2"}
        partial = [p.content for p in scripted.answers(asked)[-1].parts if isinstance(p, TextPart)]
        assert partial[0].startswith("".join(scripted.WORDS[: scripted.SHOWN]))
    else:
        assert returned["c3"] == outcome("unknown", "", started=True)
    calls = Counter(call.tool_call_id for one in scripted.answers(asked) for call in one.tool_calls)
    results = Counter(part.tool_call_id for part in returns_of(asked))
    assert calls == results, "each call has exactly one result"
    assert set(calls.values()) == {1}
    assert repair_messages(asked) == asked, "pydantic-ai finds nothing to mend"


async def interrupted_then_asked(
    path: Path, scenario: str, interrupt: Interrupt
) -> list[ModelMessage]:
    """Interrupt it; then somebody else opens the session and asks a second time."""
    async with AsyncStore(path) as store:
        session = await store.create_session()
        reason = await interrupt(path, session, scenario)
    asked = scripted.Asked()
    async with AsyncStore(path) as store:
        session = await store.session(session.id)
        assert [(one.status, one.reason) for one in await session.turns()] == [
            ("interrupted", reason)
        ]
        async with session.turn("PROMPT-2") as turn:
            await asked.agent().run(
                message_history=await history(session),
                capabilities=[Recorder(turn, streaming=True)],
            )
    return asked.messages


def texts_of(messages: list[ModelMessage]) -> list[str]:
    return [
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]


def returns_of(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [
        part
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
