"""Endings of a turn by the exception that leaves its block."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeVar, cast

from killick.errors import KillickError, TurnStopped
from killick.model.causes import Cause
from killick.model.entries import TurnEnding

_DETAIL_MAX: Final = 2_000
_REASON_MAX: Final = 200
_CHAIN_MAX: Final = 20

Status = Literal["completed", "failed", "interrupted"]


def ending(turn_id: str, error: BaseException | None, cause: Cause | None = None) -> TurnEnding:
    """Completed without an exception, interrupted by what interrupts, failed by any other.

    A `cause` that the caller gives stands in place of the exception's.
    """
    if error is None:
        if cause is None:
            return TurnEnding(turn_id=turn_id, status="completed")
        status: Status = "failed" if cause == "failed" else "interrupted"
        return TurnEnding(turn_id=turn_id, status=status, reason=cause, cause=cause)
    interrupting = interruption(error)
    if interrupting is not None:
        own, reason = interrupting
        return TurnEnding(turn_id=turn_id, status="interrupted", reason=reason, cause=cause or own)
    summary = describe(error)
    return TurnEnding(
        turn_id=turn_id,
        status="failed",
        reason=summary[:_REASON_MAX],
        detail=summary[:_DETAIL_MAX] if len(summary) > _REASON_MAX else None,
        cause=cause or ("timed_out" if _is_timeout(error) else "failed"),
        error_type=_types(error)[:_REASON_MAX],
    )


def interruption(error: BaseException) -> tuple[str, str] | None:
    """Return cause and reason, if this exception interrupts; groups by all their leaves."""
    if isinstance(error, BaseExceptionGroup):
        leaves_of = [interruption(inner) for inner in error.exceptions]
        return None if None in leaves_of else leaves_of[0]
    if isinstance(error, TurnStopped):
        return error.cause, error.reason or error.cause
    if isinstance(error, KeyboardInterrupt):
        return "cancelled", "keyboard_interrupt"
    if isinstance(error, GeneratorExit):
        return "abandoned", "closed"
    if isinstance(error, SystemExit):
        return "terminated", "system_exit"
    return ("cancelled", "cancelled") if is_cancellation(error) else None


def is_cancellation(error: BaseException) -> bool:
    """Return whether it is a cancellation of asyncio's or trio's; a group by all its leaves."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_cancellation(inner) for inner in error.exceptions)
    # Neither library is imported for this: an exception of theirs means that it is loaded.
    # One that another thread is just importing may not have the name yet.
    asyncio, trio = sys.modules.get("asyncio"), sys.modules.get("trio")
    kinds = getattr(asyncio, "CancelledError", ()), getattr(trio, "Cancelled", ())
    return isinstance(error, kinds)


def _is_timeout(error: BaseException | None) -> bool:
    """Return whether this is a TimeoutError, or was raised from one."""
    for _ in range(_CHAIN_MAX):
        if error is None or isinstance(error, TimeoutError):
            break
        error = error.__cause__
    return isinstance(error, TimeoutError)


def describe(error: BaseException) -> str:
    """One line for a person; never empty, whatever the exception's own words are.

    A group says nothing of what went wrong: what failed in it does.
    """
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(describe, _failed(error)))
    name = _types(error)
    try:
        words = str(error)
    except Exception:  # noqa: BLE001  (an exception that cannot describe itself still has a name)
        words = ""
    return f"{name}: {words}" if words.strip() else name


def _types(error: BaseException) -> str:
    """Return the name of the exception's type; of a group, those of what failed in it."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(map(_types, _failed(error))))
    return type(error).__name__ or "Exception"


def _failed(group: BaseExceptionGroup[BaseException]) -> Sequence[BaseException]:
    failed = [inner for inner in group.exceptions if interruption(inner) is None]
    return failed or group.exceptions


def says_nothing(error: BaseException) -> bool:
    """Tell whether an exception is about this process or the store, and not about a tool."""
    if isinstance(error, BaseExceptionGroup):
        return all(says_nothing(inner) for inner in error.exceptions)
    return isinstance(error, KillickError) or interruption(error) is not None


def describe_failed_tool(error: BaseException) -> str:
    """One line for a model. Our own errors in a group are left out: they may name a path."""
    if isinstance(error, BaseExceptionGroup):
        failed = [inner for inner in error.exceptions if not says_nothing(inner)]
        return "; ".join(describe_failed_tool(inner) for inner in failed) or describe(error)
    return describe(error)


def attach(error: BaseException, failure: BaseException) -> None:
    """A closing write failed while `error` was leaving: it goes on and carries the failure."""
    error.add_note(f"killick could not record this ending: {describe(failure)}")
    for note in getattr(failure, "__notes__", ()):
        error.add_note(note)


F = TypeVar("F", bound=Callable[..., Any])


def leaves(method: F) -> F:
    """Say that this is the method by which the block of a turn is left."""
    return cast("F", _Leaving(method))


def leaves_awaiting(method: F) -> F:
    """The same for a method that is awaited."""
    return cast("F", _AsyncLeaving(method))


class HeldTurn(Protocol):
    """A turn that ends when what holds it is dropped."""

    def held_by(self, holder: object) -> None: ...


class _Leaving:
    """Gives a `with` statement a method of its own."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __get__(self, turn: Any, _owner: type) -> Callable[..., Any]:
        return self._method if turn is None else self._given_to(turn, turn._core)

    def _given_to(self, turn: Any, core: HeldTurn) -> Callable[..., Any]:
        # Not a frame of Python's: those are kept by the traceback of what went through them.
        method = partial(self._method, turn)
        core.held_by(method)
        return method


class _AsyncLeaving(_Leaving):
    """The method of an `async with` statement is let go of when it is awaited, so it holds more."""

    def _given_to(self, turn: Any, core: HeldTurn) -> Callable[..., Any]:
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
