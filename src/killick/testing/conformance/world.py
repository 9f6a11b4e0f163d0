"""One face on one database, and what the checks share."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from killick.model import entries as e
from killick.stores.base import Database
from killick.testing.crash import crash
from killick.testing.faces import Face, open_store, run_scenario, unwrap

AWKWARD = [
    "quotes ' \" `",
    "nul \0 inside",
    "lone \ud800 surrogate \udfff",
    "right-to-left \u202e mark",
    "line\u2028separator\nand\r\nbreaks",
    "emoji \U0001f980 and combining e\u0301",
]


class World:
    """One face on one database, as often opened as a check likes."""

    def __init__(self, face: Face, make: Callable[[], Database], **settings: Any) -> None:
        self.face = face
        self._make = make
        self._settings = {"window_seconds": 0.02, **settings}

    def run(self, check: "Check") -> None:
        run_scenario(self.face, lambda: _awaited(check(self)))

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Any]:
        """An opening of the database, closed at the end."""
        async with open_store(self.face, self._make(), **self._settings) as store:
            yield store

    @asynccontextmanager
    async def crashing(self, **settings: Any) -> AsyncIterator[Any]:
        """An opening whose process dies at the end of the block."""
        store = open_store(self.face, self._make(), **{**self._settings, **settings})
        yield store
        crash(unwrap(store))


Check = Callable[[World], Awaitable[None]]
CHECKS: list[Check] = []


async def _awaited(check: Awaitable[None]) -> None:
    await check


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


class Boom(Exception):
    """A failure of the caller's own."""


async def raises(kind: type[BaseException], awaitable: Awaitable[Any]) -> BaseException:
    try:
        await awaitable
    except kind as error:
        assert str(error), "an error says what is wrong"
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def kinds(entries: list[e.Entry]) -> list[str]:
    return [entry.kind for entry in entries]


async def texts(session: Any) -> list[tuple[str, str, str]]:
    return [(m.role, m.state, m.text) for m in await session.messages()]


async def enter(turn: Any) -> Any:
    return await turn.__aenter__()


async def leave(turn: Any) -> None:
    await turn.__aexit__(None, None, None)
