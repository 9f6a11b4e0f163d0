"""The framework's updates to deltas, its messages to ours, and a context in its shape."""

import json
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from agent_framework import Content, Message

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

OURS: Final = "agent-framework"
"""The provider of the opaque parts that only this adapter reads."""

Neutral = dict[str, Any]


async def history(session: AsyncSession, *, max_tokens: int | None = None) -> list[Message]:
    """Return what a model would be sent now, with the prompt of the running turn.

    It is valid whatever state the session was left in: every call has its result, or says that the
    outcome is unknown.
    """
    settings: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
    return await history_with(session, settings)


async def history_with(session: AsyncSession, settings: dict[str, Any]) -> list[Message]:
    """Return the same with settings of `session.context`."""
    context = await session.context("neutral", **settings)
    data = await read_blobs(session, context.messages)
    made = [Message(message["role"], _shown(message, data)) for message in context.messages]
    return [message for message in made if message.contents]


def _shown(message: Neutral, data: Mapping[str, bytes]) -> list[Content]:
    contents: list[Content] = []
    for part in message["parts"]:
        match part["type"]:
            case "text" if part["text"]:
                contents.append(Content.from_text(clean(part["text"])))
            case "image" | "file":
                contents.append(_media(part, data))
            case "tool_call":
                arguments = clean(part.get("arguments") or "{}")
                contents.append(
                    Content.from_function_call(part["id"], part["name"], arguments=arguments)
                )
            case "tool_result":
                inner = part["content"]
                given: Any = (
                    clean(inner) if isinstance(inner, str) else _shown({"parts": inner}, data)
                )
                failed = "the tool failed" if part.get("is_error") else None
                contents.append(
                    Content.from_function_result(part["call_id"], result=given, exception=failed)
                )
            case "opaque" if part["provider"] == OURS:
                contents += _opaque(part["data"])
            case _:
                pass
    return contents


def _opaque(data: Any) -> list[Content]:
    kept = json.loads(b64decode(data) if isinstance(data, str) else data)
    return [Content.from_dict(kept["content"])] if isinstance(kept.get("content"), dict) else []


def _media(part: Neutral, data: Mapping[str, bytes]) -> Content:
    media = load_media(msgspec.convert(part, Image | File), data.get)
    if not isinstance(media, Media):
        return Content.from_text(media)
    if media.text is not None:
        return Content.from_text(clean(media.as_text))
    return Content.from_data(b64decode(media.data), media.media_type)


class ContentApplier:
    """Hands one answer over to a stream, content by content."""

    def __init__(self, reply: Deltas) -> None:
        self._reply = reply
        self._calls: dict[str, str] = {}
        self._made: list[str] = []
        self._last: str | None = None

    def add(self, contents: Iterable[Content]) -> None:
        """Write the contents of an update. A refused one is kept as it came."""
        for content in contents:
            try:
                self._write(content)
            except InvalidEntry as refused:
                kept = {"refused": str(refused), "content": plain(content.to_dict())}
                self._reply.part(Opaque(OURS, msgspec.json.encode(kept)))

    def end(self, finish_reason: Any, response_id: str | None) -> None:
        """Write the facts of an answer that is over."""
        for call_id in self._made:
            self._reply.tool_call(call_id, done=True)
        self._reply.finish(
            finish_reason=as_text(finish_reason) if isinstance(finish_reason, str) else None,
            provider_ids={"response": response_id} if response_id else None,
        )

    def _write(self, content: Content) -> None:
        match content.type:
            case "text":
                self._reply.text(as_text(content.text or ""))
            case "text_reasoning":
                signature = content.protected_data
                self._reply.reasoning(as_text(content.text or ""), signature=signature or None)
            case "function_call" if not content.informational_only and not content.hosted:
                self._call(content)
            case "usage":
                self._reply.finish(usage=_usage(content.usage_details))
            case _:
                kept = plain(content.to_dict())
                if kept is not None:
                    self._reply.part(Opaque(OURS, msgspec.json.encode({"content": kept})))

    def _call(self, content: Content) -> None:
        """Write a call or a piece of one; one without an id, or with that of another, gets one."""
        given = as_text(content.call_id or "")
        arguments = content.arguments
        text = arguments if isinstance(arguments, str) else ""
        if arguments is not None and not isinstance(arguments, str):
            text = json.dumps(plain(dict(arguments)), ensure_ascii=False)
        known = self._calls.get(given) if given else None
        if known is None and not given and not content.name:
            known = self._last
        call_id = given or f"call_{self._reply.id[-12:]}_{len(self._made)}"
        if known is not None:
            try:
                self._reply.tool_call(known, arguments=as_text(text))
            except InvalidEntry:  # it is whole: this is another one
                if not content.name:
                    raise
                call_id = f"{given}_{len(self._made)}"
            else:
                return
        self._calls[given or call_id] = self._last = call_id
        self._made.append(call_id)
        self._reply.tool_call(call_id, name=as_text(content.name or "tool"), arguments=text)


