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
from killick.model.messages import Reasoning, Role, ToolResult

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
    """Return the one session of such a file; its times are those of the file."""
    document = read_document(path)
    rows = rows_of(document, "messages")
    shape = shape_of([value for _, value in rows])
    records = _records(path, document, rows, shape, at_us)
    return Source(shape, _name(path), str(path), records, settled, answer_ends=True)


def _name(path: Path) -> str:
    """Return the session's name: the resolved path of its file."""
    return str(path.resolve())


def shape_of(messages: list[Any]) -> str:
    """Return the format of the messages; Anthropic's if it could be either."""
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
    yield r.BeginRecord(location=first, at_us=at_us, native_id=_name(path))
    system = document.value.get("system") if isinstance(document.value, dict) else None
    for number, reason in document.problems:
        yield r.ProblemRecord(location=SourceLocation(str(path), number), reason=reason)
    if system:
        parsed = c.anthropic(system)
        yield from _bad(first, parsed)
        yield r.MessageRecord(
            location=first, role="system", parts=tuple(parsed.parts), key="system"
        )
    read = _openai if shape == OPENAI else _anthropic
    for number, message in rows:
        location = SourceLocation(str(path), number)
        if not isinstance(message, dict):
            yield r.ProblemRecord(location=location, reason="not a message: it is no object")
            continue
        yield from read(location, message)


def _anthropic(location: SourceLocation, message: dict[str, Any]) -> Iterator[r.Record]:
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        yield r.ProblemRecord(location=location, reason=f"no such role: {message.get('role')!r}")
        return
    parsed = c.anthropic(message.get("content"))
    signed = any(isinstance(part, Reasoning) and part.signature for part in parsed.parts)
    # No other provider may be sent what it has signed.
    call = r.ModelCallRecord(provider="anthropic") if signed else None
    prompt = not parsed.results
    yield from c.message_records(
        location, None, role, parsed, key=None, prompt=prompt, model_call=call
    )


def _openai(location: SourceLocation, message: dict[str, Any]) -> Iterator[r.Record]:
    parsed = c.openai(message.get("content"))
    if message.get("role") == "tool":
        yield from _bad(location, parsed)
        yield from _openai_result(location, message, parsed)
        return
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        yield r.ProblemRecord(location=location, reason=f"no such role: {message.get('role')!r}")
        return
    thought = message.get("reasoning_content")
    if isinstance(thought, str) and thought:
        parsed.parts.insert(0, Reasoning(thought))
    refusal = message.get("refusal")
    if isinstance(refusal, str):
        parsed.text(refusal)
    c.openai_calls(parsed, message.get("tool_calls"))
    yield from c.message_records(location, None, role, parsed, key=None, prompt=True)


def _openai_result(
    location: SourceLocation, message: dict[str, Any], parsed: c.Content
) -> Iterator[r.Record]:
    call_id = message.get("tool_call_id")
    if not c.is_id(call_id):
        yield r.ProblemRecord(
            location=location, reason="a tool's message without the id of its call"
        )
        return
    result = ToolResult(call_id, c.plain_or_parts(parsed.parts))
    yield r.ResultRecord(location=location, result=result, blobs=parsed.blobs)


def _bad(location: SourceLocation, parsed: c.Content) -> Iterator[r.Record]:
    for what in parsed.bad:
        yield r.ProblemRecord(location=location, reason=what)


def _claims(peek: Peek) -> bool:
    """Claim a list of messages: not lines of JSON, nor a document that says more of itself."""
    if len(peek.records) > 1 or not peek.begins_with(b"[", b"{"):
        return False
    value = peek.document.value
    if isinstance(value, dict) and not value.keys() & {"messages"}:
        return False
    rows = rows_of(peek.document, "messages")
    return any(_is_message(row) for _, row in rows)


def _misfits(peek: Peek) -> tuple[int, int]:
    rows = [row for _, row in rows_of(peek.document, "messages")]
    return sum(not _is_message(row) for row in rows), len(rows)


def _is_message(row: object) -> bool:
    if not isinstance(row, dict) or row.get("role") not in ROLES:
        return False
    if "content" in row and not isinstance(row["content"], dict):
        return True
    calls = row.get("tool_calls")
    called = isinstance(calls, list) and any(
        isinstance(call, dict) and "function" in call for call in calls
    )
    return called or isinstance(row.get("refusal"), str)


FORMAT: Final = Format(
    name="messages",
    claims=_claims,
    misfits=_misfits,
    read=lambda path, reading: [
        message_list(path, at_us=reading.changed_us, settled=reading.settled)
    ],
)
