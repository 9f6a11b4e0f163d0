"""Turn a session's context into input items of the SDK, and the SDK's items into messages."""

import json
from typing import Any, Final

import msgspec

from killick.model.messages import Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from killick.session.aio import AsyncSession

OURS: Final = "openai-agents"
"""The provider of opaque parts that hold one of the SDK's items exactly."""

Item = dict[str, Any]


async def history(
    session: AsyncSession, *, max_tokens: int | None = None, before_turn: str | None = None
) -> list[Any]:
    """Return what a model would be sent now, with the prompt of the running turn.

    Give it to `Runner.run` as the input. It is valid whatever state the session was left in.
    """
    settings: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
    if before_turn is not None:
        settings["before_turn"] = before_turn
    context = await session.context("openai-responses", **settings)
    items: list[Any] = list(context.messages)
    if context.system:
        items.insert(0, {"role": "system", "content": context.system})
    return items


# -- one item, one message, and back -----------------------------------------------------------


def as_message(item: Item, *, whole: bool = False) -> Message:
    """Return one item of the SDK as a message, from which `as_item` makes exactly that item.

    `whole` keeps the item alone, without parts that have a meaning: a result of no open call.
    """
    exact = Opaque(OURS, msgspec.json.encode(item, enc_hook=repr))
    if whole:
        return Message(role="assistant", parts=[exact])
    role, parts = _parts(item)
    if parts and _item(role, parts) == item:
        return Message(role=role, parts=parts)  # type: ignore[arg-type]
    if role == "tool" and parts:
        [result] = parts
        assert isinstance(result, ToolResult)
        content: Any = result.content
        content = (Text(content),) if isinstance(content, str) and content else ()
        kept = ToolResult(result.call_id, (*content, exact))
        return Message(role="tool", parts=[kept])
    return Message(role=role, parts=[*parts, exact])  # type: ignore[arg-type]


def as_item(role: str, parts: tuple[Part, ...]) -> Item | None:
    """Return the item that this message was made of; None if it was not made of one."""
    inner = parts[0].content if parts and isinstance(parts[0], ToolResult) else parts
    for part in inner if isinstance(inner, tuple) else ():
        if isinstance(part, Opaque) and part.provider == OURS:
            item: Item = msgspec.json.decode(part.data)
            return item
    return _item(role, parts)


def _parts(item: Item) -> tuple[str, tuple[Part, ...]]:
    """Return an item's role and the parts that a person, a search or another provider can use."""
    kind, role = item.get("type"), item.get("role")
    if kind in (None, "message") and role in ("user", "assistant", "system", "developer"):
        text = _text(item.get("content"))
        ours = "system" if role == "developer" else str(role)
        return ours, (Text(text),) if text else ()
    call_id = item.get("call_id")
    if isinstance(call_id, str) and call_id:
        if kind == "function_call":
            call = ToolCall(call_id, str(item.get("name")), str(item.get("arguments") or ""))
            return "assistant", (call,)
        if isinstance(kind, str) and kind.endswith("_output"):
            output = item.get("output")
            text = output if isinstance(output, str) else json.dumps(output, default=repr)
            return "tool", (ToolResult(call_id, text),)
    if kind == "reasoning":
        text = _text(item.get("summary"))
        return "assistant", (Reasoning(text),) if text else ()
    return "assistant", ()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = [part.get("text") for part in content or () if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _item(role: str, parts: tuple[Part, ...]) -> Item | None:
    """Return the plain item of a message with one part."""
    match parts:
        case (Text(text),):
            return {"role": role, "content": text}
        case (ToolCall() as call,):
            return {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
            }
        case (ToolResult(call_id, str() as content),):
            return {"type": "function_call_output", "call_id": call_id, "output": content}
        case _:
            return None
