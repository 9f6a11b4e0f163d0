"""A session as a file of Claude Code: one record for each message, each naming the one before."""

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
from killick.model.messages import Reasoning

VERSION: Final = "2.1.197"
"""The version with which this was tried."""


def _is_own(part: Reasoning, provider: str | None) -> bool:
    """Tell whether Anthropic signed it: Claude Code refuses other thoughts."""
    return provider == "anthropic" and bool(part.signature) and bool(part.text)


HOLDS: Final = Holds(images=True, reasoning=_is_own)


def write(handover: Handover) -> Iterator[bytes]:
    """Yield the lines of the file."""
    parent: str | None = None
    for number, item in enumerate(handover.items):
        uuid = handover.uuid(number)
        record: dict[str, Any] = {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": handover.folder,
            "sessionId": handover.native_id,
            "version": VERSION,
            "type": "assistant" if _speaks(item) else "user",
            "message": _message(handover, item, number),
            "uuid": uuid,
            "timestamp": iso(item.at_us),
        }
        if item.synthetic and isinstance(item, Spoken):
            record["isMeta"] = True
        yield json_line(record)
        parent = uuid
    title = {"type": "custom-title", "customTitle": handover.title}
    yield json_line(title | {"sessionId": handover.native_id})


def _speaks(item: Spoken | Answered) -> bool:
    return isinstance(item, Spoken) and item.role == "assistant"


def _message(handover: Handover, item: Spoken | Answered, number: int) -> dict[str, Any]:
    if isinstance(item, Answered):
        result = {
            "type": "tool_result",
            "tool_use_id": item.call_id,
            "content": [*_text(item.text), *map(_image, item.images)],
            "is_error": item.is_error,
        }
        return {"role": "user", "content": [result]}
    blocks = [*_text(item.text), *map(_image, item.images)]
    if item.role == "user":
        return {"role": "user", "content": item.text if not item.images else blocks}
    thoughts = [
        {"type": "thinking", "thinking": part.text, "signature": part.signature}
        for part in item.reasoning
    ]
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": raw_object_of(call)}
        for call in item.calls
    ]
    return {
        "id": f"msg_{handover.uuid(number).replace('-', '')}",
        "type": "message",
        "role": "assistant",
        "model": item.model or "unknown",
        "content": [*thoughts, *_text(item.text), *calls],
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _image(image: tuple[str, bytes]) -> dict[str, Any]:
    source = {"type": "base64", "media_type": image[0], "data": base64(image[1])}
    return {"type": "image", "source": source}
