"""What pydantic-ai keeps beside a part comes back to it exactly."""

import asyncio
from pathlib import Path

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

from killick import AsyncStore, Opaque
from killick.adapters.pydantic_ai import history
from killick.adapters.pydantic_ai.parts import PartApplier

PDF = BinaryContent(b"%PDF", media_type="application/pdf", identifier="x")
ANSWERS: dict[str, list[ModelResponsePart]] = {
    "plain": [TextPart("Hello.")],
    "ids": [
        ThinkingPart("Hm.", id="rs_1", signature="enc", provider_name="openai"),
        TextPart("Hello.", id="msg_1", provider_name="openai", provider_details={"phase": "x"}),
    ],
    "calls": [
        TextPart("Let me look."),
        ToolCallPart("f", '{"a": 1}', "c1", id="fc_1", provider_name="openai"),
    ],
    "file": [TextPart("Here:"), FilePart(PDF)],
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_comes_back_as_it_was(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn("Hello?") as turn:
                async with turn.stream(provider="openai") as reply:
                    taking = PartApplier(reply, "openai")
                    response = ModelResponse(parts=ANSWERS[name])
                    taking.whole(response)
                    taking.end(response, ended=True)
                for call in reply.tool_calls:
                    async with turn.tool(call.id) as tool:
                        await tool.finish("done")
            answer = (await history(session))[1]
            assert isinstance(answer, ModelResponse)
            assert list(answer.parts) == ANSWERS[name]

    asyncio.run(main())


def test_an_answer_that_was_left_is_partial(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn("Hello?") as turn, turn.stream() as reply:
                taking = PartApplier(reply, "openai")
                response = ModelResponse(parts=[TextPart("Hel")])
                taking.whole(response)
                taking.end(response, ended=False)
            assert (await session.messages())[-1].state == "partial"

    asyncio.run(main())


def test_a_call_that_is_made_twice_does_not_break_the_stream(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            twice = ToolCallPart("f", "{}", "c1")
            async with session.turn("Hello?") as turn, turn.stream() as reply:
                PartApplier(reply, "openai").whole(ModelResponse(parts=[twice, twice]))
            parts = (await session.messages())[-1].parts
            assert [type(part) is Opaque for part in parts] == [False, True]

    asyncio.run(main())
