"""What the command of the Claude Agent SDK sends and is sent, in the shape of the others."""

import json
from collections.abc import Iterator
from typing import Any, Final

SERVER: Final = "peers"
HELPERS: Final = ("Agent", "Task")
"""What the command calls the tool that asks an agent; it changed its name."""


def named(tool: str) -> str:
    return f"mcp__{SERVER}__{tool}"


def talks(request: dict[str, Any]) -> bool:
    """Tell whether an agent asks; the command asks for titles and the like, too."""
    return any(named("t1") == tool.get("name") for tool in request.get("tools") or ())


def as_chat(request: dict[str, Any]) -> list[dict[str, Any]]:
    """What it asks, in the shape that all are compared in; its standing words are left out."""
    chat: list[dict[str, Any]] = []
    for message in request["messages"]:
        if message["role"] == "system":
            continue
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "tool_use":
                call = {"id": block.get("id"), "function": {"name": block["name"]}}
                chat.append({"role": "assistant", "content": "", "tool_calls": [call]})
            elif block["type"] == "tool_result":
                made = {"role": "tool", "tool_call_id": block["tool_use_id"]}
                chat.append({**made, "content": json.dumps(block.get("content"))})
            elif block["type"] == "text" and "<system-reminder>" not in block["text"]:
                chat.append({"role": message["role"], "content": block["text"]})
    return chat


def helper(request: dict[str, Any]) -> str | None:
    """Return what asks an agent here; inside of that agent nothing does."""
    names = [tool.get("name") for tool in request.get("tools") or ()]
    return next((name for name in HELPERS if name in names), None)


def events(request: dict[str, Any], deltas: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The events of an answer."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    name = f"msg_{len(request['messages'])}"
    head = {"id": name, "type": "message", "role": "assistant", "model": "m", "content": []}
    yield {"type": "message_start", "message": {**head, "usage": usage}}
    index, open_, reason = -1, False, "end_turn"
    for delta in deltas:
        if "content" in delta:
            if not open_:
                index, open_ = index + 1, True
                text = {"type": "text", "text": ""}
                yield {"type": "content_block_start", "index": index, "content_block": text}
            piece = {"type": "text_delta", "text": delta["content"]}
            yield {"type": "content_block_delta", "index": index, "delta": piece}
        for call in delta.get("tool_calls", ()):
            if open_:
                yield {"type": "content_block_stop", "index": index}
            index, open_, reason = index + 1, False, "tool_use"
            name, given = call["function"]["name"], "{}"
            if name == "helper":
                name = helper(request) or name
                about = {"description": "helps", "prompt": "Help.", "subagent_type": "helper"}
                given = json.dumps(about)
            else:
                name = named(name)
            block = {"type": "tool_use", "name": name, "input": {}}
            if "id" in call:
                block["id"] = f"toolu_{call['id']}"
            yield {"type": "content_block_start", "index": index, "content_block": block}
            piece = {"type": "input_json_delta", "partial_json": given}
            yield {"type": "content_block_delta", "index": index, "delta": piece}
            yield {"type": "content_block_stop", "index": index}
    if open_:
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    yield {"type": "message_stop"}
