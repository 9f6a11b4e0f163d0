"""The session services of Google's Agent Development Kit, on SQLite."""

from typing import Any

from google.adk.events.event import Event
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai.types import Content, Part

from benchmarks.peers.contestant import FULL, SAID, Contestant, Conversation

_WHO = {"app_name": "bench", "user_id": "somebody"}


class _Events(Conversation):
    def __init__(self, service: Any, session: Any) -> None:
        self._service = service
        self._session = session

    async def append(self) -> None:
        content = Content(role="model", parts=[Part(text=SAID)])
        await self._service.append_event(self._session, Event(author="agent", content=content))

    async def load(self) -> int:
        found = await self._service.get_session(**_WHO, session_id=self._session.id)
        return len(found.events)

    async def load_last(self, count: int) -> int:
        config = GetSessionConfig(num_recent_events=count)
        found = await self._service.get_session(**_WHO, session_id=self._session.id, config=config)
        return len(found.events)


class Sqlite(Contestant):
    """The service made for SQLite."""

    name = "google-adk SqliteSessionService"
    durability = FULL

    async def open(self) -> None:
        self._service: Any = SqliteSessionService(str(self.folder / "work.db"))

    async def conversation(self, name: str) -> Conversation:
        session = await self._service.create_session(**_WHO, session_id=name)
        return _Events(self._service, session)

    async def close(self) -> None:
        await self._service.close()


class Database(Sqlite):
    """The one for any database."""

    name = "google-adk DatabaseSessionService"

    async def open(self) -> None:
        self._service = DatabaseSessionService(f"sqlite+aiosqlite:///{self.folder / 'work.db'}")
