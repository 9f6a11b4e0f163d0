"""Interrupts an agent in the middle, in another process or in this one."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from killick import AsyncSession, Store
from killick.model import entries as e
from tests.waiting import until

ROOT = Path(__file__).parents[2]


def kill_in_the_middle(
    module: str, store: Path, scenario: str, is_middle: Callable[[Store], bool]
) -> None:
    """Run a scenario of a module in a process of its own, and kill it when it is in the middle."""
    with Store(store) as opened:
        opened.create_session(id="s")
        command = [sys.executable, "-m", module, str(store), "s", scenario]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as child:

            def reached() -> bool:
                if child.poll() is not None:
                    assert child.stderr is not None
                    raise AssertionError(child.stderr.read()[-3000:])
                return is_middle(opened)

            until(reached, seconds=40)
            child.kill()
            child.wait(30)


async def cancel_in_the_middle(
    running: Awaitable[object], is_middle: Callable[[], Awaitable[bool]]
) -> None:
    task = asyncio.ensure_future(running)
    await _in_the_middle(task, is_middle)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def time_out_in_the_middle(
    running: Awaitable[object], is_middle: Callable[[], Awaitable[bool]]
) -> None:
    limit = asyncio.timeout(None)

    async def limited() -> None:
        async with limit:
            await running

    task = asyncio.ensure_future(limited())
    await _in_the_middle(task, is_middle)
    limit.reschedule(asyncio.get_running_loop().time())
    [ended] = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(ended, TimeoutError)


async def _in_the_middle(
    task: "asyncio.Future[object] | asyncio.Future[None]", is_middle: Callable[[], Awaitable[bool]]
) -> None:
    async with asyncio.timeout(40):
        while not await is_middle():
            if task.done():
                task.result()
                raise AssertionError("it came to an end")
            await asyncio.sleep(0)


def two_of_three(entries: list[e.Entry]) -> bool:
    """Return whether two tools have returned and a third has started."""
    results = [entry for entry in entries if isinstance(entry.body, e.ToolFinished)]
    starts = [entry for entry in entries if isinstance(entry.body, e.ToolStarted)]
    return len(results) == 2 and len(starts) == 3


async def in_tools(session: AsyncSession) -> bool:
    return two_of_three(await session.entries())


def is_in_tools(store: Store) -> bool:
    """Return whether this, or a session of a subagent, is in the middle of three tools."""
    return any(two_of_three(store.session(info.id).entries()) for info in store.sessions(type=None))


def is_in_text(store: Store) -> bool:
    streaming = [one for one in store.session("s").messages() if one.state == "streaming"]
    return any("word9 " in one.text for one in streaming)
