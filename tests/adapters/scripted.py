"""Three ways to be in the middle of something, as an agent of pydantic-ai.

    python -m tests.adapters.scripted STORE SESSION par|seq|str

runs one of them and never ends by itself: a tool hangs, or a text goes on. What is being waited for
is in the journal, where whoever kills this process can see it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from killick import AsyncSession, AsyncStore
from killick.adapters.pydantic_ai import Recorder, history

PROMPT = "PROMPT-1"
WORDS = [f"word{number} " for number in range(50)]
SHOWN = 10
"""Words that must have come before the text is interrupted."""


def calling(index: int, number: int) -> DeltaToolCalls:
    return {index: DeltaToolCall(name=f"t{number}", json_args="{}", tool_call_id=f"c{number}")}


async def par(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    yield "Three at once. "
    for index, number in enumerate((1, 2, 3), 1):
        yield calling(index, number)


async def seq(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    number = answered(messages) + 1
    yield f"Number {number}. "
    yield calling(1, number)


async def str_(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    number = answered(messages) + 1
    if number <= 2:
        yield calling(0, number)
        return
    for word in WORDS:
        yield word
        await asyncio.sleep(0.01)
    await asyncio.Event().wait()


SCENARIOS = {"par": par, "seq": seq, "str": str_}


def answered(messages: list[ModelMessage]) -> int:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return sum(isinstance(part, ToolReturnPart) for one in requests for part in one.parts)


def agent(scenario: str) -> Agent[None, str]:
    made = Agent(FunctionModel(stream_function=SCENARIOS[scenario]))

    @made.tool_plain
    async def t1() -> str:
        return "result-1"

    @made.tool_plain
    async def t2() -> str:
        return "result-2"

    @made.tool_plain
    async def t3() -> str:
        await asyncio.Event().wait()
        raise AssertionError("it hangs")

    return made


async def run(session: AsyncSession, scenario: str) -> None:
    async with session.turn(PROMPT) as turn:
        await agent(scenario).run(
            message_history=await history(session), capabilities=[Recorder(turn, streaming=True)]
        )


class Asked:
    """A model that remembers what it was sent, and says one word."""

    def __init__(self) -> None:
        self.messages: list[ModelMessage] = []

    def agent(self) -> Agent[None, str]:
        return Agent(FunctionModel(stream_function=self._answer))

    async def _answer(self, messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        self.messages = messages
        yield "Yes."


def answers(messages: list[ModelMessage]) -> list[ModelResponse]:
    return [message for message in messages if isinstance(message, ModelResponse)]


async def main(store_url: str, session_id: str, scenario: str) -> None:
    async with AsyncStore(store_url) as store:
        await run(await store.session(session_id), scenario)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
