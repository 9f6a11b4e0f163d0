"""A session as a file of pi: a header, then messages, each naming the one before."""

from collections.abc import Iterator
from typing import Any, Final

from killick.exchange.export.handover import (
    Answered,
    Handover,
    Holds,
    Spoken,
    base64,
    iso,
    json_line,
    raw_object_of,
)

HOLDS: Final = Holds(images=True)
_USAGE: Final = {
    "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0,
    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
}  # fmt: skip


def write(handover: Handover) -> Iterator[bytes]:
    """Yield the lines of the file."""
    head: dict[str, Any] = {"type": "session", "version": 3, "id": handover.native_id}
    yield json_line(head | {"timestamp": iso(handover.created_us), "cwd": handover.folder})
    parent: str | None = handover.uuid(-1)[-8:]
    title = {"type": "session_info", "id": parent, "parentId": None}
    yield json_line(title | {"timestamp": iso(handover.created_us), "name": handover.title})
    for number, item in enumerate(handover.items):
        own = handover.uuid(number).replace("-", "")[-8:]
        yield json_line({
            "type": "message",
            "id": own,
            "parentId": parent,
            "timestamp": iso(item.at_us),
            "message": _message(item) | {"timestamp": item.at_us // 1_000},
        })  # fmt: skip
        parent = own


def _message(item: Spoken | Answered) -> dict[str, Any]:
    text = [{"type": "text", "text": item.text}] if item.text else []
    images = [
        {"type": "image", "data": base64(data), "mimeType": kind} for kind, data in item.images
    ]
    if isinstance(item, Answered):
        return {
            "role": "toolResult",
            "toolCallId": item.call_id,
            "toolName": item.name,
            "content": [*text, *images],
            "isError": item.is_error,
        }
    if item.role == "user":
        return {"role": "user", "content": [*text, *images]}
    calls = [
        {"type": "toolCall", "id": call.id, "name": call.name, "arguments": raw_object_of(call)}
        for call in item.calls
    ]
    return {
        "role": "assistant",
        "content": [*text, *calls],
        "api": "unknown",
        "provider": "unknown",
        "model": item.model or "unknown",
        "usage": _USAGE,
        "stopReason": "toolUse" if calls else "stop",
    }
