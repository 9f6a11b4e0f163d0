"""Killick, through its asynchronous face, and raw SQLite at the same durability."""

from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.appends import message
from benchmarks.peers.contestant import FULL, Contestant, Conversation
from benchmarks.raw import RawWriter
from killick import AsyncSession, AsyncStore, AsyncTurn


class _Session(Conversation):
    def __init__(self, session: AsyncSession, turn: AsyncTurn) -> None:
        self._session = session
        self._turn = turn
        self._said = message()

    async def append(self) -> None:
        await self._turn.record(self._said)

    async def load(self) -> int:
        return len(await self._session.messages())

    async def load_last(self, count: int) -> int:
        return len(await self._session.messages(last=count))


class Killick(Contestant):
    """Without the search index, which no peer has: it would be filled while others are measured."""

    name = "Killick"
    durability = FULL

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        store = AsyncStore(self.folder / "work.db", indexing=False)
        self._store = await self._stack.enter_async_context(store)

    async def conversation(self, name: str) -> Conversation:
        session = await self._store.create_session(title=name)
        turn = await self._stack.enter_async_context(session.turn("Go."))
        return _Session(session, turn)

    async def close(self) -> None:
        await self._stack.aclose()


class _RawRows(Conversation):
    def __init__(self, writer: RawWriter) -> None:
        self._writer = writer

    async def append(self) -> None:
        self._writer.append(1)

    async def load(self) -> int:
        return self._writer.load()

    async def load_last(self, count: int) -> int:
        return self._writer.load(last=count)


class RawSqlite(Contestant):
    """One table, one row for each message, one transaction for each row."""

    name = "raw SQLite"
    durability = FULL

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._writers: list[RawWriter] = []

    async def conversation(self, name: str) -> Conversation:
        folder = self.folder / name
        folder.mkdir()
        self._writers.append(RawWriter(folder, warm=False))
        return _RawRows(self._writers[-1])

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
