"""One scenario, three ways to run it: the synchronous face, asyncio and trio.

A scenario is written against the asynchronous face. For the synchronous one the same names are
wrapped so that awaiting them is immediate; the scenario's coroutine then never suspends.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Literal

from killick.model import entries as e
from killick.session.aio import AsyncStore
from killick.session.sync import Session, Store
from killick.session.sync_blocks import Stream, Tool, ToolRun, Turn, WriteBatch
from killick.stores.contract import Database
from killick.testing.faults import crash

Face = Literal["sync", "asyncio", "trio"]
FACES: tuple[Face, ...] = ("sync", "asyncio", "trio")

_PLAIN = {
    *("turn", "stream", "tool", "text", "reasoning", "tool_call", "part", "output"),
    *("on_call", "cut_off", "end_part", "run_tools", "batch"),
}
"""Methods that are plain calls on both faces."""


def run_scenario(face: Face, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario to its end on one face."""
    if face == "asyncio":
        asyncio.run(scenario())
    elif face == "trio":
        import trio

        trio.run(scenario)
    else:
        _run_immediately(scenario())


def open_store(face: Face, *args: Any, **settings: Any) -> Any:
    """A store whose methods are awaited, whatever the face underneath."""
    if face == "sync":
        return _Awaited(Store(*args, **settings))
    return AsyncStore(*args, **settings)


def unwrap(store: Any) -> Store | AsyncStore:
    """The store itself."""
    inner: Store | AsyncStore = store._inner if isinstance(store, _Awaited) else store
    return inner


class _Awaited:
    """A synchronous object under the asynchronous face's names."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aenter__(self) -> Any:
        self._inner.__enter__()
        return self

    async def __aexit__(self, *leaving: Any) -> Any:
        return self._inner.__exit__(*leaving)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not inspect.ismethod(value):
            return value
        if name in ("follow", "part_events", "iter_messages"):
            return lambda **options: _iterate(value(**options))
        finish_of_a_stream = name == "finish" and isinstance(self._inner, Stream)
        collected = name != "write" and isinstance(self._inner, WriteBatch)
        if name in _PLAIN or finish_of_a_stream or collected:
            return lambda *args, **kwargs: _wrap(value(*args, **kwargs))
        return lambda *args, **kwargs: _immediate(value, *args, **kwargs)


async def _immediate(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return _wrap(call(*args, **kwargs))


def _wrap(value: Any) -> Any:
    faces = (Session, Turn, Stream, Tool, ToolRun, WriteBatch)
    return _Awaited(value) if isinstance(value, faces) else value


async def _iterate(items: Any) -> AsyncIterator[Any]:
    try:
        for item in items:
            yield item
    finally:
        items.close()


def _run_immediately(coroutine: Awaitable[None]) -> None:
    try:
        coroutine.send(None)  # type: ignore[attr-defined]
    except StopIteration:
        return
    raise AssertionError("a synchronous scenario must not suspend")


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
