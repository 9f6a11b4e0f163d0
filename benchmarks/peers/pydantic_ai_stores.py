"""What pydantic-ai's harness keeps: conversations as a whole, and snapshots of each step."""

from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai_harness.step_persistence import ContinuableSnapshot, RunRecord, SqliteStepStore
from pydantic_ai_harness.step_persistence.conversations import (
    ConversationSummary,
    SqliteConversationStore,
)

from benchmarks.peers.contestant import FULL, SAID, Contestant, Conversation


def _said() -> ModelMessage:
    return ModelResponse(parts=[TextPart(SAID)])


class _Whole(Conversation):
    def __init__(self, store: SqliteConversationStore, name: str) -> None:
        self._store = store
        self._summary = ConversationSummary(id=name, workspace="bench")
        self._messages: list[ModelMessage] = []

    async def append(self) -> None:
        await self.fill(1)

    async def fill(self, messages: int) -> None:
        self._messages += [_said() for _ in range(messages)]
        self._summary = await self._store.save(summary=self._summary, messages=self._messages)

    async def load(self) -> int:
        return len((await self._store.get(conversation_id=self._summary.id)).messages)


class Conversations(Contestant):
    """The whole conversation in one row."""

    name = "pydantic-ai SqliteConversationStore"
    durability = FULL

    async def open(self) -> None:
        self._store = SqliteConversationStore(database=self.folder / "work.db")

    async def conversation(self, name: str) -> Conversation:
        return _Whole(self._store, name)


class _Steps(Conversation):
    def __init__(self, store: Any, name: str) -> None:
        self._store = store
        self._name = name
        self._messages: list[ModelMessage] = []

    async def append(self) -> None:
        await self.fill(1)

    async def fill(self, messages: int) -> None:
        self._messages += [_said() for _ in range(messages)]
        snapshot = ContinuableSnapshot(
            run_id=self._name, step_index=len(self._messages), messages=list(self._messages)
        )
        await self._store.save_snapshot(snapshot)

    async def load(self) -> int:
        found = await self._store.latest_snapshot(run_id=self._name)
        return len(found.messages)


class Steps(Contestant):
    """A snapshot of the conversation at each step, its messages stored once."""

    name = "pydantic-ai SqliteStepStore"
    durability = FULL
    bulk_fill = True

    async def open(self) -> None:
        self._store = SqliteStepStore(database=self.folder / "work.db")

    async def conversation(self, name: str) -> Conversation:
        await self._store.register_run(RunRecord(run_id=name))
        return _Steps(self._store, name)
