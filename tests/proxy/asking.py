"""Requests in each provider's shape, and what they bring back."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx2

import killick

SHAPES: Final = ("openai-chat", "openai-responses", "anthropic", "gemini")
SYSTEM: Final = "You count ducks."
_TOOL: Final = {"type": "object", "properties": {"command": {"type": "string"}}}
TIMEOUT: Final = 30.0

Said = tuple[str, Any]
"""A piece of a conversation: ("user", text), ("assistant", text), ("call", id), ("result", …)."""


def path_of(shape: str, *, stream: bool) -> str:
    return {
        "openai-chat": "/v1/chat/completions",
        "openai-responses": "/v1/responses",
        "anthropic": "/v1/messages",
        "gemini": "/v1beta/models/scripted:"
        + ("streamGenerateContent?alt=sse" if stream else "generateContent"),
    }[shape]


def body_of(
    shape: str, said: Sequence[Said], *, stream: bool, tools: bool = True
) -> dict[str, Any]:
    """Return a request with a conversation in this shape."""
    body: dict[str, Any] = {"model": "scripted", "stream": stream}
    match shape:
        case "openai-chat":
            body["messages"] = [{"role": "system", "content": SYSTEM}, *map(_chat, said)]
            if tools:
                function = {"name": "shell", "parameters": _TOOL}
                body["tools"] = [{"type": "function", "function": function}]
        case "openai-responses":
            body |= {"instructions": SYSTEM, "input": list(map(_item, said))}
            if tools:
                body["tools"] = [{"type": "function", "name": "shell", "parameters": _TOOL}]
        case "anthropic":
            body |= {"system": SYSTEM, "max_tokens": 99, "messages": list(map(_block, said))}
            if tools:
                body["tools"] = [{"name": "shell", "input_schema": _TOOL}]
        case "gemini":
            body = {"systemInstruction": {"parts": [{"text": SYSTEM}]}}
            body["contents"] = list(map(_content, said))
            if tools:
                declared = [{"name": "shell", "parameters": _TOOL}]
                body["tools"] = [{"functionDeclarations": declared}]
    return body


def _chat(said: Said) -> dict[str, Any]:
    match said:
        case ("call", call_id):
            function = {"name": "shell", "arguments": '{"command": "ls"}'}
            call = {"id": call_id, "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case ("result", (call_id, text)):
            return {"role": "tool", "tool_call_id": call_id, "content": text}
        case (role, text):
            return {"role": role, "content": text}


def _item(said: Said) -> dict[str, Any]:
    match said:
        case ("call", call_id):
            return {"type": "function_call", "call_id": call_id, "name": "shell",
                    "arguments": '{"command": "ls"}'}  # fmt: skip
        case ("result", (call_id, text)):
            return {"type": "function_call_output", "call_id": call_id, "output": text}
        case (role, text):
            kind = "output_text" if role == "assistant" else "input_text"
            return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _block(said: Said) -> dict[str, Any]:
    match said:
        case ("call", call_id):
            block = {"type": "tool_use", "id": call_id, "name": "shell", "input": {"command": "ls"}}
            return {"role": "assistant", "content": [block]}
        case ("result", (call_id, text)):
            block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
            return {"role": "user", "content": [block]}
        case (role, text):
            return {"role": role, "content": text}


def _content(said: Said) -> dict[str, Any]:
    match said:
        case ("call", call_id):
            call = {"name": "shell", "args": {"command": "ls"}, "id": call_id}
            return {"role": "model", "parts": [{"functionCall": call}]}
        case ("result", (call_id, text)):
            answer = {"name": "shell", "response": {"output": text}, "id": call_id}
            return {"role": "user", "parts": [{"functionResponse": answer}]}
        case (role, text):
            return {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]}


def ask(
    url: str,
    shape: str,
    *said: Said,
    stream: bool = True,
    tools: bool = True,
    headers: dict[str, str] | None = None,
) -> httpx2.Response:
    """Send a request and read the whole answer."""
    body = body_of(shape, said, stream=stream, tools=tools)
    with httpx2.Client(timeout=TIMEOUT, trust_env=False) as client:
        return client.post(url + path_of(shape, stream=stream), json=body, headers=headers or {})


def stored(store: Path) -> list[dict[str, Any]]:
    """Return every session of a store, the oldest first: its turns and messages."""
    sessions = []
    with killick.Store(store) as opened:
        for info in sorted(opened.sessions(limit=100), key=lambda info: info.created_at_us):
            session = opened.session(info.id)
            sessions.append(
                {
                    "id": info.id,
                    "type": info.about.type,
                    "title": info.title,
                    "fork": info.about.fork,
                    "parent": info.about.parent,
                    "turns": [(turn.status, turn.cause) for turn in session.turns()],
                    "said": [_told(message) for message in session.messages()],
                    "session": [entry.kind for entry in session.entries()],
                }
            )
    return sessions


def _told(message: killick.Message) -> tuple[str, str, str]:
    texts = []
    for part in message.parts:
        if isinstance(part, killick.Text):
            texts.append(part.text)
        elif isinstance(part, killick.ToolCall):
            texts.append(f"[{part.name}]")
        elif isinstance(part, killick.ToolResult):
            texts.append(part.content if isinstance(part.content, str) else "…")
    return message.role, message.state, "".join(texts)


def text_of(shape: str, response: httpx2.Response) -> str:
    """Return the text that came back, however it was sent."""
    events = [
        json.loads(line[5:])
        for line in response.text.splitlines()
        if line.startswith("data:") and "[DONE]" not in line
    ] or [response.json()]
    return "".join(_piece(shape, event) for event in events)


def _piece(shape: str, event: dict[str, Any]) -> str:
    match shape:
        case "openai-chat":
            choice = (event.get("choices") or [{}])[0]
            return str((choice.get("delta") or choice.get("message") or {}).get("content") or "")
        case "openai-responses":
            if event.get("object") == "response":
                return str(event["output"][0]["content"][0]["text"])
            return str(event.get("delta") or "") if "output_text.delta" in event["type"] else ""
        case "anthropic":
            if event["type"] == "message":
                return "".join(block.get("text", "") for block in event["content"])
            return str((event.get("delta") or {}).get("text") or "")
        case _:
            parts = event["candidates"][0].get("content", {}).get("parts", [])
            return "".join(part.get("text", "") for part in parts)
