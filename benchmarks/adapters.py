"""What recording a chunk costs above a framework's own handling of it, in CPU time.

    .adaptersvenv/openai_agents/bin/python -m benchmarks.adapters openai_agents
    .adaptersvenv/langgraph/bin/python -m benchmarks.adapters langchain
    .adaptersvenv/google_adk/bin/python -m benchmarks.adapters google_adk
    .adaptersvenv/agent_framework/bin/python -m benchmarks.adapters agent_framework
    .adaptersvenv/strands/bin/python -m benchmarks.adapters strands
    .adaptersvenv/pydantic_ai/bin/python -m benchmarks.adapters pydantic_ai

Each runs in its framework's environment: an agent with a scripted model streams one answer, with
and without the recorder, in turns. All threads of the process count. The median of the rounds is
what is promised; the least has nothing of what else the machine did.
"""

import asyncio
import os
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


def google_adk() -> tuple[Callable[..., Awaitable[None]], Callable[..., Awaitable[None]]]:
    from google.adk.agents import LlmAgent, RunConfig
    from google.adk.agents.run_config import StreamingMode
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    from killick.adapters.google_adk import Recorder

    def answered(text: str, *, partial: bool) -> LlmResponse:
        content = types.Content(role="model", parts=[types.Part(text=text)])
        return LlmResponse(content=content, partial=partial)

    class Scripted(BaseLlm):
        async def generate_content_async(self, *_: Any, **__: Any) -> AsyncIterator[LlmResponse]:  # type: ignore[override]
            for _number in range(CHUNKS):
                yield answered(PIECE, partial=True)
            yield answered(PIECE * CHUNKS, partial=False)

    agent = LlmAgent(name="agent", model=Scripted(model="m"))
    recorder = Recorder()
    runners = {
        "plain": InMemoryRunner(agent=agent, app_name="plain"),
        "recorded": InMemoryRunner(agent=agent, app_name="recorded", plugins=[recorder]),
    }

    async def run(name: str) -> None:
        runner = runners[name]
        made = await runner.session_service.create_session(app_name=name, user_id="u")
        said = types.Content(role="user", parts=[types.Part(text="Go.")])
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        async for _ in runner.run_async(
            user_id="u", session_id=made.id, new_message=said, run_config=config
        ):
            pass

    async def plain() -> None:
        await run("plain")

    async def recorded(session: AsyncSession) -> None:
        async with session.turn("Go.") as turn:
            with recorder.recording(turn):
                await run("recorded")

    return plain, recorded


def agent_framework() -> tuple[Callable[..., Awaitable[None]], Callable[..., Awaitable[None]]]:
    from agent_framework import (
        Agent,
        BaseChatClient,
        ChatMiddlewareLayer,
        ChatResponse,
        ChatResponseUpdate,
        Content,
        FunctionInvocationLayer,
        ResponseStream,
    )

    from killick.adapters.agent_framework import Recorder

    class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):  # type: ignore[misc, type-arg]
        def _inner_get_response(self, **_: Any) -> Any:
            async def updates() -> AsyncIterator[ChatResponseUpdate]:
                for _number in range(CHUNKS):
                    yield ChatResponseUpdate(role="assistant", contents=[Content.from_text(PIECE)])

            return ResponseStream(updates(), finalizer=ChatResponse.from_updates)

    recorder = Recorder()
    agent = Agent(client=Scripted())
    watched = Agent(client=Scripted(), middleware=recorder.middleware)

    async def plain() -> None:
        async for _ in agent.run("Go.", stream=True):
            pass

    async def recorded(session: AsyncSession) -> None:
        async with session.turn("Go.") as turn:
            with recorder.recording(turn):
                async for _ in watched.run("Go.", stream=True):
                    pass

    return plain, recorded


def strands() -> tuple[Callable[..., Awaitable[None]], Callable[..., Awaitable[None]]]:
    from strands import Agent
    from strands.models import Model

    from killick.adapters.strands import Recorder

    class Scripted(Model):
        def update_config(self, **_: Any) -> None: ...

        def get_config(self) -> Any:
            return {"model_id": "m"}

        def structured_output(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def stream(self, *_: Any, **__: Any) -> AsyncIterator[Any]:  # type: ignore[override]
            yield {"messageStart": {"role": "assistant"}}
            yield {"contentBlockStart": {"start": {}}}
            for _number in range(CHUNKS):
                yield {"contentBlockDelta": {"delta": {"text": PIECE}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}

    recorder = Recorder()

    async def run(**more: Any) -> None:
        agent = Agent(model=Scripted(), callback_handler=None, **more)
        async for _ in agent.stream_async("Go."):
            pass

    async def plain() -> None:
        await run()

    async def recorded(session: AsyncSession) -> None:
        async with session.turn("Go.") as turn:
            with recorder.recording(turn):
                await run(plugins=[recorder])

    return plain, recorded


def pydantic_ai() -> tuple[Callable[..., Awaitable[None]], Callable[..., Awaitable[None]]]:
    from pydantic_ai import Agent
    from pydantic_ai.models.function import FunctionModel

    from killick.adapters.pydantic_ai import Recorder

    async def said(*_: Any) -> AsyncIterator[str]:
        for _number in range(CHUNKS):
            yield PIECE

    agent: Agent[None, str] = Agent(FunctionModel(stream_function=said))

    async def handle(_: Any, events: Any) -> None:
        async for _event in events:
            pass

    async def plain() -> None:
        await agent.run("Go.", event_stream_handler=handle)

    async def recorded(session: AsyncSession) -> None:
        async with session.turn("Go.") as turn:
            await agent.run("Go.", event_stream_handler=handle, capabilities=[Recorder(turn)])

    return plain, recorded


SUBJECTS = {
    made.__name__: made
    for made in (openai_agents, langchain, google_adk, agent_framework, strands, pydantic_ai)
}


async def measure(name: str, folder: Path) -> tuple[list[float], list[float]]:
    """Return the microseconds a chunk of each round, without and with the recorder."""
    plain, recorded = SUBJECTS[name]()
    own: list[float] = []
    recording: list[float] = []
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
                recording.append((end - middle) / CHUNKS * 1e6)
    return own, recording


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own, recording = asyncio.run(measure(name, Path(folder)))
    least, middle = min(recording) - min(own), median(recording) - median(own)
    kept = "kept" if middle <= GOAL_MICROS else "NOT kept"
    print(
        f"{name}: {median(own):.1f} µs a chunk by itself, {middle:+.1f} µs recorded (least "
        f"{least:+.1f}); goal {kept}, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
