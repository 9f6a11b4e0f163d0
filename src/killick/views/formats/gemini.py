"""Google Gemini: contents of role user and model; responses follow their calls directly."""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

import msgspec

from killick.model.messages import File, Image, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from killick.views import phrases
from killick.views.formats.common import (
    IMAGES,
    Json,
    Rendered,
    RenderOptions,
    arguments_object,
    clean,
    is_clean,
    opaque_object,
    result_text,
)
from killick.views.hosted import objects
from killick.views.neutral import Neutral

_NAME: Final = re.compile(r"[a-zA-Z_]")
"""How a function's name begins; another provider's tool may be called `7zip`."""

_UNSIGNED: Final = b64encode(b"skip_thought_signature_validator").decode()
"""What Google documents for calls that have no signature: by hand, or of another model."""


def render(neutral: Sequence[Neutral], options: RenderOptions) -> Rendered:
    rendered = Rendered()
    names: dict[str, str] = {}
    for message in neutral:
        role = "model" if message.role == "assistant" else "user"
        parts = _parts(_whole_runs(message, options), names, options)
        if not parts:
            continue
        if not rendered.messages and role == "model":
            rendered.add({"role": "user", "parts": [{"text": phrases.beginning()}]}, ())
        if _joins(rendered, role, message):
            rendered.messages[-1]["parts"] += parts
            rendered.extend_last(message.seqs)
        else:
            rendered.add({"role": role, "parts": parts}, message.seqs)
        shown = _media_of(message, options)
        if shown:
            rendered.add({"role": "user", "parts": shown}, message.seqs)
    return rendered


def _whole_runs(message: Neutral, options: RenderOptions) -> Neutral:
    """Return a message with a sentence for each half of a tool's run whose other half is missing.

    A call of a tool of Gemini's own goes back together with its response, or not at all.
    """
    values = list(objects(message.parts, "gemini"))
    calls = {_run_id(value) for value in values if "tool_call" in value}
    responses = {_run_id(value) for value in values if "tool_response" in value}
    if calls == responses:
        return message
    parts: list[Part] = []
    for part in message.parts:
        value = next(iter(objects([part], "gemini")), {})
        if not isinstance(part, Opaque) or _run_id(value) in (None, *(calls & responses)):
            parts.append(part)
        else:
            parts.append(Text(options.hosted(part, message)))
    return msgspec.structs.replace(message, parts=tuple(parts))


def _run_id(value: Json) -> str | None:
    half = value.get("tool_call") or value.get("tool_response")
    return str(half.get("id")) if isinstance(half, dict) else None


def _joins(rendered: Rendered, role: str, message: Neutral) -> bool:
    """Tell whether it joins the message before it. Responses stand alone behind calls."""
    if not rendered.messages or rendered.messages[-1]["role"] != role or message.role == "tool":
        return False
    # Nothing joins responses, so they are the first of their message or not in it at all.
    return "function_response" not in rendered.messages[-1]["parts"][0]


def _parts(message: Neutral, names: dict[str, str], options: RenderOptions) -> list[Json]:
    parts: list[Json] = []
    signed: Json | None = None
    for part in message.parts:
        signature = _signature(part)
        if signature is None:
            made = _part(part, message, names, options)
            signed = made[-1] if made else None
            parts += made
        elif signed is None or not options.is_ours(message, "gemini"):
            options.left_out(message, "a signature that is not this provider's, or of nothing sent")
        elif "thought_signature" not in signed:
            signed["thought_signature"] = signature
        else:  # it came with a text that is empty
            parts.append({"text": "", "thought_signature": signature})
    # Of the calls that are made at once the first is signed, and without it all are refused.
    first = next((part for part in parts if "function_call" in part), None)
    if first is not None:
        first.setdefault("thought_signature", _UNSIGNED)
    return parts


def _signature(part: Part) -> str | None:
    """The signature of the part before it, if this is one: it goes back with that part."""
    if not isinstance(part, Opaque) or part.provider != "gemini":
        return None
    try:
        value = json.loads(part.data)
    except ValueError:
        return None
    signature = value.get("thought_signature") if isinstance(value, dict) else None
    if not isinstance(signature, str) or len(value) != 1 or not _is_base64(signature):
        return None
    return signature


def _part(
    part: Part, message: Neutral, names: dict[str, str], options: RenderOptions
) -> list[Json]:
    match part:
        case Text():
            text = phrases.system_said(part.text) if message.role == "system" else part.text
            return [{"text": clean(text)}]
        case ToolCall():
            name = part.name if _NAME.match(part.name) else f"_{part.name[:63]}"
            names[part.id] = name
            call = {"id": part.id, "name": name, "args": arguments_object(part)}
            return [{"function_call": call}]
        case ToolResult():
            key = "error" if part.is_error else "output"
            response = {
                "id": part.call_id,
                "name": names.get(part.call_id, "tool"),
                "response": {key: result_text(part)},
            }
            return [{"function_response": response}]
        case Reasoning():
            return _thought(part, message, options)
        case Image() | File() if message.role == "assistant":
            return [{"text": phrases.left_out(f"Something of type {part.media_type}")}]
        case Image() | File():
            return [_media(part, message, options)]
        case Opaque():
            value = opaque_object(part, "gemini", message, options)
            return [{"text": value}] if isinstance(value, str) else [] if value is None else [value]


def _thought(part: Reasoning, message: Neutral, options: RenderOptions) -> list[Json]:
    ours = options.is_ours(message, "gemini")
    signature = part.signature or ""
    if options.reasoning and ours and part.text and is_clean(part.text) and _is_base64(signature):
        return [{"text": part.text, "thought": True, "thought_signature": signature}]
    options.left_out(message, "reasoning that is not this provider's, or not signed")
    return []


def _is_base64(text: str) -> bool:
    """A signature is bytes for Gemini; another provider's may not even be that."""
    try:
        return bool(b64decode(text, validate=True))
    except ValueError:
        return False


def _media_of(message: Neutral, options: RenderOptions) -> list[Json]:
    """Images of results: a response is data, so they follow in a content of their own."""
    if message.role != "tool":
        return []
    parts: list[Json] = []
    for result in message.parts:
        if isinstance(result, ToolResult) and not isinstance(result.content, str):
            shown = [part for part in result.content if isinstance(part, Image | File)]
            parts += [_media(part, message, options) for part in shown]
    return parts


def _media(part: Image | File, message: Neutral, options: RenderOptions) -> Json:
    loaded = options.load(part, message, images=IMAGES - {"image/gif"})
    if isinstance(loaded, str):
        return {"text": loaded}
    return {"inline_data": {"mime_type": loaded.media_type, "data": loaded.data}}
