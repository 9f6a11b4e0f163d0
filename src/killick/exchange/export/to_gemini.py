"""A session as a file of Gemini CLI: a header, then messages, with results in their calls."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

from killick.exchange.export.handover import (
    Answered,
    Handover,
    Holds,
    Spoken,
    iso,
    json_line,
    raw_object_of,
)
from killick.exchange.export.to_qwen import parts_of, response_of

HOLDS: Final = Holds(images=True)


def project_hash(folder: str) -> str:
    """Return the name that Gemini CLI gives a folder."""
    return sha256(folder.encode("utf-8", "surrogatepass")).hexdigest()


def write(handover: Handover) -> Iterator[bytes]:
    """Yield the lines of the file."""
    yield json_line({
        "sessionId": handover.native_id,
        "projectHash": project_hash(handover.folder),
        "startTime": iso(handover.created_us),
        "lastUpdated": iso(handover.updated_us),
        "kind": "main",
    })  # fmt: skip
    for number, item, answers in handover.items.with_answers():
        yield json_line(_record(handover, number, item, answers))


def _record(
    handover: Handover, number: int, item: Spoken, answers: dict[str, Answered]
) -> dict[str, Any]:
    record: dict[str, Any] = {"id": handover.uuid(number), "timestamp": iso(item.at_us)}
    if item.role == "user":
        return record | {"type": "user", "content": parts_of(item)}
    record |= {"type": "gemini", "content": item.text, "thoughts": []}
    if item.model:
        record["model"] = item.model
    calls = [
        {
            "id": call.id,
            "name": call.name,
            "args": raw_object_of(call),
            "result": [response_of(answers[call.id])],
            "status": "error" if answers[call.id].is_error else "success",
            "timestamp": iso(answers[call.id].at_us),
            "resultDisplay": answers[call.id].text,
        }
        for call in item.calls
        if call.id in answers
    ]
    if calls:
        record["toolCalls"] = calls
    return record
