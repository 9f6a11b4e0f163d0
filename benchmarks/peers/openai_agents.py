"""The sessions of the OpenAI Agents SDK."""

from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession, SQLAlchemySession
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.peers.contestant import FULL, SAID, Contestant, Conversation


def _item() -> dict[str, Any]:
    return {"role": "assistant", "content": SAID}


class _Items(Conversation):
    def __init__(self, session: Any) -> None:
        self._session = session

    async def append(self) -> None:
        await self._session.add_items([_item()])

    async def fill(self, messages: int) -> None:
        for begin in range(0, messages, 500):
            await self._session.add_items([_item()] * min(500, messages - begin))

    async def load(self) -> int:
        return len(await self._session.get_items())

    async def load_last(self, count: int) -> int:
        return len(await self._session.get_items(limit=count))


class Sqlite(Contestant):
    """The SDK's default."""

    name = "openai-agents SQLiteSession"
    durability = FULL
    together_max = 64  # a connection for each session and thread: a thousand ran out of files

    async def open(self) -> None:
        self._sessions: list[Any] = []

    async def conversation(self, name: str) -> Conversation:
        session = self._session(name)
        self._sessions.append(session)
        return _Items(session)

    def _session(self, name: str) -> Any:
        return SQLiteSession(name, self.folder / "work.db")

    async def close(self) -> None:
        for session in self._sessions:
            session.close()


class AdvancedSqlite(Sqlite):
    """With branches and usage."""

    name = "openai-agents AdvancedSQLiteSession"

    def _session(self, name: str) -> Any:
        return AdvancedSQLiteSession(
            session_id=name, db_path=self.folder / "work.db", create_tables=True
        )


class SqlAlchemy(Contestant):
    """Through SQLAlchemy, on SQLite."""

    name = "openai-agents SQLAlchemySession"
    durability = FULL

    async def open(self) -> None:
        self._engine = create_async_engine(f"sqlite+aiosqlite:///{self.folder / 'work.db'}")

    async def conversation(self, name: str) -> Conversation:
        return _Items(SQLAlchemySession(name, engine=self._engine, create_tables=True))

    async def close(self) -> None:
        await self._engine.dispose()
