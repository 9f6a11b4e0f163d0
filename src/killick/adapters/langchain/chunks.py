"""Write LangChain's messages and chunks as a stream's deltas; find results in what nodes return."""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from killick.errors import InvalidEntry
from killick.model.entries import Usage
from killick.model.messages import Json, Opaque, plain
from killick.session.core.stream import Deltas
from killick.session.sync_blocks import plain as as_json

OURS: Final = "langchain"
"""The provider of the opaque parts that only this adapter reads."""


class ChunkApplier:
    """Hands one answer over to a stream, piece by piece."""

    def __init__(self, reply: Deltas) -> None:
        self._reply = reply
        self._calls: dict[Any, str] = {}
        self.streamed = False

    def add(self, message: Any) -> None:
        """Write one chunk. A refused one is kept as it came."""
        self.streamed = True
        try:
            self._content(message)
            for chunk in getattr(message, "tool_call_chunks", None) or ():
                self._call(chunk)
        except InvalidEntry as refused:
            kept = {"refused": str(refused), "chunk": repr(message)}
            self._reply.part(Opaque(OURS, msgspec.json.encode(kept)))

    def end(self, message: Any) -> None:
        """Write what did not come in pieces, and the facts of the answer."""
        if not self.streamed:
            self._content(message)
            calls = [*getattr(message, "tool_calls", ())]
            calls += [*getattr(message, "invalid_tool_calls", ())]
            for number, call in enumerate(calls):
                args = call.get("args")
                text = args if isinstance(args, str) else json.dumps(args or {})
                self._call({**call, "args": text, "index": number})
        for call_id in self._calls.values():
            self._reply.tool_call(call_id, done=True)
        facts = getattr(message, "response_metadata", None) or {}
        reason = facts.get("finish_reason") or facts.get("stop_reason")
        self._reply.finish(
            finish_reason=plain(reason) if isinstance(reason, str) else None,
            usage=_usage(getattr(message, "usage_metadata", None)),
            provider_ids={"message": str(message.id)} if getattr(message, "id", None) else None,
        )

    def _content(self, message: Any) -> None:
        thought = (getattr(message, "additional_kwargs", None) or {}).get("reasoning_content")
        if isinstance(thought, str):
            self._reply.reasoning(plain(thought))
        content = message.content
        if isinstance(content, str):
            self._reply.text(plain(content))
            return
        for block in content:
            if isinstance(block, str):
                self._reply.text(plain(block))
            elif isinstance(block, dict):
                self._block(block)

    def _block(self, block: dict[str, Any]) -> None:
        kind = block.get("type")
        if kind == "text":
            self._reply.text(plain(block.get("text") or ""))
        elif kind in ("thinking", "reasoning"):
            text = block.get("thinking") or block.get("reasoning") or ""
            signature = block.get("signature")
            self._reply.reasoning(plain(text), signature=signature or None)
        elif kind not in ("tool_use", "tool_call", "tool_call_chunk", "input_json_delta"):
            kept = as_json(block)
            if kept is not None:
                self._reply.part(Opaque(OURS, msgspec.json.encode({"block": kept})))

    def _call(self, chunk: Any) -> None:
        """Write a piece of a call; one without an id, or with that of another, gets its own."""
        key = chunk.get("index")
        key = key if key is not None else chunk.get("id") or len(self._calls)
        arguments = plain(chunk.get("args") or "")
        known = self._calls.get(key)
        if known is not None:
            self._reply.tool_call(known, arguments=arguments)
            return
        call_id = plain(chunk.get("id") or "") or f"call_{self._reply.id[-12:]}"
        if not chunk.get("id") or call_id in self._calls.values():
            call_id = f"{call_id}_{len(self._calls)}"
        self._calls[key] = call_id
        name = plain(chunk.get("name") or "tool")
        self._reply.tool_call(call_id, name=name, arguments=arguments)


def _usage(tokens: Any) -> Usage | None:
    if not tokens:
        return None
    given = tokens.get("input_token_details") or {}
    made = tokens.get("output_token_details") or {}
    return Usage(
        input=tokens.get("input_tokens") or 0,
        output=tokens.get("output_tokens") or 0,
        cached=given.get("cache_read") or 0,
        reasoning=made.get("reasoning") or 0,
    )


class ToolReturn(NamedTuple):
    """The outcome of a tool."""

    text: str
    structured: Json
    is_error: bool


def outcome(value: Any, call_id: str | None) -> ToolReturn:
    """Return a tool's outcome: its message, one inside of a command, or a plain value."""
    message = next(
        (answer for answer in tool_messages(value) if call_id in (None, answer.tool_call_id)), None
    )
    if message is not None:
        text = message.text if isinstance(message.text, str) else message.text()
        structured = None if isinstance(message.content, str) else as_json(message.content)
        return ToolReturn(plain(text), structured, getattr(message, "status", None) == "error")
    if isinstance(value, str):
        return ToolReturn(plain(value), None, is_error=False)
    structured = as_json(value)
    text = str(value) if structured is None else json.dumps(structured, ensure_ascii=False)
    return ToolReturn(text, structured, is_error=False)


def tool_messages(value: Any) -> Iterator[Any]:
    """Yield the tools' messages in what a tool, a node or a command holds."""
    if getattr(value, "type", None) == "tool" and hasattr(value, "tool_call_id"):
        yield value
    elif isinstance(value, dict):
        yield from tool_messages(value.get("messages"))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tool_messages(inner)
    elif hasattr(value, "update") and hasattr(value, "goto"):  # a command of LangGraph's
        yield from tool_messages(value.update)


def call_facts(params: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """Return provider, model, settings and tools of a request, as callbacks are told them."""
    facts: dict[str, Any] = {"provider": str(metadata.get("ls_provider") or OURS)}
    model = metadata.get("ls_model_name") or params.get("model") or params.get("model_name")
    if isinstance(model, str):
        facts["model"] = plain(model)
    hidden = ("tools", "model", "model_name", "messages")
    settings = {
        key: kept
        for key, value in params.items()
        if key not in hidden and not key.startswith("extra_") and "key" not in key
        if (kept := as_json(value)) is not None
    }
    facts["settings"] = settings
    tools = as_json(params.get("tools"))
    if tools:
        facts["tools"] = tools
    return facts


def system_text(messages: Any) -> str | None:
    """Return the system prompt of a request."""
    texts = [
        str(message.text) for message in messages if getattr(message, "type", None) == "system"
    ]
    return "\n\n".join(plain(text) for text in texts) or None


def last_prompt(messages: Any) -> str:
    """Return the newest words of a person, or of the agent that asks another."""
    for message in reversed(messages):
        if getattr(message, "type", None) == "human":
            return plain(str(message.text))
    return ""


def waits(error: BaseException) -> bool:
    """Return whether this is no failure: LangGraph raises it where a run waits for a person."""
    return any(kind.__name__ == "GraphBubbleUp" for kind in type(error).__mro__)
