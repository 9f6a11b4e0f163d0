"""Record a provider's stream on the synchronous face."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

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
from killick.session.sync_blocks import Turn

T = TypeVar("T")
Opened = Iterable[T] | AbstractContextManager[Iterable[T]]
Source = Opened[T] | Callable[[], Opened[T]]
"""A stream, an SDK's stream manager, or a function that makes the request and returns one."""

_STREAMS: Final = ("__iter__", "__next__", "__enter__")


class Recording(Handle, Generic[T]):
    """A provider's stream that is recorded as it flows. Read it as you would read that one.

    A loop that is left, in whatever way, closes it; stepping through it by hand, use it as a block.
    """

    def __init__(self, turn: Turn, plan: Plan, source: Source[T]) -> None:
        check_source(source, streams=_STREAMS)
        self._turn = turn
        self._stream = turn.stream(**plan.settings)
        super().__init__(plan, self._stream)
        self._applier = DeltaApplier(plan.kind, self._stream)
        self._source: Any = source
        self._manager: AbstractContextManager[Any] | None = None
        self._inner: Any = None
        self._iterator: Iterator[T] | None = None
        self._entered = self._over = False

    # -- reading -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[T]:
        # A generator of its own for each loop: leaving the loop lets go of it, which closes it.
        try:
            while True:
                try:
                    item = self.__next__()
                except StopIteration:
                    return
                yield item
        finally:
            self.close()

    def __next__(self) -> T:
        if self._over:
            raise StopIteration
        try:
            item = next(self._iterator or self._open())
            self._place(self._applier.feed(item))
        except StopIteration:
            self._end(None)
            cut = self._cut(ended=self._applier.ended)
            if cut is not None:
                raise cut from None
            raise
        except BaseException as error:
            self._end(error)
            raise
        return item

    def whole(self) -> Any:
        """Return the whole response of a source that was not asked to stream, and record it.

        If interrupted: what the provider answered is recorded or it is not.
        """
        try:
            self._enter()
            self._inner = self._source() if callable(self._source) else self._source
            must_be_whole(self._inner)
            self._place(self._applier.feed_response(self._inner))
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)
        return self._inner

    @property
    def text_stream(self) -> Iterator[str]:
        """Yield the text alone, as an SDK's helper stream does; everything is recorded."""
        for item in self:
            delta = getattr(item, "delta", None)
            text = getattr(delta, "text", None)
            if isinstance(text, str):
                yield text

    def __getattr__(self, name: str) -> Any:
        # Only names that are not ours come here. Before the first chunk the stream is opened.
        if name.startswith("__"):
            raise AttributeError(name)
        if self._inner is None:
            self._guarded_open()
        attribute = getattr(self._inner, name)
        if name not in DRAINING:
            return attribute

        def drain_and_ask(*args: Any, **kwargs: Any) -> Any:
            for _ in self:
                pass
            return attribute(*args, **kwargs)

        return drain_and_ask

    # -- opening and closing ---------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._guarded_open()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._end(error, LEFT)

    def close(self) -> None:
        """Close the provider's connection and keep what came, as a partial message.

        If interrupted: what came is kept; the turn's ending closes the message.
        """
        self._end(None, LEFT)

    def _guarded_open(self) -> None:
        try:
            self._open()
        except BaseException as error:
            self._end(error)
            raise

    def _enter(self) -> None:
        if not self._entered:
            self._stream.__enter__()
            self._entered = True

    def _open(self) -> Iterator[T]:
        """Open the stream; the model call is durable before a source's function is called."""
        if self._iterator is not None:
            return self._iterator
        self._enter()
        made = self._source() if callable(self._source) else self._source
        must_stream(made, streams=_STREAMS)
        if not hasattr(made, "__iter__") and hasattr(made, "__enter__"):
            self._manager = made
            made = made.__enter__()
        self._inner = made
        self._iterator = iter(made)
        return self._iterator

    def _place(self, pieces: Iterator[MediaPiece]) -> None:
        for media in pieces:
            self._applier.place(media, self._turn.put_blob(media.data))

    def _end(self, error: BaseException | None, why: str | None = None) -> None:
        if self._over:
            return
        self._over = True
        try:
            self._leave(error, why)
        finally:
            # A connection that cannot be closed is of no consequence any more.
            with contextlib.suppress(Exception):
                self._disconnect(error)

    def _leave(self, error: BaseException | None, why: str | None) -> None:
        # The ending of a turn that is over has taken what came.
        if not self._entered or (why is not None and self._turn.status != "running"):
            return
        failure = None
        try:
            self._place(self._applier.close(why))
        except KillickError as refused:
            failure = refused
        leaving = error if error is not None else failure
        try:
            self._stream.__exit__(None if leaving is None else type(leaving), leaving, None)
        except TurnEnded:
            if why is None:  # a caller that only closes hears of it where the turn is left
                raise
        if error is None and failure is not None:
            raise failure

    def _disconnect(self, error: BaseException | None) -> None:
        if self._manager is not None:
            self._manager.__exit__(None if error is None else type(error), error, None)
            return
        inner = self._inner if self._inner is not None else self._source
        close = getattr(inner, "close", None)
        if callable(close):
            close()
