"""Agents of Strands in the middle of something, with a scripted model.

    python -m tests.adapters.strands.scripted STORE SESSION SCENARIO

runs one of them and never ends by itself: a tool hangs, or a text goes on. What is being waited for
is in the journal, where the process that kills this one can see it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from strands import Agent, tool
from strands.models import Model

from killick import AsyncSession, AsyncStore
from killick.adapters.strands import Recorder, history

PROMPT = "PROMPT-1"
WORDS = [f"word{number} " for number in range(50)]
Said = str | tuple[str, str]
"""Words, or a call: its id and the tool's name."""


class Scripted(Model):
    """Answers as a function of how many results there are; remembers what it was sent."""

    def __init__(self, script: Callable[[int], list[Said]]) -> None:
        self.script = script
        self.asked: list[Any] = []

    def update_config(self, **_: Any) -> None:
        pass

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:  # type: ignore[override, misc]
        self.asked = list(messages)
        results = sum("toolResult" in block for one in messages for block in one["content"])
        stop = "end_turn"
        yield {"messageStart": {"role": "assistant"}}
        for said in self.script(results):
            if isinstance(said, str):
                yield {"contentBlockStart": {"start": {}}}
                for word in said.split(" "):
                    yield {"contentBlockDelta": {"delta": {"text": f"{word} "}}}
                    await asyncio.sleep(0)
                if said == " ".join(WORDS):
                    await asyncio.Event().wait()
            else:
                stop = "tool_use"
                start = {"toolUse": {"toolUseId": said[0], "name": said[1]}}
                yield {"contentBlockStart": {"start": start}}
                given = '{"input": "Help."}' if said[1] == "helper" else "{}"
                yield {"contentBlockDelta": {"delta": {"toolUse": {"input": given}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": stop}}


def par(results: int) -> list[Said]:
    if results:
        return ["Done."]
    return ["Three at once.", ("c1", "t1"), ("c2", "t2"), ("c3", "t3")]


def same(results: int) -> list[Said]:
    """Give all calls one id, as models do that know none."""
    return [("t", said[1]) if isinstance(said, tuple) else said for said in par(results)]


def seq(results: int) -> list[Said]:
    return [f"Number {results + 1}.", (f"c{results + 1}", f"t{results + 1}")]


def text(results: int) -> list[Said]:
    if results < 2:
        return [(f"c{results + 1}", f"t{results + 1}")]
    return [" ".join(WORDS)]


def sub(results: int) -> list[Said]:
    return ["I ask another.", ("s1", "helper")]


SCENARIOS = {"par": par, "same": same, "seq": seq, "text": text, "sub": sub}


@tool
async def t1() -> str:
    """Return at once."""
    return "result-1"


@tool
async def t2() -> str:
    """Return at once."""
    return "result-2"


@tool
async def t3() -> str:
    """Hang."""
    await asyncio.Event().wait()
    raise AssertionError("it hangs")


recorder = Recorder()


def make(script: Callable[[int], list[Said]], *tools: Any, **given: Any) -> Agent:
    return Agent(
        model=Scripted(script), tools=[*tools], callback_handler=None, plugins=[recorder], **given
    )


def agent(scenario: str) -> Agent:
    if scenario == "sub":
        return make(sub, make(par, t1, t2, t3, name="helper", description="Helps."))
    return make(SCENARIOS[scenario], t1, t2, t3)


async def run(session: AsyncSession, made: Agent, prompt: str) -> Any:
    async with session.turn(prompt) as turn:
        with recorder.recording(turn):
            made.messages = await history(session)
            return await made.invoke_async()


async def main(store_url: str, session_id: str, scenario: str) -> None:
    async with AsyncStore(store_url) as store:
        await run(await store.session(session_id), agent(scenario), PROMPT)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
