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
    object_of,
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
    items = handover.items
    for number, each in enumerate(items):
        if isinstance(each, Spoken):
            answers = list[Answered]()
            for follower in items[number + 1 :]:
                if not isinstance(follower, Answered):
                    break
                answers.append(follower)
            yield from _lines(handover, number, each, answers)


def _lines(
    handover: Handover, number: int, item: Spoken, answers: list[Answered]
) -> Iterator[bytes]:
    record: dict[str, Any] = {"id": handover.uuid(number), "timestamp": iso(item.at_us)}
    if item.role == "user":
        yield json_line(record | {"type": "user", "content": parts_of(item)})
        return
    record |= {"type": "gemini", "content": item.text, "thoughts": []}
    if item.model:
        record["model"] = item.model
    by_id = {answer.call.id: answer for answer in answers}
    calls = [
        {
            "id": call.id,
            "name": call.name,
            "args": object_of(call),
            "result": [response_of(by_id[call.id])],
            "status": "error" if by_id[call.id].is_error else "success",
            "timestamp": iso(by_id[call.id].at_us),
            "resultDisplay": by_id[call.id].text,
        }
        for call in item.calls
        if call.id in by_id
    ]
    if calls:
        record["toolCalls"] = calls
    yield json_line(record)
