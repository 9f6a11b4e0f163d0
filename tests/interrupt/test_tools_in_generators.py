"""`run_tools` in an asynchronous generator, as servers stream: left in every way there is.

Two tools run: one is done, one waits for ever, except where the generator is run to its end.
"""

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio

from killick import AsyncSession, AsyncStore, Cause, TurnStopped

LIMIT_SECONDS = 20


class Scene:
    """One session, its generator, and what became of the caller."""

    def __init__(self, session: AsyncSession) -> None:
        self.session = session
        self.release = anyio.Event()
        self.fails = False

    async def quick(self) -> str:
        return "done"

    async def slow(self) -> str:
        await self.release.wait()
        return "slow"

    async def agent(self) -> AsyncGenerator[str, None]:
        async with self.session.turn("go") as turn:
            yield "begun"
            async with turn.stream() as reply:
                yield "streaming"
                for name in ("quick", "slow"):
                    reply.tool_call(name, name=name, arguments="{}")
            tools = {"quick": self.quick, "slow": self.slow}
            async with turn.run_tools(reply, tools) as running:
                while "quick" not in running.results:
                    await anyio.lowlevel.checkpoint()
                yield "running"
                if self.fails:
                    raise ZeroDivisionError
            yield "run"

    async def until_running(self, generator: AsyncGenerator[str, None]) -> None:
        while await anext(generator) != "running":
            pass

    async def until_ended(self) -> None:
        async for item in self.session.follow():
            if getattr(item, "kind", None) == "turn_ended":
                return


Way = Callable[[Scene], Awaitable[tuple[str, Cause | None]]]


async def by_break(scene: Scene) -> tuple[str, Cause | None]:
    async for step in scene.agent():
        if step == "running":
            break
    gc.collect()
    await scene.until_ended()
    return "interrupted", "abandoned"


async def closed_by_another_task(scene: Scene) -> tuple[str, Cause | None]:
    generator = scene.agent()
    await scene.until_running(generator)
    async with anyio.create_task_group() as others:
        others.start_soon(generator.aclose)
    return "interrupted", "abandoned"


async def a_task_for_each_step(scene: Scene) -> tuple[str, Cause | None]:
    generator, steps = scene.agent(), []

    async def step() -> None:
        steps.append(await anext(generator, None))

    scene.release.set()
    while not steps or steps[-1] is not None:
        async with anyio.create_task_group() as others:
            others.start_soon(step)
    assert steps == ["begun", "streaming", "running", "run", None]
    return "completed", None


async def closed_after_a_task_for_each_step(scene: Scene) -> tuple[str, Cause | None]:
    generator, steps = scene.agent(), []

    async def step() -> None:
        steps.append(await anext(generator))

    while not steps or steps[-1] != "running":
        async with anyio.create_task_group() as others:
            others.start_soon(step)
    await generator.aclose()
    return "interrupted", "abandoned"


async def by_an_exception(scene: Scene) -> tuple[str, Cause | None]:
    generator, scene.fails = scene.agent(), True
    await scene.until_running(generator)
    with pytest.raises(ZeroDivisionError):
        await anext(generator)
    return "failed", "failed"


async def with_its_consumer_cancelled(scene: Scene) -> tuple[str, Cause | None]:
    generator = scene.agent()
    await scene.until_running(generator)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await anext(generator)  # waits for the tool that never ends
    assert scope.cancelled_caught
    return "interrupted", "cancelled"


async def to_its_end(scene: Scene) -> tuple[str, Cause | None]:
    scene.release.set()
    assert [step async for step in scene.agent()] == ["begun", "streaming", "running", "run"]
    return "completed", None


async def stopped(scene: Scene) -> tuple[str, Cause | None]:
    """It is asked to stop while it waits for the tool."""
    generator = scene.agent()
    await scene.until_running(generator)
    await scene.session.stop()
    with pytest.raises(TurnStopped):
        await anext(generator)
    return "interrupted", "stopped"


async def stopped_after_a_task_for_each_step(scene: Scene) -> tuple[str, Cause | None]:
    generator, steps = scene.agent(), []

    async def step() -> None:
        steps.append(await anext(generator))

    while not steps or steps[-1] != "running":
        async with anyio.create_task_group() as others:
            others.start_soon(step)

    async with anyio.create_task_group() as others:
        others.start_soon(scene.session.stop)
        with pytest.raises(TurnStopped):
            await anext(generator)
    return "interrupted", "stopped"


async def stopped_while_its_consumer_is_elsewhere(scene: Scene) -> tuple[str, Cause | None]:
    """The consumer's own work is not cancelled: the generator raises when it is asked again."""
    generator = scene.agent()
    await scene.until_running(generator)
    told, stop = anyio.Event(), scene.session.stop

    async def elsewhere() -> None:
        await stop()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        told.set()

    async with anyio.create_task_group() as others:
        others.start_soon(elsewhere)
        await told.wait()  # as a server sends what it was given
    with pytest.raises(TurnStopped):
        await anext(generator)
    return "interrupted", "stopped"


WAYS: list[Way] = [
    by_break,
    closed_by_another_task,
    a_task_for_each_step,
    closed_after_a_task_for_each_step,
    by_an_exception,
    with_its_consumer_cancelled,
    to_its_end,
    stopped,
    stopped_after_a_task_for_each_step,
    stopped_while_its_consumer_is_elsewhere,
]


def run(library: str, main: Callable[[], Awaitable[None]]) -> None:
    complaints: list[Any] = []

    async def in_asyncio() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
        await asyncio.wait_for(main(), LIMIT_SECONDS)

    async def in_trio() -> None:
        with trio.fail_after(LIMIT_SECONDS):
            await main()

    if library == "asyncio":
        asyncio.run(in_asyncio())
    else:
        trio.run(in_trio)
    gc.collect()
    assert complaints == []


@pytest.mark.filterwarnings("ignore:Async generator")  # trio's, about a loop that is left by break
@pytest.mark.parametrize("library", ["asyncio", "trio"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.__name__))
def test_a_generator_that_runs_tools_is_left(tmp_path: Path, way: Way, library: str) -> None:
    """The turn has its ending, results that were there are kept, and no task is cancelled."""

    async def main() -> None:
        async with AsyncStore(tmp_path / "work.db") as store:
            session = await store.create_session()
            scene = Scene(session)
            with anyio.CancelScope() as own:
                ending = await way(scene)
                await anyio.lowlevel.checkpoint()  # the caller goes on
            assert not own.cancelled_caught
            current = asyncio.current_task() if library == "asyncio" else None
            assert current is None or current.cancelling() == 0
            [info] = await session.turns()
            assert (info.status, info.cause) == ending
            results = [m.parts[0].content for m in await session.messages() if m.role == "tool"]  # type: ignore[union-attr]
            assert sorted(results) == (["done", "slow"] if ending[0] == "completed" else ["done"])
            async with session.turn("again"):
                pass

    run(library, main)
