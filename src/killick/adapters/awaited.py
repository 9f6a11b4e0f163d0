"""Write an adapter once for both faces: objects of the synchronous one whose methods are awaited.

What is awaited is done by then, so a coroutine over such objects never waits, and `run_now` runs it
to its end on the caller's thread.
"""

from collections.abc import Coroutine
from inspect import iscoroutinefunction
from typing import Any, Final, TypeVar, cast

from killick.session.aio import AsyncSession, AsyncStore
from killick.session.aio_blocks import AsyncStream, AsyncTool, AsyncTurn, AsyncWriteBatch
from killick.session.sync import Session, Store
from killick.session.sync_blocks import Stream, Tool, Turn, WriteBatch

T = TypeVar("T")

_FACES: Final[dict[type, type]] = {
    Store: AsyncStore,
    Session: AsyncSession,
    Turn: AsyncTurn,
    Stream: AsyncStream,
    Tool: AsyncTool,
    WriteBatch: AsyncWriteBatch,
}


def _is_awaited(face: object, name: str) -> bool:
    """Return whether the asynchronous face has this method as one that is awaited."""
    return iscoroutinefunction(getattr(_FACES[type(face)], name, None))


class Awaited:
    """A store, session or block of the synchronous face, called as one of the asynchronous."""

    def __init__(self, face: Any) -> None:
        self.face = face

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.face, name)
        if not callable(value):
            return value
        if not _is_awaited(self.face, name):
            return lambda *given, **named: self._shown(value(*given, **named))

        async def done(*given: Any, **named: Any) -> Any:
            return self._shown(value(*given, **named))

        return done

    def _shown(self, made: Any) -> Any:
        if made is self.face:
            return self
        return Awaited(made) if type(made) in _FACES else made


def awaited(turn: Turn) -> AsyncTurn:
    """Return a synchronous turn as an asynchronous one, for code that is run by `run_now`."""
    return cast("AsyncTurn", Awaited(turn))


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing; raises what it raises."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    coroutine.close()
    raise RuntimeError("it waited for something that is not done at once")
