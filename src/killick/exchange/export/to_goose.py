"""A session as the JSON that goose exports and imports (`goose session import`).

goose has no turns: a prompt begins one, and how it ended cannot be said. What a compaction stands
for is hidden from the model there, and its summary from the person.
"""

import base64
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from killick.exchange.export.handover import json_document
from killick.exchange.export.native import (
    Losses,
    NativeCall,
    NativeLine,
    NativeTalk,
    hold_image,
    hold_result,
)
from killick.exchange.formats import content as c
from killick.exchange.read import parse
from killick.journal.codec import to_bytes
from killick.model import entries as e
from killick.model.messages import (
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from killick.model.sessions import TurnInfo

_BLOCK: Final = "goose-block"


class ToGoose:
    """See `native.Target`."""

    name = "goose"
    suffix = ".json"

    def hold(self, part: Part, role: Role, losses: Losses) -> Part | None:
        match part:
            case Text():
                return part if part.text else None
            case Image():
                return hold_image(part, losses)
            case Reasoning():
                return _reasoning(part, losses)
            case ToolCall():
                return _call(part, losses)
            case ToolResult():
                return _result(part, losses)
            case Opaque() if _sealed(part) is not None or part.provider == _BLOCK:
                return part
            case Opaque():
                losses.add("a provider's own data")
            case _:
                losses.add("files")
        return None

    def hold_turn(self, turn: TurnInfo, losses: Losses) -> None:
        if turn.status != "completed":
            losses.add("how a turn ended")

    def hold_line(self, line: NativeLine, losses: Losses) -> NativeLine | None:
        if line.message.role != "system":
            return line
        losses.add("that a message was the system's: it is hidden from the person")
        message = msgspec.structs.replace(line.message, role="user")
        return msgspec.structs.replace(line, message=message, person=False)

    def expected(self, talk: NativeTalk) -> Iterator[tuple[Role, tuple[Part, ...]]]:
        return ((line.message.role, tuple(line.message.parts)) for line in _with_summaries(talk))

    def write(self, talk: NativeTalk) -> Iterator[bytes]:
        messages = (_message(talk, line) for line in _with_summaries(talk))
        return json_document(_about(talk), "conversation", messages, indent=2)


def _reasoning(part: Reasoning, losses: Losses) -> Reasoning | None:
    if part.encrypted is not None:
        losses.add("encrypted reasoning")
    if not part.text and not part.signature:
        return None
    return Reasoning(part.text, signature=part.signature or None)


def _call(part: ToolCall, losses: Losses) -> ToolCall:
    """Return the call with an object as arguments, as goose needs it; spaces are no loss."""
    try:
        value = parse(to_bytes(part.arguments)) if part.arguments.strip() else {}
    except ValueError:
        value = part.arguments
    if not isinstance(value, dict):
        losses.add("arguments that are no JSON object: they become one")
        value = {"value": value}
    if part.tool_type != "function":
        losses.add("what kind of tool was called")
    return ToolCall(part.id, part.name, c.compact(value))


def _result(part: ToolResult, losses: Losses) -> ToolResult:
    held = hold_result(part, losses)
    if not isinstance(held.content, str):
        held = msgspec.structs.replace(held, content=c.plain_or_parts(held.content))
    return held


def _sealed(part: Opaque) -> str | None:
    """Return the data of reasoning that Anthropic has sealed."""
    if part.provider != "anthropic":
        return None
    try:
        value = parse(part.data)
    except ValueError:
        return None
    if isinstance(value, dict) and value.get("type") == "redacted_thinking":
        data = value.get("data")
        return data if c.is_sealed(data) and value.keys() == {"type", "data"} else None
    return None


def _with_summaries(talk: NativeTalk) -> Iterator[NativeLine]:
    """Yield the messages, with each summary behind the messages that it hides."""
    hidden = [(body.first, body.through, frozenset(body.keep)) for _, body in talk.summaries]
    waiting = sorted(talk.summaries, key=lambda summary: summary[1].through)
    for line in talk.lines():
        seq = line.message.seq
        line.model = line.model and not any(
            first <= seq <= through and seq not in keep for first, through, keep in hidden
        )
        while waiting and waiting[0][1].through < line.message.seq:
            yield _summary(*waiting.pop(0), line.at_us)
        yield line
    for seq, body in waiting:
        yield _summary(seq, body, talk.info.updated_at_us)


def _summary(seq: int, body: e.Compacted, at_us: int) -> NativeLine:
    message = Message("user", (Text(body.summary),), id=f"summary_{seq}", seq=seq)
    return NativeLine(message, at_us, person=False)


def _about(talk: NativeTalk) -> dict[str, Any]:
    info, project = talk.info, talk.info.project
    count, used, tokens, last = 0, False, e.Usage(), NativeCall()
    for line in talk.lines():
        count += 1
        if line.call is not None:
            last = NativeCall(line.call.provider or last.provider, line.call.model or last.model)
        if line.usage is not None:
            used, read, wrote = True, line.usage.input, line.usage.output
            tokens = e.Usage(tokens.input + read, tokens.output + wrote)
    types = {"subagent": "sub_agent"}
    return {
        "id": info.id,
        "working_dir": (project.directory or project.root) if project is not None else "/",
        "name": info.title or "Untitled session",
        "user_set_name": info.about.titled_by == "person",
        "session_type": types.get(info.type, "user"),
        "created_at": info.created_at.isoformat().replace("+00:00", "Z"),
        "updated_at": info.updated_at.isoformat().replace("+00:00", "Z"),
        "extension_data": {},
        "total_tokens": None,
        "input_tokens": None,
        "output_tokens": None,
        "accumulated_total_tokens": tokens.input + tokens.output if used else None,
        "accumulated_input_tokens": tokens.input if used else None,
        "accumulated_output_tokens": tokens.output if used else None,
        "schedule_id": None,
        "recipe": None,
        "user_recipe_values": None,
        "message_count": count,
        "provider_name": last.provider,
        "model_config": None if last.model is None else {"model_name": last.model},
        "goose_mode": "auto",
    }


def _message(talk: NativeTalk, line: NativeLine) -> dict[str, Any]:
    role = "assistant" if line.message.role == "assistant" else "user"
    return {
        "id": line.message.id or f"msg_{line.message.seq}",
        "role": role,
        "created": line.at_us // 1_000_000,
        "content": [_block(talk, part) for part in line.message.parts],
        "metadata": {"userVisible": line.person, "agentVisible": line.model},
    }


def _block(talk: NativeTalk, part: Part) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image():
            data = base64.b64encode(talk.blobs(part.blob) or b"").decode("ascii")
            return {"type": "image", "data": data, "mimeType": part.media_type}
        case Reasoning():
            return {"type": "thinking", "thinking": part.text, "signature": part.signature or ""}
        case ToolCall():
            value = {"name": part.name, "arguments": parse(to_bytes(part.arguments))}
            call = {"status": "success", "value": value}
            return {"type": "toolRequest", "id": part.id, "toolCall": call}
        case ToolResult():
            return {"type": "toolResponse", "id": part.call_id, "toolResult": _outcome(talk, part)}
        case Opaque():
            sealed = _sealed(part)
            if sealed is not None:
                return {"type": "redactedThinking", "data": sealed}
            block: dict[str, Any] = parse(part.data)
            return block
        case _:
            raise TypeError(f"not to be written: {part!r}")


def _outcome(talk: NativeTalk, part: ToolResult) -> dict[str, Any]:
    content = (Text(part.content),) if isinstance(part.content, str) else part.content
    blocks = [
        _block(talk, inner) for inner in content if not (isinstance(inner, Text) and not inner.text)
    ]
    value: dict[str, Any] = {"content": blocks, "isError": part.is_error}
    if part.structured is not None:
        value["structuredContent"] = part.structured
    return {"status": "success", "value": value}
