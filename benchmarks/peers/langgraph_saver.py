"""LangGraph's checkpointer on SQLite: alone, and under the smallest graph there is."""

from contextlib import AsyncExitStack
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from benchmarks.peers.contestant import FULL, SAID, Contestant, Conversation


class _Checkpoints(Conversation):
    """Every checkpoint holds the whole list: that is the saver's interface."""

    def __init__(self, saver: AsyncSqliteSaver, name: str) -> None:
        self._saver = saver
        self._config: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        self._messages: list[AIMessage] = []

    async def append(self) -> None:
        self._messages.append(AIMessage(SAID))
        await self._put()

    async def fill(self, messages: int) -> None:
        self._messages += [AIMessage(SAID) for _ in range(messages)]
        await self._put()

    async def _put(self) -> None:
        version = len(self._messages)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(self._messages)}
        checkpoint["channel_versions"] = {"messages": version}
        metadata: Any = {"source": "loop", "step": version, "parents": {}}
        self._config = await self._saver.aput(
            self._config, checkpoint, metadata, {"messages": version}
        )

    async def load(self) -> int:
        found = await self._saver.aget_tuple(self._config)
        assert found is not None
        return len(found.checkpoint["channel_values"]["messages"])


class Saver(Contestant):
    """The checkpointer itself."""

    name = "LangGraph AsyncSqliteSaver"
    durability = FULL
    bulk_fill = True

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        path = str(self.folder / "work.db")
        self._saver = await self._stack.enter_async_context(AsyncSqliteSaver.from_conn_string(path))
        await self._saver.setup()

    async def conversation(self, name: str) -> Conversation:
        return _Checkpoints(self._saver, name)

    async def close(self) -> None:
        await self._stack.aclose()


class _Runs(Conversation):
    def __init__(self, graph: Any, name: str) -> None:
        self._graph = graph
        self._config = {"configurable": {"thread_id": name}}

    async def append(self) -> None:
        await self._graph.ainvoke({"messages": []}, self._config)

    async def fill(self, messages: int) -> None:
        said = [AIMessage(SAID) for _ in range(messages - 1)]
        await self._graph.ainvoke({"messages": said}, self._config)

    async def load(self) -> int:
        return len((await self._graph.aget_state(self._config)).values["messages"])


class Graph(Saver):
    """A graph of one node that says one message: what an agent on LangGraph pays."""

    name = "LangGraph, through a graph"

    async def conversation(self, name: str) -> Conversation:
        builder = StateGraph(MessagesState)
        builder.add_node("say", lambda _: {"messages": [AIMessage(SAID)]})
        builder.add_edge(START, "say")
        return _Runs(builder.compile(checkpointer=self._saver), name)
