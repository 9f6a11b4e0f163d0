"""Record a provider's stream on the asynchronous face."""

import contextlib
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
)
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import anyio

from killick.errors import KillickError, TurnEnded
from killick.recorders.actions import MediaPiece
from killick.recorders.apply import LEFT, DeltaApplier
from killick.recorders.model_call import (
    DRAINING,
    Handle,
    Plan,
    check_source,
    must_be_whole,
    must_stream,
)
from killick.session.aio_blocks import AsyncTurn

T = TypeVar("T")
AsyncOpened = AsyncIterable[T] | AbstractAsyncContextManager[AsyncIterable[T]]
AsyncSource = (
    AsyncOpened[T]
    | Awaitable[AsyncOpened[T]]
    | Callable[[], AsyncOpened[T] | Awaitable[AsyncOpened[T]]]
)
"""As for the synchronous face; and a coroutine of the SDK's, which is awaited here."""

_STREAMS: Final = ("__aiter__", "__anext__", "__aenter__", "__await__")

_DISCONNECT_SECONDS: Final = 5.0
"""Closing a connection may take so long, also for a caller that was cancelled."""

_ITEMS_AHEAD: Final = 10_000
"""What was read from the network and not asked for yet stands before the next wait for it."""


class AsyncRecording(Handle, Generic[T]):
    """A provider's stream that is recorded as it flows. Read it as you would read that one.

    A loop that is left closes it: at once with asyncio, when the generator is collected. Stepping
    through it by hand, or with trio, use it as a block.
    """

    def __init__(self, turn: AsyncTurn, plan: Plan, source: AsyncSource[T]) -> None:
        check_source(source, streams=_STREAMS)
        self._turn = turn
        self._stream = turn.stream(**plan.settings)
        super().__init__(plan, self._stream)
        self._applier = DeltaApplier(plan.kind, self._stream)
        self._source: Any = source
        self._manager: AbstractAsyncContextManager[Any] | None = None
        self._inner: Any = None
        self._iterator: AsyncIterator[T] | None = None
        self._entered = self._over = False

    # -- reading -------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[T]:
        # A generator of its own for each loop: leaving the loop lets go of it, which closes it.
        try:
            while True:
                try:
                    item = await self.__anext__()
                except StopAsyncIteration:
                    return
                yield item
        finally:
            await self.close()

    async def __anext__(self) -> T:
        if self._over:
            raise StopAsyncIteration
        try:
            item = await anext(self._iterator or await self._open())
            for media in self._applier.feed(item):
                await self._place(media)
        except StopAsyncIteration:
            await self._end(None)
            cut = self._cut(ended=self._applier.ended)
            if cut is not None:
                raise cut from None
            raise
        except BaseException as error:
            await self._end(error)
            raise
        return item

    async def whole(self) -> Any:
        """Return the whole response of a source that was not asked to stream, and record it.

        If interrupted: what the provider answered is recorded or it is not.
        """
        try:
            await self._enter()
            self._inner = await self._made()
            must_be_whole(self._inner)
            for media in self._applier.feed_response(self._inner):
                await self._place(media)
        except BaseException as error:
            await self._end(error)
            raise
        await self._end(None)
        return self._inner

    @property
    async def text_stream(self) -> AsyncIterator[str]:
        """Yield the text alone, as an SDK's helper stream does; everything is recorded."""
        async for item in self:
            delta = getattr(item, "delta", None)
            text = getattr(delta, "text", None)
            if isinstance(text, str):
                yield text

    def __getattr__(self, name: str) -> Any:
        # Only names that are not ours come here.
        if name.startswith("__"):
            raise AttributeError(name)
        if name in DRAINING:
            return lambda *args, **kwargs: self._drain_and_ask(name, *args, **kwargs)
        if self._inner is None:
            raise AttributeError(f"{name!r} is the stream's, which is not open before it is read")
        return getattr(self._inner, name)

    async def _drain_and_ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
        async for _ in self:
            pass
        return await getattr(self._inner, name)(*args, **kwargs)

    # -- opening and closing ---------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException as error:
            await self._end(error)
            raise
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self._end(error, LEFT)

    async def close(self) -> None:
        """Close the provider's connection and keep what came, as a partial message.

        If interrupted: what came is kept; the turn's ending closes the message.
        """
        await self._end(None, LEFT)

    async def _enter(self) -> None:
        if not self._entered:
            await self._stream.__aenter__()
            self._entered = True

    async def _made(self) -> Any:
        """Make the request if the source is a function; the model call is durable before."""
        made = self._source() if callable(self._source) else self._source
        return await made if inspect.isawaitable(made) else made

    async def _open(self) -> AsyncIterator[T]:
        if self._iterator is not None:
            return self._iterator
        await self._enter()
        made = await self._made()
        must_stream(made, streams=_STREAMS)
        if not hasattr(made, "__aiter__") and hasattr(made, "__aenter__"):
            self._manager = made
            made = await made.__aenter__()
        self._inner = made
        self._iterator = aiter(made)
        return self._iterator

    async def _place(self, media: MediaPiece) -> None:
        self._applier.place(media, await self._turn.put_blob(media.data))

    async def _end(self, error: BaseException | None, why: str | None = None) -> None:
        if self._over:
            return
        self._over = True
        try:
            await self._leave(error, why)
        finally:
            # A connection that cannot be closed is of no consequence any more.
            with anyio.move_on_after(_DISCONNECT_SECONDS, shield=True):
                with contextlib.suppress(Exception):
                    await self._disconnect(error)

    async def _leave(self, error: BaseException | None, why: str | None) -> None:
        # The ending of a turn that is over has taken what came.
        if not self._entered or (why is not None and self._turn.status != "running"):
            return
        failure = None
        try:
            held: Iterator[MediaPiece] = self._applier.close(why)
            for media in held:
                await self._place(media)
        except KillickError as refused:
            failure = refused
        leaving = error if error is not None else failure
        try:
            await self._stream.__aexit__(None if leaving is None else type(leaving), leaving, None)
        except TurnEnded:
            if why is None:  # a caller that only closes hears of it where the turn is left
                raise
        if error is None and failure is not None:
            raise failure

    async def _disconnect(self, error: BaseException | None) -> None:
        if self._manager is not None:
            await self._manager.__aexit__(None if error is None else type(error), error, None)
            return
        inner = self._inner if self._inner is not None else self._source
        if inspect.isasyncgen(inner):
            await _unwind(inner)
        close = getattr(inner, "aclose", None) or getattr(inner, "close", None)
        if callable(close):
            closing = close()
            if inspect.isawaitable(closing):
                await closing


async def _unwind(generator: AsyncGenerator[Any, Any]) -> None:
    """End a generator from within, by a cancellation where it waits for the network.

    Closing one closes only that one: a connection that is held by generators inside of it, as in
    google-genai, would stay open until the garbage collector comes by.
    """
    with anyio.CancelScope() as scope, contextlib.suppress(Exception):
        scope.cancel()
        for _ in range(_ITEMS_AHEAD):
            await anext(generator)