def _usage(details: Any) -> Usage | None:
    if not details:
        return None
    return Usage(
        input=details.get("input_token_count") or 0,
        output=details.get("output_token_count") or 0,
        cached=details.get("cache_read_input_token_count") or 0,
        reasoning=details.get("reasoning_output_token_count") or 0,
    )


def usage_of(response: Any) -> Usage | None:
    """Return the tokens that a whole answer cost."""
    return _usage(getattr(response, "usage_details", None))


def request_facts(context: Any) -> dict[str, Any]:
    """Return provider, model, settings, system prompt and tools of a request."""
    options = dict(context.options or {})
    name = getattr(context.client, "OTEL_PROVIDER_NAME", None)
    facts: dict[str, Any] = {"provider": name if name and name != "unknown" else OURS}
    model = options.pop("model", None) or getattr(context.client, "model", None)
    if isinstance(model, str):
        facts["model"] = as_text(model)
    system = [options.pop("instructions", None)]
    system += [message.text for message in context.messages if message.role == "system"]
    texts = [as_text(text) for text in system if isinstance(text, str) and text]
    if texts:
        facts["system"] = "\n\n".join(texts)
    tools = [_offer(tool) for tool in options.pop("tools", None) or ()]
    if tools:
        facts["tools"] = tools
    settings = {
        key: kept
        for key, value in options.items()
        if not key.startswith("extra_") and "key" not in key
        if (kept := plain(value)) is not None
    }
    if settings:
        facts["settings"] = settings
    return facts


def _offer(tool: Any) -> Any:
    if isinstance(tool, dict):
        return plain(tool) or {}
    parameters = tool.parameters() if callable(getattr(tool, "parameters", None)) else None
    offer = {
        "name": str(getattr(tool, "name", "")),
        "description": str(getattr(tool, "description", "")),
        "parameters": plain(parameters),
    }
    return {key: value for key, value in offer.items() if value}


def last_prompt(messages: Sequence[Message]) -> str:
    """Return the newest words of a person, or of the agent that asks another."""
    for message in reversed(messages):
        if message.role == "user" and message.text:
            return as_text(message.text)
    return ""


def results_in(messages: Iterable[Message]) -> list[Content]:
    """Return the results that a model is told."""
    return [
        content
        for message in messages
        for content in message.contents
        if content.type == "function_result" and content.call_id
    ]


def data_of(content: Content) -> tuple[bytes, str] | None:
    """Return the bytes that a content holds, and their type; None if it holds none."""
    if content.type != "data" or not content.uri or ";base64," not in content.uri:
        return None
    data = b64decode(content.uri.partition(";base64,")[2])
    return data, content.media_type or "application/octet-stream"


def text_of(value: Any) -> tuple[str, Any]:
    """Return what a tool returned as text, and as JSON if it is neither text nor contents."""
    if isinstance(value, Content):
        value = [value]
    if isinstance(value, list) and all(isinstance(item, Content) for item in value):
        texts = [as_text(item.text) for item in value if item.type == "text" and item.text]
        return "\n".join(texts), None
    return content_of(value)


def as_message(message: Message) -> ours.Message | None:
    """Return what was said in one of the framework's messages; None if nothing was."""
    parts: list[Part] = []
    for content in message.contents:
        match content.type:
            case "text" if content.text:
                parts.append(Text(as_text(content.text)))
            case "text_reasoning" if content.text:
                parts.append(Reasoning(as_text(content.text)))
            case "function_call" if content.call_id:
                arguments = content.arguments
                if not isinstance(arguments, str):
                    arguments = json.dumps(plain(dict(arguments or {})), ensure_ascii=False)
                name = as_text(content.name or "tool")
                parts.append(ToolCall(as_text(content.call_id), name, arguments or "{}"))
            case "function_result" if content.call_id:
                text, _ = text_of(content.items or content.result or "")
                failed = content.exception is not None
                parts.append(ToolResult(as_text(content.call_id), text, is_error=failed))
            case _:
                pass
    if not parts:
        return None
    if any(isinstance(part, ToolResult) for part in parts):
        results = [part for part in parts if isinstance(part, ToolResult)]
        return ours.Message(role="tool", parts=results)
    role: Any = message.role if message.role in ("user", "assistant", "system") else "user"
    return ours.Message(role=role, parts=parts)
