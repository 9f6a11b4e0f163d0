"""OpenAI Chat Completions: a list of messages; results are messages of role `tool`."""

from collections.abc import Sequence

from killick.model.messages import File, Image, Opaque, Reasoning, Text, ToolCall, ToolResult
from killick.views import phrases
from killick.views.formats.common import (
    Json,
    Rendered,
    RenderOptions,
    arguments_text,
    clean,
    result_text,
)
from killick.views.neutral import Neutral


def render(neutral: Sequence[Neutral], options: RenderOptions) -> Rendered:
    rendered = Rendered()
    for one in neutral:
        if one.role == "tool":
            _add_results(rendered, one, options)
        elif one.role == "assistant":
            message = _assistant(one, options)
            if message is not None:
                rendered.add(message, one.seqs)
        else:
            content = _content(one, options)
            if content:
                rendered.add({"role": one.role, "content": content}, one.seqs)
    return rendered


def _assistant(one: Neutral, options: RenderOptions) -> Json | None:
    texts = []
    for part in one.parts:
        if isinstance(part, Text):
            texts.append(clean(part.text))
        elif isinstance(part, Image | File):
            texts.append(phrases.left_out(f"Something of type {part.media_type}"))
        elif isinstance(part, Reasoning | Opaque):
            options.left_out(one, "reasoning and opaque data have no place in this format")
    message: Json = {"role": "assistant", "content": "\n".join(texts) or None}
    calls = [part for part in one.parts if isinstance(part, ToolCall)]
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text(call)},
            }
            for call in calls
        ]
    return message if texts or calls else None


def _add_results(rendered: Rendered, one: Neutral, options: RenderOptions) -> None:
    shown: list[Json] = []
    for result in one.parts:
        assert isinstance(result, ToolResult)
        rendered.add(
            {"role": "tool", "tool_call_id": result.call_id, "content": result_text(result)},
            one.seqs,
        )
        shown += _media_of(result, one, options)
    if shown:  # a tool message takes text only, so what else there is follows the results
        rendered.add({"role": "user", "content": shown}, one.seqs)


def _media_of(result: ToolResult, one: Neutral, options: RenderOptions) -> list[Json]:
    if isinstance(result.content, str):
        return []
    return [_block(part, one, options) for part in result.content if isinstance(part, Image | File)]


def _content(one: Neutral, options: RenderOptions) -> str | list[Json]:
    if all(isinstance(part, Text) for part in one.parts) and len(one.parts) == 1:
        part = one.parts[0]
        assert isinstance(part, Text)
        return clean(part.text)
    kept = [part for part in one.parts if isinstance(part, Text | Image | File)]
    if one.role == "system":
        return "\n".join(clean(part.text) for part in kept if isinstance(part, Text))
    return [_block(part, one, options) for part in kept]


def _block(part: Text | Image | File, one: Neutral, options: RenderOptions) -> Json:
    if isinstance(part, Text):
        return {"type": "text", "text": clean(part.text)}
    loaded = options.load(part, one)
    if isinstance(loaded, str):
        return {"type": "text", "text": loaded}
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": loaded.url}}
    return {"type": "file", "file": {"filename": loaded.name or "file", "file_data": loaded.url}}
