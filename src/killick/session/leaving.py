"""How a turn's block comes to be left, whatever interrupts that, and however often.

A signal may land before the first line of `__exit__`, and the next ones in whatever is done about
it, so no line there can be relied on. What can be is that the `with` statement lets go of the
method it was going to leave by. It fetches that method before it enters the block, and nobody else
has it: when it is gone and the turn still runs, the writer ends it (`Writer.owe_when_gone`).
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from killick.session.turns import TurnCore

F = TypeVar("F", bound=Callable[..., Any])


def leaves(method: F) -> F:
    """Say that this is the method by which the block of a turn is left."""
    return cast("F", _Leaving(method))


def leaves_awaiting(method: F) -> F:
    """The same for a method that is awaited."""
    return cast("F", _AsyncLeaving(method))


class _Leaving:
    """Gives a `with` statement a method of its own."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __get__(self, turn: Any, _owner: type) -> Callable[..., Any]:
        return self._method if turn is None else self._given_to(turn, turn._core)

    def _given_to(self, turn: Any, core: "TurnCore") -> Callable[..., Any]:
        # Not a frame of Python's: those are kept by the traceback of what went through them.
        method = partial(self._method, turn)
        core.held_by(method)
        return method


class _AsyncLeaving(_Leaving):
    """The method of an `async with` statement is let go of when it is awaited, so it holds more."""

    def _given_to(self, turn: Any, core: "TurnCore") -> Callable[..., Any]:
        hold = _Hold()
        core.held_by(hold)
        return partial(self._await, turn, hold)

    async def _await(self, turn: Any, hold: "_Hold", *raised: Any) -> Any:
        try:
            return await self._method(turn, *raised)
        finally:
            del hold  # the frame may be kept by a traceback


class _Hold:
    __slots__ = ("__weakref__",)
