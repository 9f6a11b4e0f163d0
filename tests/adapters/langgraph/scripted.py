"""Agents of LangChain in the middle of something, with a scripted model.

    python -m tests.adapters.langgraph.scripted STORE SESSION SCENARIO

runs one of them and never ends by itself: a tool hangs, or a text goes on.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool

from killick import AsyncSession, AsyncStore
from killick.adapters.langchain import JournalView, Recorder
from killick.adapters.langgraph import KillickSaver

PROMPT = "PROMPT-1"
WORDS = [f"word{number} " for number in range(50)]
Said = str | tuple[str, str]
"""Words, or a call: its id and the tool's name."""


class Scripted(BaseChatModel):
    """Answers as a function of how many results there are; remembers what it was sent."""

    script: Any
    asked: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _said(self, messages: list[Any]) -> list[Said]:
        self.asked[:] = messages
        said: list[Said] = self.script(sum(one.type == "tool" for one in messages))
        return said

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:
        said = self._said(messages)
        calls = [{"id": one[0], "name": one[1], "args": {}} for one in said if type(one) is tuple]
        words = "".join(one for one in said if isinstance(one, str))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(words, tool_calls=calls))])

    def _chunks(self, messages: Any) -> Iterator[Any]:
        for number, one in enumerate(self._said(messages)):
            if isinstance(one, str):
                for word in one.split(" "):
                    yield ChatGenerationChunk(message=AIMessageChunk(f"{word} "))
            else:
                call = {"id": one[0], "name": one[1], "args": "{}", "index": number}
                yield ChatGenerationChunk(
                    message=AIMessageChunk(
                        "", tool_call_chunks=[{"type": "tool_call_chunk", **call}]
                    )
                )

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> Any:
        for chunk in self._chunks(messages):
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any
    ) -> AsyncIterator[Any]:
        hangs = False
        for chunk in self._chunks(messages):
            hangs = hangs or "word49" in chunk.text
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk
        if hangs:
            await asyncio.Event().wait()


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


def sub(results: int) -> list[Said]:
    return ["I ask somebody.", ("s1", "helper")]


SCENARIOS = {"par": par, "seq": seq, "text": text, "sub": sub}


@tool
async def t1() -> str:
    """The first."""
    return "result-1"


@tool
async def t2() -> str:
    """The second."""
    return "result-2"


@tool
async def t3() -> str:
    """The third."""
    await asyncio.Event().wait()
    raise AssertionError("it hangs")


@tool
async def helper() -> str:
    """Asks another agent."""
    inner = create_agent(Scripted(script=par, asked=[]), [t1, t2, t3])
    made = await inner.ainvoke({"messages": [HumanMessage("Help.")]})
    return str(made["messages"][-1].content)


def agent(script: Any, **given: Any) -> Any:
    return create_agent(Scripted(script=script, asked=[]), [t1, t2, t3, helper], **given)


async def run(
    store: AsyncStore, session: AsyncSession, script: Any, prompt: str, **given: Any
) -> Any:
    """Run an agent with a checkpoint in the same session, and the journal's view."""
    made = create_agent(
        script if isinstance(script, Scripted) else Scripted(script=script, asked=[]),
        [t1, t2, t3, helper],
        checkpointer=KillickSaver(store),
        middleware=[JournalView(session)],
    )
    async with session.turn(prompt) as turn:
        config = {"configurable": {"thread_id": session.id}, "callbacks": [Recorder(turn)]}
        said = {"messages": [HumanMessage(prompt)]}
        async for _ in made.astream(said, config, stream_mode="messages"):
            pass


async def main(store_url: str, session_id: str, scenario: str) -> None:
    async with AsyncStore(store_url) as store:
        await run(store, await store.session(session_id), SCENARIOS[scenario], PROMPT)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
