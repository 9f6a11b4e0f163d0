"""OpenAI Responses: a flat list of items; calls and results are items of their own."""

from collections.abc import Sequence

from holdfast.model.parts import File, Image, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from holdfast.views import media, wording
from holdfast.views.formats.common import (
    Json,
    Options,
    Rendered,
    arguments_text,
    clean,
    is_clean,
    opaque_object,
    result_text,
)
from holdfast.views.neutral import Neutral


def render(neutral: Sequence[Neutral], options: Options) -> Rendered:
    rendered = Rendered([], [])
    custom: set[str] = set()
    for one in neutral:
        if one.role == "tool":
            for item in _results(one, custom, options):
                rendered.add(item, one.seqs)
        elif one.role == "assistant":
            for item in _answer(one, custom, options):
                rendered.add(item, one.seqs)
        else:
            content = [_input(part, options) for part in one.parts if _is_input(part)]
            if content:
                rendered.add({"type": "message", "role": one.role, "content": content}, one.seqs)
    return rendered


def _answer(one: Neutral, custom: set[str], options: Options) -> list[Json]:
    items: list[Json] = []
    for part in one.parts:
        match part:
            case Text():
                text = clean(part.text)
                items.append({"type": "message", "role": "assistant", "content": text})
            case ToolCall(tool_type="custom"):
                custom.add(part.id)
                items.append(
                    {
                        "type": "custom_tool_call",
                        "call_id": part.id,
                        "name": part.name,
                        "input": clean(part.arguments),
                    }
                )
            case ToolCall():
                items.append(
                    {
                        "type": "function_call",
                        "call_id": part.id,
                        "name": part.name,
                        "arguments": arguments_text(part),
                    }
                )
            case Reasoning():
                items.extend(_reasoning(part, one, options))
            case Image() | File():
                text = wording.left_out(f"Something of type {part.media_type}")
                items.append({"type": "message", "role": "assistant", "content": text})
            case Opaque():
                value = opaque_object(part, "openai")
                if value is not None:
                    items.append(value)
            case _:
                pass
    while items and items[-1]["type"] == "reasoning":
        items.pop()  # a reasoning item without its follower makes the request invalid
    return items


def _reasoning(part: Reasoning, one: Neutral, options: Options) -> list[Json]:
    ours = one.provider in (None, "openai")
    if not options.reasoning or not ours or not part.encrypted:
        return []
    if not is_clean(part.encrypted, part.signature):
        return []
    known = (part.signature or "").startswith("rs_")
    item_id = part.signature if known else f"rs_{one.seqs[0]}"
    summary = [{"type": "summary_text", "text": clean(part.text)}] if part.text.strip() else []
    return [
        {
            "type": "reasoning",
            "id": item_id,
            "summary": summary,
            "encrypted_content": part.encrypted,
        }
    ]


def _results(one: Neutral, custom: set[str], options: Options) -> list[Json]:
    items: list[Json] = []
    shown: list[Json] = []
    for result in one.parts:
        assert isinstance(result, ToolResult)
        kind = "custom_tool_call" if result.call_id in custom else "function_call"
        items.append(
            {
                "type": f"{kind}_output",
                "call_id": result.call_id,
                "output": result_text(result),
            }
        )
        if not isinstance(result.content, str):
            media_parts = [part for part in result.content if isinstance(part, Image | File)]
            shown += [_input(part, options) for part in media_parts]
    if shown:
        items.append({"type": "message", "role": "user", "content": shown})
    return items


def _is_input(part: Part) -> bool:
    return isinstance(part, Text | Image | File)


def _input(part: Part, options: Options) -> Json:
    if isinstance(part, Text):
        return {"type": "input_text", "text": clean(part.text)}
    assert isinstance(part, Image | File)
    loaded = media.load(part, options.blobs)
    if isinstance(loaded, str):
        return {"type": "input_text", "text": loaded}
    if isinstance(part, Image):
        return {"type": "input_image", "image_url": loaded.url, "detail": "auto"}
    return {"type": "input_file", "filename": loaded.name or "file", "file_data": loaded.url}
