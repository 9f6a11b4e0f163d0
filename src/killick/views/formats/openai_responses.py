"""OpenAI Responses: a flat list of items; calls and results are items of their own."""

import re
from collections.abc import Sequence
from typing import Final

from killick.model.messages import File, Image, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from killick.views import phrases
from killick.views.formats.common import (
    Json,
    Rendered,
    RenderOptions,
    arguments_text,
    clean,
    is_clean,
    opaque_object,
    result_text,
    sent_back,
)
from killick.views.hosted import objects
from killick.views.neutral import Neutral

_ITEM_ID: Final = re.compile(r"rs_[a-zA-Z0-9]{1,60}")


def render(neutral: Sequence[Neutral], options: RenderOptions) -> Rendered:
    rendered = Rendered()
    custom: set[str] = set()
    used: set[str] = set()
    for message in neutral:
        if message.role == "tool":
            for item in _results(message, custom, options):
                rendered.add(item, message.seqs)
        elif message.role == "assistant":
            for item in _answer(message, custom, used, options):
                rendered.add(item, message.seqs)
        else:
            content = [block for part in message.parts for block in _input(part, message, options)]
            if content:
                rendered.add(
                    {"type": "message", "role": message.role, "content": content}, message.seqs
                )
    return rendered


def _answer(
    message: Neutral, custom: set[str], used: set[str], options: RenderOptions
) -> list[Json]:
    items: list[Json] = []
    thought: list[Json] | None = None
    for part in message.parts:
        match part:
            case Text():
                text = clean(part.text)
                item = {"type": "message", "role": "assistant", "content": text}
                items.append({**item, **sent_back(part, "openai-responses", "phase")})
            case ToolCall(tool_type="custom"):
                custom.add(part.id)
                items.append(
                    {
                        "type": "custom_tool_call",
                        "call_id": part.id,
                        "name": part.name,
                        "input": clean(part.arguments),
                        **sent_back(part, "openai-responses", "namespace", "caller"),
                    }
                )
            case ToolCall():
                items.append(
                    {
                        "type": "function_call",
                        "call_id": part.id,
                        "name": part.name,
                        "arguments": arguments_text(part),
                        **sent_back(part, "openai-responses", "namespace", "caller"),
                    }
                )
            case Reasoning():
                thought = _reasoning(part, message, used, options)
                items.extend(thought)
            case Image() | File():
                text = phrases.left_out(f"Something of type {part.media_type}")
                items.append({"type": "message", "role": "assistant", "content": text})
            case Opaque():
                value = opaque_object(part, "openai", message, options)
                half = isinstance(value, dict) and _is_half(value, message)
                if half or (isinstance(value, dict) and thought == [] and _is_of_tool(value)):
                    # It names its reasoning, or its other half, and is refused without it.
                    value = options.hosted(part, message) or None
                if isinstance(value, str):
                    items.append({"type": "message", "role": "assistant", "content": value})
                elif value is not None:
                    items.append(value)
            case _:
                pass
    while items and items[-1]["type"] == "reasoning":
        items.pop()  # a reasoning item without its follower makes the request invalid
        options.left_out(message, "reasoning that nothing follows")
    return items


def _is_half(item: Json, message: Neutral) -> bool:
    """Tell whether this is a shell that the provider ran without its output, or that alone."""
    other = {"shell_call": "shell_call_output", "shell_call_output": "shell_call"}.get(item["type"])
    return other is not None and not any(
        value.get("type") == other and value.get("call_id") == item.get("call_id")
        for value in objects(message.parts, "openai")
    )


def _is_of_tool(item: Json) -> bool:
    return str(item["type"]).endswith(("_call", "_call_output"))


def _reasoning(
    part: Reasoning, message: Neutral, used: set[str], options: RenderOptions
) -> list[Json]:
    ours = options.is_ours(message, "openai")
    if not options.reasoning or not ours or not part.encrypted or not is_clean(part.encrypted):
        options.left_out(message, "reasoning that is not this provider's, or not encrypted")
        return []
    item: Json = {"type": "reasoning"}
    # What is encrypted is bound to its id: the item's own, or none, but never one that is made up.
    item_id = part.signature or ""
    if _ITEM_ID.fullmatch(item_id) and item_id not in used:
        used.add(item_id)
        item["id"] = item_id
    item["summary"] = (
        [{"type": "summary_text", "text": clean(part.text)}] if part.text.strip() else []
    )
    item["encrypted_content"] = part.encrypted
    return [item]


def _results(message: Neutral, custom: set[str], options: RenderOptions) -> list[Json]:
    items: list[Json] = []
    shown: list[Json] = []
    for result in message.parts:
        assert isinstance(result, ToolResult)
        kind = "custom_tool_call" if result.call_id in custom else "function_call"
        text = result_text(result, message)
        items.append({"type": f"{kind}_output", "call_id": result.call_id, "output": text})
        if not isinstance(result.content, str):
            media_parts = [part for part in result.content if isinstance(part, Image | File)]
            shown += [block for part in media_parts for block in _input(part, message, options)]
    if shown:
        items.append({"type": "message", "role": "user", "content": shown})
    return items


def _input(part: Part, message: Neutral, options: RenderOptions) -> list[Json]:
    if isinstance(part, Text):
        return [{"type": "input_text", "text": clean(part.text)}]
    if isinstance(part, Opaque):
        sentence = options.hosted(part, message)
        return [{"type": "input_text", "text": sentence}] if sentence else []
    if not isinstance(part, Image | File):
        return []
    loaded = options.load(part, message)
    if isinstance(loaded, str):
        return [{"type": "input_text", "text": loaded}]
    if isinstance(part, Image):
        return [{"type": "input_image", "image_url": loaded.url, "detail": "auto"}]
    name = loaded.name or ("file.txt" if loaded.text is not None else "file")
    return [{"type": "input_file", "filename": name, "file_data": loaded.url}]
