"""What recording a chunk costs above a framework's own handling of it, in CPU time.

    .adaptersvenv/openai_agents/bin/python -m benchmarks.adapters openai_agents
    .adaptersvenv/langgraph/bin/python -m benchmarks.adapters langchain

Each runs in its framework's environment: an agent with a scripted model streams one answer, with
and without the recorder, in turns. All threads of the process count.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from killick import AsyncSession, AsyncStore

CHUNKS = 2_000
ROUNDS = 9
GOAL_MICROS = 30.0
PIECE = "Twenty characters it"


def openai_agents() -> tuple[Callable[..., Awaitable[None]], Callable[..., Awaitable[None]]]:
    from agents import Agent, Model, Runner, set_tracing_disabled
    from openai.types.responses import Response, ResponseCompletedEvent, ResponseTextDeltaEvent
    from openai.types.responses import ResponseOutputItemAddedEvent as Added
    from openai.types.responses import ResponseOutputMessage as Item

    from killick.adapters.openai_agents import Recorder, history

    set_tracing_disabled(True)
    item = Item(id="m", type="message", role="assistant", status="completed", content=[])
    added = Added(type="response.output_item.added", item=item, output_index=0, sequence_number=0)
    delta = ResponseTextDeltaEvent(
        type="response.output_text.delta",
        delta=PIECE,
        item_id="m",
        content_index=0,
        output_index=0,
        sequence_number=1,
        logprobs=[],
    )
    answer = Response(
        id="r",
        created_at=0,
        model="m",
        object="response",
        output=[item],
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )
    end = ResponseCompletedEvent(type="response.completed", response=answer, sequence_number=2)

    class Scripted(Model):
        async def get_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:  # type: ignore[override, misc]
            yield added
            for _number in range(CHUNKS):
                yield delta
            yield end

    agent = Agent(name="agent", model=Scripted())

    async def plain() -> None:
        async for _ in Runner.run_streamed(agent, "Go.").stream_events():
            pass

    async def recorded(session: AsyncSession) -> None:
        async with session.turn("Go.") as turn:
            recorder = Recorder(turn)
            result = Runner.run_streamed(
                agent, await history(session), hooks=recorder, run_config=recorder.run_config
            )
            async for _ in result.stream_events():
                pass

    return plain, recorded


def langchain() -> tuple[Callable[..., Awaitable[None]], Callable[..., Awaitable[None]]]:
    from langchain.agents import create_agent
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk, HumanMessage
    from langchain_core.outputs import ChatGenerationChunk

    from killick.adapters.langchain import Recorder

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def _generate(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def _astream(self, messages: Any, *_: Any, **named: Any) -> AsyncIterator[Any]:
            told = named.get("run_manager")
            for _number in range(CHUNKS):
                chunk = ChatGenerationChunk(message=AIMessageChunk(PIECE))
                if told is not None:
                    await told.on_llm_new_token(PIECE, chunk=chunk)
                yield chunk

    agent = create_agent(Scripted(), [])

    async def run(**config: Any) -> None:
        said = {"messages": [HumanMessage("Go.")]}
        async for _ in agent.astream(said, config, stream_mode="messages"):
            pass

    async def plain() -> None:
        await run()

    async def recorded(session: AsyncSession) -> None:
        async with session.turn("Go.") as turn:
            await run(callbacks=[Recorder(turn)])

    return plain, recorded


SUBJECTS = {"openai_agents": openai_agents, "langchain": langchain}


async def measure(name: str, folder: Path) -> tuple[float, float]:
    """Return the medians of the framework's own and of the added microseconds a chunk."""
    plain, recorded = SUBJECTS[name]()
    own: list[float] = []
    more: list[float] = []
    async with AsyncStore(folder / "w.db") as store:
        for number in range(ROUNDS + 1):
            session = await store.create_session()
            begin = process_time()
            await plain()
            middle = process_time()
            await recorded(session)
            end = process_time()
            if number:  # the first warms up
                own.append((middle - begin) / CHUNKS * 1e6)
                more.append((end - middle - (middle - begin)) / CHUNKS * 1e6)
    return median(own), median(more)


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own, more = asyncio.run(measure(name, Path(folder)))
    kept = "kept" if more <= GOAL_MICROS else "NOT kept"
    print(f"{name}: {own:.1f} µs a chunk by itself, {more:+.1f} µs recorded; goal {kept}")


if __name__ == "__main__":
    main(*sys.argv[1:])
