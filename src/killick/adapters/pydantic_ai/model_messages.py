"""Make pydantic-ai's message history from a session's context."""

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from killick.adapters.media import read_blobs
from killick.adapters.pydantic_ai.parts import HELD, OURS, PARTS
from killick.model.messages import File, Image
from killick.session.aio import AsyncSession
from killick.views.formats.common import Media, clean, is_clean, load_media

Neutral = dict[str, Any]
"""One message, or one part, of the neutral context."""

Blobs = Mapping[str, bytes]
"""The bytes of images and files, by their names."""


async def history(session: AsyncSession, *, max_tokens: int | None = None) -> list[ModelMessage]:
    """Return what a model would be sent now, with the prompt of the running turn.

    Give it as `message_history`, without a prompt of its own. It is valid whatever state the
    session was left in: every call has its result, or says that the outcome is unknown. Images and
    PDF files are sent as they are; what no provider takes is mentioned.
    """
    settings: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
    context = await session.context("neutral", **settings)
    data = await read_blobs(session, context.messages)
    return as_history(context.messages, data)


def as_history(messages: Sequence[Neutral], data: Blobs | None = None) -> list[ModelMessage]:
    """Return the neutral context as pydantic-ai's messages: one request between two answers."""
    names = {
        part["id"]: part["name"]
        for message in messages
        for part in message["parts"]
        if part["type"] == "tool_call"
    }
    made: list[ModelMessage] = []
    for answered, group in groupby(messages, lambda message: message["role"] == "assistant"):
        if answered:
            made += [response for message in group if (response := _response(message))]
        else:
            asked = [
                part for message in group for part in _request_parts(message, names, data or {})
            ]
            if asked:
                made.append(ModelRequest(parts=asked))
    return made


# -- answers -----------------------------------------------------------------------------------


def _response(message: Neutral) -> ModelResponse | None:
    provider = message.get("provider")
    parts: list[ModelResponsePart] = []
    beside: list[Neutral] = []
    for part in message["parts"]:
        if part["type"] == "opaque":
            beside = _read_beside(part) or beside
        else:
            parts += _answer_parts(part, provider)
    parts = _restored(parts, beside)
    return ModelResponse(parts=parts, provider_name=provider) if parts else None


def _answer_parts(part: Neutral, provider: str | None) -> list[ModelResponsePart]:
    match part["type"]:
        case "text":
            return [TextPart(clean(part["text"]))]
        case "reasoning":
            signature = part.get("signature") or part.get("encrypted")
            if not is_clean(part["text"], signature):
                return []  # signed text can be passed on exactly, or not at all
            if signature is not None and provider is not None:
                thought = ThinkingPart(part["text"], signature=signature, provider_name=provider)
                return [thought]
            return [ThinkingPart(part["text"])] if part["text"] else []
        case "tool_call":
            return [ToolCallPart(part["name"], clean(part.get("arguments", "")), part["id"])]
        case _:
            return []


def _read_beside(part: Neutral) -> list[Neutral]:
    if part["provider"] != OURS:
        return []
    data = part["data"]
    kept = json.loads(b64decode(data) if isinstance(data, str) else data)
    beside = kept.get("beside")
    return beside if isinstance(beside, list) else []


def _restored(parts: list[ModelResponsePart], beside: list[Neutral]) -> list[ModelResponsePart]:
    """Return the parts with pydantic-ai's own fields; unchanged, if these do not fit."""
    left = iter(parts)
    restored: list[ModelResponsePart] = []
    try:
        for fields in beside:
            if fields["part_kind"] not in HELD:
                restored.append(PARTS.validate_python(fields))
                continue
            part = next(left)
            if part.part_kind != fields["part_kind"]:
                return parts
            restored.append(PARTS.validate_python({**PARTS.dump_python(part), **fields}))
    except (StopIteration, ValidationError, KeyError):
        return parts
    return [*restored, *left]


# -- what answers are about --------------------------------------------------------------------


def _request_parts(message: Neutral, names: dict[str, str], data: Blobs) -> list[ModelRequestPart]:
    if message["role"] == "system":
        texts = [clean(part["text"]) for part in message["parts"] if "text" in part]
        return [SystemPromptPart(text) for text in texts]
    made: list[ModelRequestPart] = []
    spoken: list[UserContent] = []
    for part in message["parts"]:
        if part["type"] == "tool_result":
            made.append(_returned(part, names, data))
        else:
            spoken += _shown(part, data)
    if len(spoken) == 1 and isinstance(spoken[0], str):
        made.append(UserPromptPart(spoken[0]))
    elif spoken:
        made.append(UserPromptPart(spoken))
    return made


def _returned(part: Neutral, names: dict[str, str], data: Blobs) -> ToolReturnPart:
    content = part["content"]
    if isinstance(content, str):
        content = clean(content)
    else:
        shown = [item for inner in content for item in _shown(inner, data)]
        content = shown[0] if len(shown) == 1 else shown
    # "failed" makes it an error for providers that know one; the words are those of the journal.
    return ToolReturnPart(
        names[part["call_id"]],
        content,
        part["call_id"],
        outcome="failed" if part.get("is_error") else "success",
    )


def _shown(part: Neutral, data: Blobs) -> list[UserContent]:
    match part["type"]:
        case "text":
            return [clean(part["text"])] if part["text"] else []
        case "image" | "file":
            media = load_media(msgspec.convert(part, Image | File), data.get)
            if isinstance(media, Media) and media.text is not None:
                return [clean(media.as_text)]  # which of its providers take text files differs
            if isinstance(media, Media):
                return [BinaryContent(b64decode(media.data), media_type=media.media_type)]
            return [media]
        case _:
            return []
