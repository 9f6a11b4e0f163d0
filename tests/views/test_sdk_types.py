"""Conversations that were stopped are accepted by the official SDKs' types, in the next turn."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from killick import AsyncSession, AsyncStore, Message, Text, ToolCall
from killick.model import entries as e
from killick.views import validators
from killick.views.context import Context, Format
from tests import sdk_types

Scenario = Callable[[AsyncSession, asyncio.Event], Awaitable[None]]
Accepted = Callable[[Any], None]
Valid = Callable[..., list[validators.Violation]]

PROVIDERS: dict[Format, tuple[Accepted, Valid]] = {
    "openai-chat": (sdk_types.accept_openai_chat, validators.openai_chat),
    "openai-responses": (sdk_types.accept_openai_responses, validators.openai_responses),
    "anthropic": (sdk_types.accept_anthropic, validators.anthropic),
    "gemini": (sdk_types.accept_gemini, validators.gemini),
}

CALLS = [ToolCall(f"call_{n}", "shell", f'{{"command": "make {n}"}}') for n in range(3)]


async def par(session: AsyncSession, hangs: asyncio.Event) -> None:
    """Three tools at once: two finish, the third hangs."""
    async with session.turn("Make all three.") as turn:
        await turn.record(Message(role="assistant", parts=[Text("At once."), *CALLS]))

        async def run(call: ToolCall) -> None:
            async with turn.tool(call.id) as tool:
                tool.output("begun\n")
                if call is CALLS[2]:
                    await asyncio.gather(*running[:2])
                    hangs.set()
                    await asyncio.Event().wait()
                await tool.finish(f"made {call.id}")

        running = [asyncio.ensure_future(run(call)) for call in CALLS]
        try:
            await asyncio.gather(*running)
        finally:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def seq(session: AsyncSession, hangs: asyncio.Event) -> None:
    """Three tools one after another, each asked for in an answer of its own: the third hangs."""
    async with session.turn("Make all three.") as turn:
        for call in CALLS:
            async with turn.stream() as reply:
                reply.text("Next.")
                reply.tool_call(call.id, name=call.name, arguments=call.arguments)
            async with turn.tool(call.id) as tool:
                if call is CALLS[2]:
                    tool.output("begun\n")
                    hangs.set()
                    await asyncio.Event().wait()
                await tool.finish(f"made {call.id}")


async def streamed(session: AsyncSession, hangs: asyncio.Event) -> None:
    """Text, cut off while it comes; a call behind it is cut off in its arguments."""
    async with session.turn("Tell me about kelp.") as turn, turn.stream() as reply:
        reply.text("A killick ")
        reply.text("anchors ")
        reply.tool_call("call_0", name="shell", arguments='{"comm')
        hangs.set()
        await asyncio.Event().wait()


async def cancel(session: AsyncSession, scenario: Scenario) -> None:
    hangs = asyncio.Event()
    task = asyncio.ensure_future(scenario(session, hangs))
    await hangs.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def contexts(path: Path, scenario: Scenario) -> AsyncIterator[tuple[str, Context]]:
    """The contexts when the next turn has its prompt, and once more after a model was sent them."""
    async with AsyncStore(path) as store:
        session = await store.create_session()
        await cancel(session, scenario)
        async with session.turn("Go on.") as turn:
            for format_ in PROVIDERS:
                yield "prompt", await session.context(format_)
            async with turn.stream(system="Be brief.") as reply:
                reply.tool_call("call_0", name="shell", arguments="{}")
            for format_ in PROVIDERS:
                yield "answer", await session.context(format_)


def collect(path: Path, scenario: Scenario) -> list[tuple[str, Context]]:
    async def run() -> list[tuple[str, Context]]:
        return [one async for one in contexts(path, scenario)]

    return asyncio.run(run())


@pytest.mark.parametrize("scenario", [par, seq, streamed])
def test_a_stopped_conversation_can_be_sent(tmp_path: Path, scenario: Scenario) -> None:
    found = collect(tmp_path / "work.db", scenario)
    assert [context.format for _, context in found] == [*PROVIDERS, *PROVIDERS]
    for when, context in found:
        accepted, valid = PROVIDERS[context.format]  # type: ignore[index]
        accepted(context.messages)
        assert valid(context.messages, context.system, complete=True) == [], (when, context)


TOLD: dict[Scenario, list[str]] = {
    par: ["made call_0", "made call_1", "outcome of this tool call is unknown", "begun"],
    seq: ["made call_0", "made call_1", "outcome of this tool call is unknown", "begun"],
    streamed: ["A killick anchors", "A call to shell was cut off"],
}


@pytest.mark.parametrize("scenario", [par, seq, streamed])
def test_the_truth_is_in_it(tmp_path: Path, scenario: Scenario) -> None:
    for _, context in collect(tmp_path / "work.db", scenario):
        text = str(context.messages)
        assert [one for one in TOLD[scenario] if one not in text] == []
        assert text.count("it was cancelled") == 1


@pytest.mark.parametrize("scenario", [par, seq, streamed])
def test_what_was_sent_stays_a_prefix(tmp_path: Path, scenario: Scenario) -> None:
    """A model was sent the first four contexts; the next ones begin with the same blocks."""
    found = collect(tmp_path / "work.db", scenario)
    for (_, before), (_, after) in zip(found[:4], found[4:], strict=True):
        assert blocks(after)[: len(blocks(before))] == blocks(before)


def blocks(context: Context) -> list[Any]:
    key = {"anthropic": "content", "gemini": "parts"}.get(context.format)
    if key is None:
        return list(context.messages)
    return [(one["role"], block) for one in context.messages for block in one[key]]


def test_nothing_made_up_is_stored(tmp_path: Path) -> None:
    """Contexts were read in the middle of it; the journal has what happened and nothing else."""

    async def run() -> list[e.Entry]:
        async with AsyncStore(tmp_path / "work.db") as store:
            session = await store.create_session()
            await cancel(session, par)
            await session.context("anthropic")
            return await session.entries()

    results = [one.body for one in asyncio.run(run()) if isinstance(one.body, e.ToolFinished)]
    assert sorted(str(one.result.content) for one in results) == ["made call_0", "made call_1"]
