"""A session as a file of Qwen Code: records like Claude Code's, with parts like Gemini's."""

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

VERSION: Final = "0.15.10"
"""The version with which this was tried."""

HOLDS: Final = Holds(images=True)


def own_id(native_id: str) -> str:
    """Return the id as Qwen Code knows ids: it takes no UUID of version 7."""
    return f"{native_id[:14]}4{native_id[15:]}"


def write(handover: Handover) -> Iterator[bytes]:
    """Yield the lines of the file."""
    parent: str | None = None
    for number, item in enumerate(handover.items):
        uuid = handover.uuid(number)
        kind, role = _kind(item)
        record: dict[str, Any] = {
            "uuid": uuid,
            "parentUuid": parent,
            "sessionId": own_id(handover.native_id),
            "timestamp": iso(item.at_us),
            "type": kind,
            "cwd": handover.folder,
            "version": VERSION,
            "message": {"role": role, "parts": parts_of(item)},
        }
        if isinstance(item, Answered):
            record["toolCallResult"] = {
                "callId": item.call_id,
                "status": "error" if item.is_error else "success",
                "resultDisplay": item.text,
            }
        elif kind == "assistant":
            record["model"] = item.model or "unknown"
        yield json_line(record)
        parent = uuid


def _kind(item: Spoken | Answered) -> tuple[str, str]:
    if isinstance(item, Answered):
        return "tool_result", "user"
    return ("assistant", "model") if item.role == "assistant" else ("user", "user")


def parts_of(item: Spoken | Answered) -> list[dict[str, Any]]:
    """Return a message as Gemini's parts."""
    images = [
        {"inlineData": {"mimeType": kind, "data": base64(data)}} for kind, data in item.images
    ]
    if isinstance(item, Answered):
        return [response_of(item), *images]
    text = [{"text": item.text}] if item.text else []
    calls = [
        {"functionCall": {"id": call.id, "name": call.name, "args": raw_object_of(call)}}
        for call in item.calls
    ]
    return [*text, *images, *calls]


def response_of(item: Answered) -> dict[str, Any]:
    """Return a result as Gemini's part."""
    key = "error" if item.is_error else "output"
    response = {"id": item.call_id, "name": item.name, "response": {key: item.text}}
    return {"functionResponse": response}
