"""One scenario, three ways to run it: the synchronous face, asyncio and trio.

A scenario is written against the asynchronous face. For the synchronous one the same names are
wrapped so that awaiting them is immediate; the scenario's coroutine then never suspends.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Literal

from killick.session.aio import AsyncStore
from killick.session.blocks import Stream, Tool, Turn
from killick.session.store import Session, Store

Face = Literal["sync", "asyncio", "trio"]
FACES: tuple[Face, ...] = ("sync", "asyncio", "trio")

_PLAIN = {
    *("turn", "stream", "tool", "text", "reasoning", "tool_call", "part", "output"),
    *("on_call", "cut_off", "end_part", "run_tools"),
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
    found: Store | AsyncStore = store._inner if isinstance(store, _Awaited) else store
    return found


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
        if name == "follow":
            return lambda **options: _iterate(value(**options))
        finish_of_a_stream = name == "finish" and isinstance(self._inner, Stream)
        if name in _PLAIN or finish_of_a_stream:
            return lambda *args, **kwargs: _wrap(value(*args, **kwargs))
        return lambda *args, **kwargs: _immediate(value, *args, **kwargs)


async def _immediate(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return _wrap(call(*args, **kwargs))


def _wrap(value: Any) -> Any:
    return _Awaited(value) if isinstance(value, Session | Turn | Stream | Tool) else value


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
