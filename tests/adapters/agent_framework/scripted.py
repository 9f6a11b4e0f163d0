"""Agents of the framework in the middle of something, with a scripted model.

    python -m tests.adapters.agent_framework.scripted STORE SESSION SCENARIO

runs one of them and never ends by itself: a tool hangs, or a text goes on. What is being waited for
is in the journal, where the process that kills this one can see it.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

from killick import AsyncSession, AsyncStore
from killick.adapters.agent_framework import Recorder, history

PROMPT = "PROMPT-1"
WORDS = [f"word{number} " for number in range(50)]
Said = str | tuple[str, str]
"""Words, or a call: its id and the tool's name."""


class Scripted(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """Answers as a function of how many results there are; remembers what it was sent."""

    def __init__(self, script: Callable[[int], list[Said]]) -> None:
        super().__init__()
        self.script = script
        self.asked: list[Message] = []

    def _inner_get_response(self, *, messages: Any, stream: bool, **_: Any) -> Any:
        self.asked = list(messages)
        results = sum(
            content.type == "function_result" for one in messages for content in one.contents
        )
        said = self.script(results)
        if stream:
            return ResponseStream(_updates(said), finalizer=ChatResponse.from_updates)

        async def whole() -> ChatResponse[Any]:
            contents = [_content(one) for one in said]
            return ChatResponse(messages=[Message("assistant", contents)], finish_reason="stop")

        return whole()


async def _updates(said: list[Said]) -> AsyncIterator[ChatResponseUpdate]:
    for one in said:
        for word in one.split(" ") if isinstance(one, str) else ():
            yield ChatResponseUpdate(contents=[Content.from_text(f"{word} ")], role="assistant")
            await asyncio.sleep(0)
        if one == " ".join(WORDS):
            await asyncio.Event().wait()
        if isinstance(one, tuple):
            yield ChatResponseUpdate(contents=[_content(one)], role="assistant")


def _content(one: Said) -> Content:
    if isinstance(one, str):
        return Content.from_text(f"{one} ")
    given = {"task": "Help."} if one[1] == "helper" else {}
    return Content.from_function_call(one[0], one[1], arguments=json.dumps(given))


def par(results: int) -> list[Said]:
    if results:
        return ["Done."]
    return ["Three at once.", ("c1", "t1"), ("c2", "t2"), ("c3", "t3")]


def noid(results: int) -> list[Said]:
    return [("", said[1]) if isinstance(said, tuple) else said for said in par(results)]


def seq(results: int) -> list[Said]:
    return [f"Number {results + 1}.", (f"c{results + 1}", f"t{results + 1}")]


def text(results: int) -> list[Said]:
    if results < 2:
        return [(f"c{results + 1}", f"t{results + 1}")]
    return [" ".join(WORDS)]


def sub(results: int) -> list[Said]:
    return ["I ask another.", ("s1", "helper")]


SCENARIOS = {"par": par, "noid": noid, "seq": seq, "text": text, "sub": sub}


async def t1() -> str:
    """Return at once."""
    return "result-1"


async def t2() -> str:
    """Return at once."""
    return "result-2"


async def t3() -> str:
    """Hang."""
    await asyncio.Event().wait()
    raise AssertionError("it hangs")


recorder = Recorder()


def agent(scenario: str) -> Agent[Any]:
    tools: list[Any] = [t1, t2, t3]
    if scenario == "sub":
        helper = Agent(Scripted(par), name="helper", tools=tools, middleware=recorder.middleware)
        return Agent(Scripted(sub), name="agent", tools=[helper.as_tool()])
    return Agent(Scripted(SCENARIOS[scenario]), name="agent", tools=tools)


async def run(session: AsyncSession, made: Agent[Any], prompt: str) -> Any:
    async with session.turn(prompt) as turn:
        with recorder.recording(turn):
            running = made.run(await history(session), stream=True, middleware=recorder.middleware)
            async for _ in running:
                pass
            return await running.get_final_response()


async def main(store_url: str, session_id: str, scenario: str) -> None:
    async with AsyncStore(store_url) as store:
        await run(await store.session(session_id), agent(scenario), PROMPT)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
