"""A session as events of Copilot CLI: each names the one before it."""

from collections.abc import Iterator
from typing import Any, Final

from killick.exchange.export.handover import (
    Answered,
    Handover,
    Holds,
    iso,
    json_line,
    raw_object_of,
)

HOLDS: Final = Holds()
_PRODUCER: Final = "copilot-agent"


def write(handover: Handover) -> Iterator[bytes]:
    """Yield the lines of `events.jsonl`."""
    parent: str | None = None
    for number, (kind, at_us, data) in enumerate(_events(handover)):
        uuid = handover.uuid(number)
        yield json_line(
            {"type": kind, "data": data, "id": uuid, "timestamp": iso(at_us), "parentId": parent}
        )
        parent = uuid


def _events(handover: Handover) -> Iterator[tuple[str, int, dict[str, Any]]]:
    yield (
        "session.start",
        handover.created_us,
        {
            "sessionId": handover.native_id,
            "version": 1,
            "producer": _PRODUCER,
            "copilotVersion": "1.0.102",
            "startTime": iso(handover.created_us),
            "context": {"cwd": handover.folder},
        },
    )
    for number, item in enumerate(handover.items):
        message_id = handover.uuid(-1 - number)
        if isinstance(item, Answered):
            data: dict[str, Any] = {"toolCallId": item.call_id, "success": not item.is_error}
            if item.is_error:
                data["error"] = {"message": item.text}
            data["result"] = {"content": item.text}
            yield "tool.execution_complete", item.at_us, data
        elif item.role == "user":
            yield "user.message", item.at_us, {"content": item.text, "messageId": message_id}
        else:
            requests = [
                {"toolCallId": call.id, "name": call.name, "arguments": raw_object_of(call),
                 "type": "function"}
                for call in item.calls
            ]  # fmt: skip
            yield (
                "assistant.message",
                item.at_us,
                {
                    "messageId": message_id,
                    "content": item.text,
                    "toolRequests": requests,
                },
            )
