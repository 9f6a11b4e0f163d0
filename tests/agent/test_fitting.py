"""Long sessions are summarised before they overflow; a title never replaces a person's."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from killick import AsyncSession, AsyncStore, Image, Message, Text, ToolCall
from killick.agent import Agent
from killick.agent.summaries import clean_title
from killick.model import entries as e


class Model:
    """Answers at length, and says something else when it is asked beside the conversation."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.asked: list[str] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    def agent(self, window: int) -> Agent:
        return Agent(FunctionModel(self._aside, stream_function=self._answer), window=window)

    async def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        self.sent.append(repr(messages))
        yield "blah " * 100

    async def _aside(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self.asked.append(repr(messages))
        if self.meanwhile is not None:
            await self.meanwhile()
        return ModelResponse(parts=[TextPart("They talked about kelp.")])


async def ask(agent: Agent, session: AsyncSession, prompt: str) -> None:
    async with session.turn(prompt) as turn:
        await agent.answer(session, turn)


def test_a_long_session_is_summarised_before_it_overflows(tmp_path: Path) -> None:
    async def main() -> None:
        model = Model()
        agent = model.agent(window=1000)
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            for number in range(10):
                await ask(agent, session, f"Question {number}?")
            compacted = [
                one.body for one in await session.entries() if isinstance(one.body, e.Compacted)
            ]
            assert compacted
            assert compacted[0].summary == "They talked about kelp."
            assert compacted[0].usage is not None
            assert max(map(len, model.sent)) < 1000 * 4, "it was sent more than fits"
            assert "They talked about kelp." in model.sent[-1]
            assert "Question 9?" in model.sent[-1]
            assert "Question 0?" not in model.sent[-1]
            assert any("Question 0?" in one.text for one in await session.messages())
            assert len(compacted) > 1
            assert "Question 0?" in model.asked[0]
            assert "They talked about kelp." in model.asked[1], "a summary was forgotten"

    asyncio.run(main())


def test_a_summary_that_cannot_be_made_shorter_keeps_no_prompt_from_its_answer(
    tmp_path: Path,
) -> None:
    """Between the summary and a long prompt nothing was said, only that a turn broke."""

    async def main() -> None:
        model = Model()
        agent = model.agent(window=1000)
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            await ask(agent, session, "Question?")
            assert await agent.compact(session)
            with suppress(OSError):
                async with session.turn():
                    raise OSError("no network")
            await ask(agent, session, "kelp " * 560)
            assert [one.status for one in await session.turns()] == [
                "completed",
                "failed",
                "completed",
            ]

    asyncio.run(main())


def test_a_long_turn_is_summarised_while_it_runs(tmp_path: Path) -> None:
    """It goes on from a summary, its prompt and the last result; the journal has all of them."""
    window, calls = 4000, 12
    sent: list[str] = []

    def look(number: int) -> str:
        return f"result {number}: " + "blah " * 400

    async def model(
        messages: list[ModelMessage], _: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        sent.append(repr(messages))
        number = len(sent)
        if number > calls:
            yield "Done."
            return
        arguments = f'{{"number": {number}}}'
        yield {0: DeltaToolCall(name="look", json_args=arguments, tool_call_id=f"c{number}")}

    async def main() -> None:
        summary = Model()
        made = FunctionModel(summary._aside, stream_function=model)
        agent = Agent(made, tools=[look], window=window)
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            await ask(agent, session, "Look at everything.")
            results = [one for one in await session.messages() if one.role == "tool"]
            assert len(results) == calls
            assert (await session.turns())[0].status == "completed"
            assert await store.examine_session(session.id) == []

    asyncio.run(main())
    assert len(sent) == calls + 1
    for number, request in enumerate(sent):
        assert "Look at everything." in request, "the prompt was forgotten"
        assert not number or f"result {number}: " in request, "the last result was forgotten"
        assert len(request) < window * 4, "it was sent more than fits"
    assert "They talked about kelp." in sent[-1]
    assert "result 1: " not in sent[-1]


def test_a_summary_is_made_of_what_results_say_also_beside_images(tmp_path: Path) -> None:
    async def main() -> None:
        model = Model()
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            async with session.turn("Look.") as turn:
                await turn.record(
                    Message(role="assistant", parts=[ToolCall("c1", "look", "{}"), Text("So.")])
                )
                async with turn.tool("c1") as tool:
                    image = Image(await store.put_blob(b"\x89PNG\r\n\x1a\n"), "image/png")
                    await tool.finish([Text("a screen with an urchin"), image])
            assert await model.agent(window=10_000).compact(session)
            assert "a screen with an urchin [image]" in model.asked[0]

    asyncio.run(main())


def test_a_title_is_made_after_the_first_exchange(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Model().agent(window=10_000)
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            assert await agent.title(session) is None, "nothing was said yet"
            await ask(agent, session, "What is kelp?")
            assert await agent.title(session) == "They talked about kelp"
            assert (await session.info()).about.titled_by == "model"

    asyncio.run(main())


def test_a_title_never_replaces_a_persons(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Model().agent(window=10_000)
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            await ask(agent, session, "What is kelp?")
            elsewhere = await store.session(session.id)
            await elsewhere.rename("Mine")
            assert await agent.title(session) == "Mine"
            assert (await session.info()).title == "Mine"

    asyncio.run(main())


def test_nor_does_one_that_was_asked_for_before(tmp_path: Path) -> None:
    """A person gives a title while the model thinks about one."""

    async def main() -> None:
        model = Model()
        agent = model.agent(window=10_000)
        async with AsyncStore(tmp_path / "w.db") as store:
            session = await store.create_session()
            await ask(agent, session, "What is kelp?")
            elsewhere = await store.session(session.id)
            model.meanwhile = lambda: elsewhere.rename("Mine")
            assert await agent.title(session) == "Mine"
            assert model.asked, "the model was never asked"
            assert (await session.info()).title == "Mine"
            assert (await session.info()).about.titled_by == "person"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('Title: "Kelp forests."\nMore', "Kelp forests"),
        ("\n\n## A storm\n", "A storm"),
        ("", None),
        ("word " * 30, "word " * 11 + "word…"),
    ],
)
def test_what_a_model_says_is_made_a_title(text: str, title: str | None) -> None:
    assert clean_title(text) == title
