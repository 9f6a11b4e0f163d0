"""Plain lists of messages, as OpenAI's Chat Completions or Anthropic's Messages take them.

A list alone, or an object with `messages` and perhaps `system`. Such a file knows no ids, no times
and no turns: a turn begins with what the user says, and an answer that calls no tool ends it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from killick.exchange import records as r
from killick.exchange.formats import Format, Peek
from killick.exchange.formats import content as c
from killick.exchange.read import SourceDocument, read_document, rows_of
from killick.exchange.records import Source, SourceLocation
from killick.model.messages import Part, Reasoning, Role, ToolResult

OPENAI: Final = "openai-chat"
ANTHROPIC: Final = "anthropic"

_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
ROLES: Final = (*_ROLES, "tool")

Row = tuple[int, Any]


def message_list(path: Path, *, at_us: int, settled: bool) -> Source:
    """The one session of such a file; its times are those of the file."""
    document = read_document(path)
    rows = rows_of(document, "messages")
    shape = shape_of([value for _, value in rows])
    records = _records(path, document, rows, shape, at_us)
    return Source(shape, _name(path), str(path), records, settled, answer_ends=True)


def _name(path: Path) -> str:
    """What the session is known by: where its file is, however that was written."""
    return str(path.resolve())


def shape_of(messages: list[Any]) -> str:
    """Which of the two it is; one that could be either is Anthropic's."""
    for message in messages:
        if not isinstance(message, dict):
            continue
        if message.get("role") in ("tool", "system", "developer") or "tool_calls" in message:
            return OPENAI
        blocks = message.get("content")
        for block in blocks if isinstance(blocks, list) else ():
            kind = block.get("type") if isinstance(block, dict) else None
            if kind in ("tool_use", "tool_result", "thinking", "image", "document"):
                return ANTHROPIC
            if kind in ("image_url", "refusal", "input_audio"):
                return OPENAI
    return ANTHROPIC


def _records(
    path: Path, document: SourceDocument, rows: list[Row], shape: str, at_us: int
) -> Iterator[r.Record]:
    first = SourceLocation(str(path), 1)
    yield r.BeginRecord(place=first, at_us=at_us, native_id=_name(path))
    system = document.value.get("system") if isinstance(document.value, dict) else None
    for number, reason in document.problems:
        yield r.Bad(place=SourceLocation(str(path), number), reason=reason)
    if system:
        found = c.anthropic(system)
        yield from _bad(first, found)
        yield r.MessageRecord(place=first, role="system", parts=tuple(found.parts), key="system")
    read = _openai if shape == OPENAI else _anthropic
    for number, message in rows:
        place = SourceLocation(str(path), number)
        if not isinstance(message, dict):
            yield r.Bad(place=place, reason="not a message: it is no object")
            continue
        yield from read(place, message)


def _anthropic(place: SourceLocation, message: dict[str, Any]) -> Iterator[r.Record]:
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        yield r.Bad(place=place, reason=f"no such role: {message.get('role')!r}")
        return
    found = c.anthropic(message.get("content"))
    yield from _bad(place, found)
    for result in found.results:
        yield r.ResultRecord(place=place, result=result, blobs=c.blobs_in(result, found.blobs))
    if found.parts:
        said = _said(place, role, found.parts, found.blobs, prompt=not found.results)
        signed = any(isinstance(part, Reasoning) and part.signature for part in found.parts)
        if signed and role == "assistant":
            said.asked = r.Asked(provider="anthropic")  # no other may be sent what it has signed
        yield said
    elif not found.results and not found.bad:
        yield r.Bad(place=place, reason="a message without content", repaired=True)


def _openai(place: SourceLocation, message: dict[str, Any]) -> Iterator[r.Record]:
    found = c.openai(message.get("content"))
    yield from _bad(place, found)
    if message.get("role") == "tool":
        yield from _openai_result(place, message, found)
        return
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        yield r.Bad(place=place, reason=f"no such role: {message.get('role')!r}")
        return
    thought = message.get("reasoning_content")
    if isinstance(thought, str) and thought:
        found.parts.insert(0, Reasoning(thought))
    refusal = message.get("refusal")
    if isinstance(refusal, str):
        found.text(refusal)
    known = len(found.bad)
    c.openai_calls(found, message.get("tool_calls"))
    for what in found.bad[known:]:
        yield r.Bad(place=place, reason=what)
    if found.parts:
        yield _said(place, role, found.parts, found.blobs, prompt=True)
    elif not found.bad:
        yield r.Bad(place=place, reason="a message without content", repaired=True)


def _openai_result(
    place: SourceLocation, message: dict[str, Any], found: c.Content
) -> Iterator[r.Record]:
    call_id = message.get("tool_call_id")
    if not c.is_id(call_id):
        yield r.Bad(place=place, reason="a tool's message without the id of its call")
        return
    result = ToolResult(call_id, c.plain_or_parts(found.parts))
    yield r.ResultRecord(place=place, result=result, blobs=found.blobs)


def _said(
    place: SourceLocation, role: Role, parts: list[Part], blobs: dict[str, bytes], *, prompt: bool
) -> r.MessageRecord:
    return r.MessageRecord(
        place=place,
        role=role,
        parts=tuple(parts),
        blobs=blobs,
        begins_turn=prompt and role == "user",
    )


def _bad(place: SourceLocation, found: c.Content) -> Iterator[r.Record]:
    for what in found.bad:
        yield r.Bad(place=place, reason=what)


def _claims(peek: Peek) -> bool:
    rows = rows_of(peek.document, "messages")
    return any(isinstance(row, dict) and row.get("role") in ROLES for _, row in rows)


FORMAT: Final = Format(
    name="messages",
    claims=_claims,
    read=lambda path, reading: [
        message_list(path, at_us=reading.changed_us, settled=reading.settled)
    ],
)
