"""What a subject is given: tools, a provider, a folder, and who is told of the middle."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from peers.provider import Provider

Shown = Callable[[str], None]


class Tools:
    """Two tools that return and one that hangs."""

    def __init__(self, on_middle: Callable[[], None], *, second_fails: bool = False) -> None:
        self.reach_middle = on_middle
        self._second_fails = second_fails
        self._returned = asyncio.Semaphore(0)

    def all(self) -> tuple[Callable[[], Awaitable[str]], ...]:
        return self.t1, self.t2, self.t3

    async def t1(self) -> str:
        """The first."""
        self._returned.release()
        return "result-1"

    async def t2(self) -> str:
        """The second."""
        self._returned.release()
        if self._second_fails:
            raise ValueError("boom")
        return "result-2"

    async def t3(self) -> str:
        """The third."""
        for _ in range(2):
            await self._returned.acquire()
        self.reach_middle()
        await asyncio.Event().wait()
        return "never"

    async def until_asked(self) -> None:
        """A person is asked, and does not answer."""
        self.reach_middle()
        await asyncio.Event().wait()

    async def t4(self) -> str:
        """The fourth, which a person must approve."""
        return "never"


class Case(NamedTuple):
    """What a subject is given: where it may keep things, whom it asks, and who is told."""

    folder: Path
    provider: Provider
    tools: Tools
    shown: Shown


Subject = Callable[[Case, str], Awaitable[None]]
