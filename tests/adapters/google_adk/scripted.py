"""Agents of the ADK in the middle of something, with a scripted model.

    python -m tests.adapters.google_adk.scripted STORE SESSION SCENARIO

runs one of them and never ends by itself: a tool hangs, or a text goes on. What is being waited for
is in the journal, where the process that kills this one can see it.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from pydantic import Field

from killick import AsyncSession, AsyncStore
from killick.adapters.google_adk import JournalContext, Recorder

PROMPT = "PROMPT-1"
WORDS = [f"word{number} " for number in range(50)]
Said = str | tuple[str | None, str]
"""Words, or a call: its id and the tool's name."""


class Scripted(BaseLlm):
    """Answers as a function of how many results there are; remembers what it was sent."""

    script: Any
    asked: list[Any] = Field(default_factory=list)

    def __init__(self, script: Callable[[int], list[Said]]) -> None:
        super().__init__(model="scripted", script=script)

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: FBT002
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked = list(llm_request.contents)
        results = sum(
            part.function_response is not None
            for content in llm_request.contents
            for part in content.parts or ()
        )
        parts: list[types.Part] = []
        for said in self.script(results):
            if isinstance(said, str):
                for word in said.split(" ") if stream else ():
                    piece = types.Content(role="model", parts=[types.Part(text=f"{word} ")])
                    yield LlmResponse(content=piece, partial=True)
                    await asyncio.sleep(0)
                if said == " ".join(WORDS):
                    await asyncio.Event().wait()
                parts.append(types.Part(text=f"{said} "))
            else:
                args = {"request": "Help."} if said[1] == "helper" else {}
                call = types.FunctionCall(id=said[0], name=said[1], args=args)
                parts.append(types.Part(function_call=call))
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def par(results: int) -> list[Said]:
    if results:
        return ["Done."]
    return ["Three at once.", ("c1", "t1"), ("c2", "t2"), ("c3", "t3")]


def noid(results: int) -> list[Said]:
    return [(None, said[1]) if isinstance(said, tuple) else said for said in par(results)]


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


def agent(scenario: str) -> LlmAgent:
    tools: list[Any] = [t1, t2, t3]
    if scenario == "sub":
        helper = LlmAgent(name="helper", model=Scripted(par), tools=tools)
        return LlmAgent(name="agent", model=Scripted(sub), tools=[AgentTool(helper)])
    return LlmAgent(name="agent", model=Scripted(SCENARIOS[scenario]), tools=tools)


PLACE: dict[str, Any] = {"app_name": "app", "user_id": "ann"}


async def events(
    made: BaseAgent, prompt: str | types.Content, service: Any = None, plugins: Any = ()
) -> list[Any]:
    """Run an agent once, with streams, and return its events."""
    service = service or InMemorySessionService()
    if await service.get_session(**PLACE, session_id="s") is None:
        await service.create_session(**PLACE, session_id="s")
    app = App(name="app", root_agent=made, plugins=list(plugins))
    runner = Runner(app=app, session_service=service)
    message = types.UserContent(prompt) if isinstance(prompt, str) else prompt
    return [
        event
        async for event in runner.run_async(
            user_id="ann",
            session_id="s",
            new_message=message,
            run_config=RunConfig(streaming_mode=StreamingMode.SSE),
        )
    ]


async def run(
    session: AsyncSession, made: BaseAgent, prompt: str, service: Any = None
) -> list[Any]:
    recorder = Recorder()
    async with session.turn(prompt) as turn:
        with recorder.recording(turn):
            return await events(made, prompt, service, [JournalContext(), recorder])


async def main(store_url: str, session_id: str, scenario: str) -> None:
    async with AsyncStore(store_url) as store:
        await run(await store.session(session_id), agent(scenario), PROMPT)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
