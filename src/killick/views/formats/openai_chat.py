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
    for message in neutral:
        if message.role == "tool":
            _add_results(rendered, message, options)
        elif message.role == "assistant":
            answer = _assistant(message, options)
            if answer is not None:
                rendered.add(answer, message.seqs)
        else:
            content = _content(message, options)
            if content:
                rendered.add({"role": message.role, "content": content}, message.seqs)
    return rendered


def _assistant(message: Neutral, options: RenderOptions) -> Json | None:
    texts = []
    for part in message.parts:
        if isinstance(part, Text):
            texts.append(clean(part.text))
        elif isinstance(part, Image | File):
            texts.append(phrases.left_out(f"Something of type {part.media_type}"))
        elif isinstance(part, Opaque):
            sentence = options.hosted(part, message)
            texts += [sentence] if sentence else []
        elif isinstance(part, Reasoning):
            options.left_out(message, "reasoning has no place in this format")
    answer: Json = {"role": "assistant", "content": "\n".join(texts) or None}
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    if calls:
        answer["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text(call)},
            }
            for call in calls
        ]
    return answer if texts or calls else None


def _add_results(rendered: Rendered, message: Neutral, options: RenderOptions) -> None:
    shown: list[Json] = []
    for result in message.parts:
        assert isinstance(result, ToolResult)
        rendered.add(
            {
                "role": "tool",
                "tool_call_id": result.call_id,
                "content": result_text(result, message),
            },
            message.seqs,
        )
        shown += _media_of(result, message, options)
    if shown:  # a tool message takes text only, so what else there is follows the results
        rendered.add({"role": "user", "content": shown}, message.seqs)


def _media_of(result: ToolResult, message: Neutral, options: RenderOptions) -> list[Json]:
    if isinstance(result.content, str):
        return []
    return [
        _block(part, message, options) for part in result.content if isinstance(part, Image | File)
    ]


def _content(message: Neutral, options: RenderOptions) -> str | list[Json]:
    if all(isinstance(part, Text) for part in message.parts) and len(message.parts) == 1:
        part = message.parts[0]
        assert isinstance(part, Text)
        return clean(part.text)
    kept = [part for part in message.parts if isinstance(part, Text | Image | File)]
    if message.role == "system":
        return "\n".join(clean(part.text) for part in kept if isinstance(part, Text))
    return [_block(part, message, options) for part in kept]


def _block(part: Text | Image | File, message: Neutral, options: RenderOptions) -> Json:
    if isinstance(part, Text):
        return {"type": "text", "text": clean(part.text)}
    loaded = options.load(part, message)
    if isinstance(loaded, str):
        return {"type": "text", "text": loaded}
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": loaded.url}}
    return {"type": "file", "file": {"filename": loaded.name or "file", "file_data": loaded.url}}
