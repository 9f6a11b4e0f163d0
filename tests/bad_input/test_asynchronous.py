"""The same refusals, awaited: under asyncio and under trio."""

# ruff: noqa: PT012  (the block that an exception leaves is what is tested)

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from killick import (
    AsyncStore,
    CallNotFound,
    HandleClosed,
    IdConflict,
    InvalidEntry,
    SessionBusy,
    SessionDeleted,
    SessionNotFound,
    Text,
    ToolNotFinished,
    TurnEnded,
)
from killick.model.messages import Message
from tests.bad_input.helpers import calling, saying

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def run(backend: str, path: Path, work: Callable[[AsyncStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncStore(path) as store:
            await work(store)

    anyio.run(main, backend=backend)


@BACKENDS
def test_an_unknown_session_is_refused(path: Path, backend: str) -> None:
    async def work(store: AsyncStore) -> None:
        with pytest.raises(SessionNotFound, match=r"store\.sessions\(\)"):
            await store.session("gone")

    run(backend, path, work)


@BACKENDS
def test_conflicts_and_unknown_calls_are_refused_and_nothing_is_stored(
    path: Path, backend: str
) -> None:
    async def work(store: AsyncStore) -> None:
        session = await store.create_session(id="s")
        async with session.turn("go") as turn:
            await turn.record(saying("first", id="mine"))
            before = await session.entries()
            with pytest.raises(IdConflict):
                await turn.record(saying("second", id="mine"))
            with pytest.raises(CallNotFound):
                await session.finish_tool(turn.id, "c1", "x")
            with pytest.raises(CallNotFound):
                async with turn.tool("c1"):
                    pass
            with pytest.raises(InvalidEntry):
                await turn.record(Message(role="user", parts=[Text("x")] * 10_000))
            assert await session.entries() == before

    run(backend, path, work)


@BACKENDS
def test_a_write_after_the_end_and_a_delta_to_a_closed_stream_are_refused(
    path: Path, backend: str
) -> None:
    async def work(store: AsyncStore) -> None:
        session = await store.create_session(id="s")
        async with session.turn("go") as turn:
            async with turn.stream() as reply:
                reply.text("in time")
            with pytest.raises(HandleClosed):
                reply.text("late")
        before = await session.entries()
        with pytest.raises(TurnEnded):
            await turn.record(saying("x"))
        with pytest.raises(TurnEnded):
            async with turn.stream():
                pass
        assert await session.entries() == before

    run(backend, path, work)


@BACKENDS
def test_a_turn_on_a_busy_or_deleted_session_is_refused(path: Path, backend: str) -> None:
    async def work(store: AsyncStore) -> None:
        session = await store.create_session(id="s")
        async with session.turn("go") as turn:
            with pytest.raises(SessionBusy) as caught:
                async with session.turn("mine"):
                    pass
            assert caught.value.turn_id == turn.id
        await store.delete_session("s")
        with pytest.raises(SessionDeleted):
            async with session.turn("go"):
                pass
        with pytest.raises(SessionDeleted):
            await store.session("s")

    run(backend, path, work)


@BACKENDS
def test_a_tool_left_without_finish_is_a_usage_error(path: Path, backend: str) -> None:
    async def work(store: AsyncStore) -> None:
        session = await store.create_session(id="s")
        with pytest.raises(ToolNotFinished):
            async with session.turn("go") as turn:
                await turn.record(calling())
                async with turn.tool("c1"):
                    pass
        assert (await session.turns())[-1].status == "failed"

    run(backend, path, work)


@BACKENDS
def test_a_closed_store_refuses(path: Path, backend: str) -> None:
    async def main() -> None:
        async with AsyncStore(path) as store:
            session = await store.create_session(id="s")
        with pytest.raises(HandleClosed):
            await session.note("n")
        with pytest.raises(HandleClosed):
            await session.entries()

    anyio.run(main, backend=backend)
