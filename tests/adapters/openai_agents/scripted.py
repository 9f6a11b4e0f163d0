"""Agents of the SDK in the middle of something, with a scripted model.

    python -m tests.adapters.openai_agents.scripted STORE SESSION SCENARIO

runs one of them and never ends by itself: a tool hangs, or a text goes on. What is being waited for
is in the journal, where whoever kills this process can see it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from killick import AsyncSession, AsyncStore
from killick.adapters.openai_agents import Recorder, SubagentHooks, history

PROMPT = "PROMPT-1"
WORDS = [f"word{number} " for number in range(50)]
Said = str | tuple[str, str]
"""Words, or a call: its id and the tool's name."""


class Scripted(Model):
    """Answers as a function of how many results there are; remembers what it was sent."""

    def __init__(self, script: Any) -> None:
        self.script = script
        self.asked: list[Any] = []

    def _said(self, given: Any) -> list[Said]:
        items = [] if isinstance(given, str) else list(given)
        self.asked = items
        results = sum(
            item.get("type") == "function_call_output" for item in items if isinstance(item, dict)
        )
        said: list[Said] = self.script(results)
        return said

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:  # noqa: A002
        output = [_item(one, number) for number, one in enumerate(self._said(input))]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    async def stream_response(  # type: ignore[override, misc]
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002
        *_: Any,
        **__: Any,
    ) -> AsyncIterator[Any]:
        output: list[Any] = []
        for number, one in enumerate(self._said(input)):
            item = _item(one, number)
            output.append(item)
            start = item.model_copy(update={"content": []}) if isinstance(one, str) else item
            place: dict[str, Any] = {"output_index": number, "sequence_number": 0}
            yield ResponseOutputItemAddedEvent(
                type="response.output_item.added", item=start, **place
            )
            for word in one.split(" ") if isinstance(one, str) else ():
                yield ResponseTextDeltaEvent(
                    type="response.output_text.delta",
                    delta=f"{word} ",
                    item_id=f"m{number}",
                    content_index=0,
                    logprobs=[],
                    **place,
                )
                await asyncio.sleep(0)
            if one == " ".join(WORDS):
                await asyncio.Event().wait()
            yield ResponseOutputItemDoneEvent(type="response.output_item.done", item=item, **place)
        response = Response(
            id="r",
            created_at=0,
            model="m",
            object="response",
            output=output,
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(
            type="response.completed", response=response, sequence_number=9
        )


def _item(one: Said, number: int) -> Any:
    if isinstance(one, str):
        text = ResponseOutputText(type="output_text", text=f"{one} ", annotations=[], logprobs=[])
        return ResponseOutputMessage(
            id=f"m{number}", type="message", role="assistant", status="completed", content=[text]
        )
    return ResponseFunctionToolCall(
        type="function_call",
        call_id=one[0],
        name=one[1],
        arguments='{"input": "Help."}' if one[1] == "helper" else "{}",
        id=f"f{number}",
    )


def par(results: int) -> list[Said]:
    if results:
        return ["Done."]
    return ["Three at once.", ("c1", "t1"), ("c2", "t2"), ("c3", "t3")]


def seq(results: int) -> list[Said]:
    return [f"Number {results + 1}.", (f"c{results + 1}", f"t{results + 1}")]


def text(results: int) -> list[Said]:
    if results < 2:
        return [(f"c{results + 1}", f"t{results + 1}")]
    return [" ".join(WORDS)]


def text_short(results: int) -> list[Said]:
    return ["Well done."] if results else ["Let me see.", ("c1", "t1")]


def sub(results: int) -> list[Said]:
    return ["I ask somebody.", ("s1", "helper")]


SCENARIOS = {"par": par, "seq": seq, "text": text, "sub": sub}


@function_tool
async def t1() -> str:
    return "result-1"


@function_tool
async def t2() -> str:
    return "result-2"


@function_tool
async def t3() -> str:
    await asyncio.Event().wait()
    raise AssertionError("it hangs")


def agent(scenario: str) -> Agent[Any]:
    if scenario == "sub":
        helper = Agent(name="helper", model=Scripted(par), tools=[t1, t2, t3])
        tool = helper.as_tool("helper", "Helps.", hooks=SubagentHooks())
        return Agent(name="agent", model=Scripted(sub), tools=[tool])
    return Agent(name="agent", model=Scripted(SCENARIOS[scenario]), tools=[t1, t2, t3])


async def run(session: AsyncSession, made: Agent[Any], prompt: str, **given: Any) -> Any:
    async with session.turn(prompt) as turn:
        recorder = Recorder(turn, **given)
        result = Runner.run_streamed(
            made, await history(session), hooks=recorder, run_config=recorder.run_config
        )
        async for _ in result.stream_events():
            pass
        return result


async def main(store_url: str, session_id: str, scenario: str) -> None:
    set_tracing_disabled(True)
    async with AsyncStore(store_url) as store:
        await run(await store.session(session_id), agent(scenario), PROMPT)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
