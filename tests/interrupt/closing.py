"""An asynchronous generator that holds the blocks is closed, or its consumer cancelled."""

from collections.abc import AsyncGenerator, Callable

import anyio

from killick import AsyncSession, Message, Text
from tests.interrupt.driving import Disk
from tests.interrupt.ledger import Ledger, use_again
from tests.interrupt.points import Points


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


async def chunks_of_tools(session: AsyncSession, ledger: Ledger) -> AsyncGenerator[str, None]:
    """The same, with tools that run while it yields."""

    async def quick() -> str:
        return "done"

    async def slow() -> str:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        return "done too"

    async with session.turn("prompt") as turn:
        ledger.begin(session, turn)
        async with turn.stream() as reply:
            running = turn.run_tools(reply, {"quick": quick, "slow": slow})
            try:
                async with running:
                    reply.tool_call("a", name="quick", arguments="{}")
                    yield "called"
                    reply.tool_call("b", name="slow", arguments="{}")
                    yield "called again"
                    while not running.results:
                        await anyio.lowlevel.checkpoint()
                    yield "run"
            finally:
                for call_id, result in running.results.items():
                    ledger.answer(turn, call_id, str(result.content))
            yield "tools left"
            ledger.end(reply)
        ledger.left(reply)
        yield "streamed"
        ledger.leave(turn)


Make = Callable[[AsyncSession, Ledger], AsyncGenerator[str, None]]
GENERATORS: list[tuple[Make, int]] = [(chunks, 9), (chunks_of_tools, 5)]
"""Each, and how often it yields."""


async def closed_after(disk: Disk, make: Make, yields: int) -> None:
    ledger = Ledger()
    async with disk.aio() as store:
        session = await store.create_session()
        generator = make(session, ledger)
        for _ in range(yields):
            await anext(generator)
        await generator.aclose()
        turns = [(turn.status, turn.reason) for turn in await session.turns()]
        assert turns == ([("interrupted", "closed")] if yields else [])
    with disk.sync() as fresh:
        ledger.check(fresh)
        use_again(fresh.session(session.id))
        fresh.delete_session(session.id)


async def cancelled_in_next(disk: Disk, make: Make, at: int) -> bool:
    """The consumer is cancelled at its k-th suspension, and closes the generator as it should."""
    ledger, points = Ledger(), Points({at}, "at once")
    async with disk.aio() as store:
        session = await store.create_session()
        generator = make(session, ledger)

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
