"""Strands' stream to deltas, its messages to ours, and a context in its shape."""

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from killick.adapters.media import read_blobs
from killick.adapters.tool_journal import content_of
from killick.errors import InvalidEntry
from killick.model import messages as ours
from killick.model.entries import Usage
from killick.model.messages import File, Image, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from killick.model.messages import plain as as_text
from killick.session.aio import AsyncSession
from killick.session.core.stream import Deltas
from killick.session.sync_blocks import plain
from killick.views.formats.common import Media, clean, load_media

OURS: Final = "strands"
"""The provider of opaque parts, and the source of messages, that are Strands' own."""

Block = dict[str, Any]
StrandsMessage = dict[str, Any]


async def history(session: AsyncSession, *, max_tokens: int | None = None) -> Any:
    """Return what a model would be sent now, with the prompt of the running turn.

    It is valid whatever state the session was left in: every call has its result, or says that the
    outcome is unknown. Give it as `agent.messages`, and run the agent without a prompt.
    """
    settings: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
    context = await session.context("neutral", **settings)
    return as_messages(context.messages, await read_blobs(session, context.messages))


def as_messages(
    messages: Sequence[dict[str, Any]], data: Mapping[str, bytes]
) -> list[StrandsMessage]:
    """Return the neutral context as Strands' messages: roles alternate, results are a user's."""
    made: list[StrandsMessage] = []
    for message in messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = [block for part in message["parts"] for block in _block(part, message, data)]
        if made and made[-1]["role"] == role:
            made[-1]["content"] += blocks
        elif blocks:
            made.append({"role": role, "content": blocks})
    return made


def _block(part: Block, message: dict[str, Any], data: Mapping[str, bytes]) -> list[Block]:
    match part["type"]:
        case "text" if part["text"]:
            return [{"text": clean(part["text"])}]
        case "image" | "file":
            return [_media(part, data)]
        case "tool_call":
            given = {"toolUseId": part["id"], "name": part["name"]}
            return [{"toolUse": {**given, "input": _arguments(part.get("arguments"))}}]
        case "tool_result":
            inner = part["content"]
            content = (
                [{"text": clean(inner)}]
                if isinstance(inner, str)
                else [block for item in inner for block in _block(item, message, data)]
            )
            status = "error" if part.get("is_error") else "success"
            about = {"toolUseId": part["call_id"], "status": status}
            return [{"toolResult": {**about, "content": content}}]
        case _:
            return []


def _arguments(text: str | None) -> Any:
    try:
        value = json.loads(clean(text or "{}"))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _media(part: Block, data: Mapping[str, bytes]) -> Block:
    media = load_media(msgspec.convert(part, Image | File), data.get)
    if not isinstance(media, Media):
        return {"text": media}
    if media.text is not None:
        return {"text": clean(media.as_text)}
    kind = "image" if media.media_type.startswith("image/") else "document"
    form = media.media_type.partition("/")[2]
    block: Block = {"format": form, "source": {"bytes": b64decode(media.data)}}
    if kind == "document":
        block["name"] = "file"
    return {kind: block}


class PieceApplier:
    """Hands one answer over to a stream, chunk by chunk."""

    def __init__(self, reply: Deltas) -> None:
        self._reply = reply
        self._ids: set[str] = set()
        self._open: str | None = None
        self.streamed = False

    def add(self, chunk: Any) -> None:
        """Write one chunk. A refused one is kept as it came."""
        self.streamed = True
        try:
            self._write(chunk)
        except InvalidEntry as refused:
            kept = {"refused": str(refused), "chunk": repr(chunk)}
            self._reply.part(Opaque(OURS, msgspec.json.encode(kept)))

    def end(self, stop: Any) -> None:
        """Write what did not come in pieces, and the facts of the answer."""
        reason, message, usage, _ = stop
        if not self.streamed:
            for block in message["content"]:
                self._whole(block)
        self._reply.finish(
            finish_reason=as_text(reason) if isinstance(reason, str) else None,
            usage=_usage(usage),
        )

    def _write(self, chunk: Any) -> None:
        start = chunk.get("contentBlockStart")
        if start is not None and "toolUse" in (start.get("start") or {}):
            use = start["start"]["toolUse"]
            self._begin(use.get("toolUseId"), use.get("name"))
        delta = (chunk.get("contentBlockDelta") or {}).get("delta")
        if delta is not None:
            self._delta(delta)
        if "contentBlockStop" in chunk and self._open is not None:
            self._reply.tool_call(self._open, done=True)
            self._open = None

    def _delta(self, delta: Any) -> None:
        if "text" in delta:
            self._reply.text(as_text(delta["text"]))
        elif "toolUse" in delta:
            use = delta["toolUse"]
            if self._open is None:  # some models name the call here
                self._begin(use.get("toolUseId"), use.get("name"))
            self._reply.tool_call(self._open or "", arguments=as_text(use.get("input") or ""))
        elif "reasoningContent" in delta:
            thought = delta["reasoningContent"]
            signature = thought.get("signature")
            self._reply.reasoning(as_text(thought.get("text") or ""), signature=signature or None)

    def _whole(self, block: Any) -> None:
        if block.get("text"):
            self._reply.text(as_text(block["text"]))
        elif "toolUse" in block:
            use = block["toolUse"]
            self._begin(use.get("toolUseId"), use.get("name"))
            arguments = json.dumps(plain(use.get("input") or {}), ensure_ascii=False)
            self._reply.tool_call(self._open or "", arguments=arguments, done=True)
            self._open = None
        elif "reasoningContent" in block:
            thought = block["reasoningContent"].get("reasoningText") or {}
            signature = thought.get("signature")
            self._reply.reasoning(as_text(thought.get("text") or ""), signature=signature or None)

    def _begin(self, given: Any, name: Any) -> None:
        """Begin a call; one without an id, or with that of another, gets its own."""
        call_id = as_text(given or "")
        if not call_id or call_id in self._ids:
            call_id = f"{call_id or 'call'}_{self._reply.id[-12:]}_{len(self._ids)}"
        self._ids.add(call_id)
        self._open = call_id
        self._reply.tool_call(self._open, name=as_text(name or "tool"))


