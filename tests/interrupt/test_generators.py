"""An asynchronous generator that holds the blocks is closed at each of its yields."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import anyio
import pytest
import trio

from holdfast import AsyncSession, Message, Text
from tests.interrupt.driving import Disk
from tests.interrupt.ledger import Ledger, use_again
from tests.interrupt.points import Points

_YIELDS = 9

Runner = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


async def chunks(session: AsyncSession, ledger: Ledger) -> AsyncGenerator[str, None]:
    """An agent as people write it: it yields while its blocks are open."""
    async with session.turn("prompt") as turn:
        ledger.begin(session, turn)
        yield "begun"
        async with turn.stream() as reply:
            yield "streaming"
            ledger.say(reply, "Let me ")
            yield "said"
            ledger.say(reply, "look.")
            reply.tool_call("a", name="shell", arguments="{}")
            yield "called"
            async with turn.tool("a") as call:
                ledger.output(turn, call, "a", "some")
                yield "printed"
                await call.finish("done")
                ledger.answer(turn, "a", "done")
                yield "finished"
            yield "tool left"
            ledger.end(reply)
        ledger.left(reply)
        yield "streamed"
        await turn.record(Message("assistant", [Text("last")], id="last"))
        ledger.record(session, "last")
        yield "recorded"
        ledger.leave(turn)


async def closed_after(disk: Disk, yields: int) -> None:
    ledger = Ledger()
    async with disk.aio() as store:
        session = await store.create_session()
        generator = chunks(session, ledger)
        for _ in range(yields):
            await anext(generator)
        await generator.aclose()
        turns = [(turn.status, turn.reason) for turn in await session.turns()]
        assert turns == ([("interrupted", "closed")] if yields else [])
    with disk.sync() as fresh:
        ledger.check(fresh)
        use_again(fresh.session(session.id))


async def cancelled_in_next(disk: Disk, at: int) -> bool:
    """The consumer is cancelled at its k-th suspension, and closes the generator as it should."""
    ledger, points = Ledger(), Points({at}, "at once")
    async with disk.aio() as store:
        session = await store.create_session()
        generator = chunks(session, ledger)

        async def consume() -> None:
            try:
                async for _ in generator:
                    await anyio.lowlevel.checkpoint()
            finally:
                await generator.aclose()

        with anyio.CancelScope() as scope:
            points.interrupt = scope.cancel
            await points.watch(consume())
    with disk.sync() as fresh:
        ledger.check(fresh)
        use_again(fresh.session(session.id))
        fresh.delete_session(session.id)
    assert scope.cancelled_caught or points.count - points.fired_at <= 1 or not points.fired
    return bool(points.fired)


def run_asyncio(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


def run_trio(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    trio.run(main)


RUNNERS = pytest.mark.parametrize("run", [run_asyncio, run_trio])


@RUNNERS
@pytest.mark.parametrize("yields", range(_YIELDS + 1))
def test_closed_at_a_yield(disk: Disk, run: Runner, yields: int) -> None:
    """The turn is interrupted because it was closed; what was said and done is kept."""
    run(lambda: closed_after(disk, yields))


@RUNNERS
def test_the_consumer_is_cancelled(disk: Disk, run: Runner) -> None:
    """Whoever reads from the generator is cancelled at each suspension of both."""

    async def all_points() -> None:
        at = 1
        while await cancelled_in_next(disk, at):
            at += 1
        assert at > _YIELDS

    run(all_points)


def test_closed_under_a_scope_of_its_own_in_trio(disk: Disk) -> None:
    """trio refuses to leave scopes in another order than they were entered; the turn is ended."""
    ledger = Ledger()

    async def main() -> None:
        async with disk.aio() as store:
            session = await store.create_session()
            generator = chunks(session, ledger)
            await anext(generator)
            with trio.CancelScope(shield=True):
                await generator.aclose()

    with pytest.raises(RuntimeError, match="Cancel scope stack corrupted"):
        trio.run(main)
    with disk.sync() as fresh:
        ledger.check(fresh)
        [info] = fresh.sessions()
        [turn] = fresh.session(info.id).turns()
        assert (turn.status, turn.reason) == ("interrupted", "closed")
