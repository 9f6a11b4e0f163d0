"""The agent that is interrupted, in a process of its own.

    python -m killick.cli.demo_agent STORE SESSION CONTINUES MODEL

Its three tools are measuring stations. Which of them to ask is decided by what is still missing in
the history it is sent; what it says about them comes from the model on board, or, where that is not
installed, from a few words of its own. It is killed, so it never has to end well.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import (
    CompletedStreamedResponse,
    Model,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from killick.agent.agent import Agent
from killick.agent.constrained import ConstrainedModel
from killick.session.aio import AsyncStore

STATIONS: Final = ("temperature", "pressure", "wind")
SLOW: Final = "wind"
INSTRUCTIONS: Final = "You report the weather. Describe it in several long sentences."
OWN_WORDS: Final = "own words"


def read_thermometer() -> str:
    """Read the thermometer."""
    return "temperature: 11 degrees, falling"


def read_barometer() -> str:
    """Read the barometer."""
    return "pressure: 989 hectopascal, falling fast"


class Anemometer:
    """The first time it is asked, it never answers; a file beside the store remembers that."""

    def __init__(self, memory: Path) -> None:
        self._memory = memory

    async def read_anemometer(self) -> str:
        """Read the anemometer."""
        if not self._memory.exists():
            self._memory.touch()
            await asyncio.Event().wait()
        return "wind: 31 knots from the north-west"


class Reporting(WrapperModel):
    """Asks for what is missing; when nothing is, it speaks."""

    def __init__(self, words: Model) -> None:
        super().__init__(words)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        known = " ".join(_results(messages))
        tools = [tool.name for tool in model_request_parameters.function_tools]
        missing = [
            name
            for name, station in zip(tools, STATIONS, strict=True)
            if f"{station}:" not in known
        ]
        if missing:
            calls = ModelResponse(
                parts=[ToolCallPart(name, "{}") for name in missing],
                model_name=self.model_name,
                provider_name=self.system,
            )
            yield CompletedStreamedResponse(
                calls, model_request_parameters=model_request_parameters, replay_events=True
            )
            return
        plain = replace(model_request_parameters, function_tools=[])
        async with super().request_stream(messages, model_settings, plain, run_context) as response:
            yield response


def _results(messages: list[ModelMessage]) -> list[str]:
    """Return the results of the stations; an unknown outcome is none."""
    return [
        part.model_response_str()
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart) and part.outcome == "success"
    ]


async def _own_words(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
    report = f"The stations report the following. {'; '.join(_results(messages))}. "
    text = report + "All of this together means that a storm is coming, and soon. "
    for word in (text * 2).split():
        yield word + " "
        await asyncio.sleep(0.05)


def make_agent(path: Path, url: str) -> Agent:
    words = FunctionModel(stream_function=_own_words) if url == OWN_WORDS else ConstrainedModel(url)
    station = Anemometer(path.with_name("asked-once"))
    tools = [read_thermometer, read_barometer, station.read_anemometer]
    return Agent(Reporting(words), tools=tools, instructions=INSTRUCTIONS, window=4096)


async def main(path: str, session_id: str, continues: str, url: str) -> None:
    agent = make_agent(Path(path), url)
    async with AsyncStore(path) as store:
        session = await store.session(session_id)
        prompt = None if continues else "Ask all three stations, and tell me what is coming."
        async with session.turn(prompt, continues=continues or None) as turn:
            await agent.answer(session, turn)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