def _usage(tokens: Any) -> Usage | None:
    if not tokens:
        return None
    return Usage(
        input=tokens.get("inputTokens") or 0,
        output=tokens.get("outputTokens") or 0,
        cached=tokens.get("cacheReadInputTokens") or 0,
    )


def request_facts(context: Any) -> dict[str, Any]:
    """Return provider, model, settings, system prompt and tools of a request."""
    config = getattr(context.model, "config", None)
    settings = dict(config) if isinstance(config, Mapping) else {}
    facts: dict[str, Any] = {"provider": type(context.model).__module__.rpartition(".")[2]}
    model = settings.pop("model_id", None)
    if isinstance(model, str):
        facts["model"] = as_text(model)
    kept = {
        key: value
        for key, given in settings.items()
        if "key" not in key and (value := plain(given)) is not None
    }
    if kept:
        facts["settings"] = kept
    system = context.system_prompt
    if isinstance(system, list):
        system = "\n\n".join(block["text"] for block in system if block.get("text"))
    if system:
        facts["system"] = as_text(system)
    tools = [offer for spec in context.tool_specs or () if (offer := plain(dict(spec)))]
    if tools:
        facts["tools"] = tools
    return facts


def last_prompt(messages: Sequence[Any]) -> str:
    """Return the newest words of a person, or of the agent that asks another."""
    for message in reversed(messages):
        text = "\n".join(block["text"] for block in message["content"] if block.get("text"))
        if message["role"] == "user" and text:
            return as_text(text)
    return ""


def told(result: Any) -> tuple[str, Any]:
    """Return a tool's result as text, and as JSON if it has any."""
    texts, structured = [], None
    for block in result.get("content") or ():
        if "text" in block:
            texts.append(as_text(block["text"]))
        elif "json" in block:
            text, structured = content_of(block["json"])
            texts.append(text)
    return "\n".join(texts), structured


def shown(result: Any) -> list[tuple[bytes, str]]:
    """Return the images and documents in a tool's result, with their types."""
    held = []
    for block in result.get("content") or ():
        for kind, folder in (("image", "image"), ("document", "application")):
            data = (block.get(kind) or {}).get("source", {}).get("bytes")
            if isinstance(data, bytes):
                held.append((data, f"{folder}/{block[kind].get('format', 'octet-stream')}"))
    return held


def as_message(message: Any) -> ours.Message | None:
    """Return what was said in one of Strands' messages; None if nothing was."""
    parts: list[Part] = []
    for block in message["content"]:
        if block.get("text"):
            parts.append(Text(as_text(block["text"])))
        elif "toolUse" in block and block["toolUse"].get("toolUseId"):
            use = block["toolUse"]
            arguments = json.dumps(plain(use.get("input") or {}), ensure_ascii=False)
            parts.append(ToolCall(as_text(use["toolUseId"]), as_text(use["name"]), arguments))
        elif "toolResult" in block and block["toolResult"].get("toolUseId"):
            result = block["toolResult"]
            text, structured = told(result)
            failed = result.get("status") == "error"
            about = as_text(result["toolUseId"])
            parts.append(ToolResult(about, text, is_error=failed, structured=structured))
        elif "reasoningContent" in block:
            thought = block["reasoningContent"].get("reasoningText") or {}
            parts.append(Reasoning(as_text(thought.get("text") or "")))
    results = [part for part in parts if isinstance(part, ToolResult)]
    if results:
        return ours.Message(role="tool", parts=results)
    role: Any = "assistant" if message["role"] == "assistant" else "user"
    return ours.Message(role=role, parts=parts) if parts else None
