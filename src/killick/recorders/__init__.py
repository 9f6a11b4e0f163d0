"""Provider streams in, entries out: one line around the stream that a loop already has.

    stream = client.chat.completions.create(**request)
    for chunk in record(turn, "openai-chat", stream, request=request):

What comes out is what went in. No SDK is imported here; their objects are taken as they are.
"""

from typing import TYPE_CHECKING, Any, TypeVar, overload

from killick.recorders.model_call import Cut, Handle, Plan, Request, Shape
from killick.recorders.record_sync import Recording, Source
from killick.session.sync_blocks import Turn

if TYPE_CHECKING:
    from killick.recorders.record_async import AsyncRecording, AsyncSource
    from killick.session.aio_blocks import AsyncTurn

__all__ = ["AsyncRecording", "Cut", "Recording", "Shape", "record"]

T = TypeVar("T")


@overload
def record(
    turn: Turn,
    shape: Shape,
    source: Source[T],
    *,
    request: Request | None = None,
    provider: str | None = None,
    retry_of: Handle | None = None,
    cut: Cut = "raise",
) -> Recording[T]: ...
@overload
def record(
    turn: "AsyncTurn",
    shape: Shape,
    source: "AsyncSource[T]",
    *,
    request: Request | None = None,
    provider: str | None = None,
    retry_of: Handle | None = None,
    cut: Cut = "raise",
) -> "AsyncRecording[T]": ...
@overload
def record(
    turn: Turn,
    shape: Shape,
    source: Any,
    *,
    request: Request | None = None,
    provider: str | None = None,
    retry_of: Handle | None = None,
    cut: Cut = "raise",
) -> Recording[Any]: ...
def record(
    turn: "Turn | AsyncTurn",
    shape: Shape,
    source: Any,
    *,
    request: Request | None = None,
    provider: str | None = None,
    retry_of: Handle | None = None,
    cut: Cut = "raise",
) -> Any:
    """Record one model call of this turn as its answer flows.

    `source` is the SDK's stream, its stream manager, an iterator over the raw bytes of server-sent
    events, or a function that makes the request when the model call is durable (with `AsyncTurn`
    also a coroutine of the SDK's). Take a response that is not streamed with `.whole()`.

    `request` is what the SDK was given: model, settings, system prompt and tools are recorded from
    it. `provider` names a server that speaks another's protocol; signed reasoning goes back to the
    shape's own provider only. `retry_of` is the recording that this one tries again.

    A stream that ends without the shape's end mark (a finish reason, `message_stop`, the response's
    last event) leaves a partial message and raises `StreamCut`; with `cut="keep"` it does not
    raise. Afterwards the recording has `.finish_reason`, `.usage`, `.answer`, `.complete` and
    `.error`, whatever the SDK's stream calls by these names.

    If interrupted: what came is kept as a partial message, and the connection is closed.
    """
    plan = Plan(shape, request, provider, retry_of, cut)
    if isinstance(turn, Turn):
        return Recording(turn, plan, source)
    from killick.recorders.record_async import AsyncRecording

    return AsyncRecording(turn, plan, source)


def __getattr__(name: str) -> Any:
    # The asynchronous face brings an event loop along: loaded only by those who use it.
    if name == "AsyncRecording":
        from killick.recorders.record_async import AsyncRecording

        return AsyncRecording
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
