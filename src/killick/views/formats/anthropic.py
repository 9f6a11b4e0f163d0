"""Anthropic Messages: user and assistant take turns; results open the next user message."""

from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Final

from killick.model.messages import File, Image, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from killick.views import phrases
from killick.views.formats.common import (
    Json,
    Rendered,
    RenderOptions,
    arguments_object,
    clean,
    image_sides,
    is_clean,
    opaque_object,
    result_text,
    sent_back,
)
from killick.views.hosted import SERVER_CALLS, given_to, is_failure, objects
from killick.views.neutral import Neutral, Repair

_MANY_IMAGES: Final = 20
"""With more images than this in a request, none may have more pixels on a side than:"""
_SIDE_AMONG_MANY: Final = 2000


def render(neutral: Sequence[Neutral], options: RenderOptions) -> Rendered:
    rendered = Rendered()
    served = _served(neutral)
    for message in neutral:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message, served, options)
        if not blocks:
            continue
        if not rendered.messages and role == "assistant":
            first = {"type": "text", "text": phrases.beginning()}
            rendered.add({"role": "user", "content": [first]}, ())
        if rendered.messages and rendered.messages[-1]["role"] == role:
            rendered.messages[-1]["content"] += blocks
            rendered.extend_last(message.seqs)
        else:
            rendered.add({"role": role, "content": blocks}, message.seqs)
    _keep_newest_images(rendered, options)
    return rendered


def _keep_newest_images(rendered: Rendered, options: RenderOptions) -> None:
    """Leave older images out where one is too large to be among so many.

    Ten go at once, so that not each new image changes what was sent before.
    """
    images = [block for message in rendered.messages for block in _images(message)]
    over = len(images) - _MANY_IMAGES
    if over <= 0 or not any(_is_large(image) for image in images):
        return
    for image in images[: (over + 9) // 10 * 10]:
        kind = image["source"]["media_type"]
        image.clear()
        image.update({"type": "text", "text": phrases.left_out(f"An image ({kind})")})
        options.repairs.append(Repair(0, "left out", "an older image, among more than 20"))


def _images(of: Json) -> Iterator[Json]:
    """The images of a message or of a result that were put in here."""
    blocks = of.get("content")
    for block in blocks if isinstance(blocks, list) else ():
        if block["type"] == "image" and "data" in block.get("source", {}):
            yield block
        elif block["type"] == "tool_result":
            yield from _images(block)


def _is_large(image: Json) -> bool:
    return max(image_sides(b64decode(image["source"]["data"]))) > _SIDE_AMONG_MANY


def _blocks(message: Neutral, served: frozenset[str], options: RenderOptions) -> list[Json]:
    blocks = [block for part in message.parts for block in _block(part, message, served, options)]
    if message.role != "assistant":
        return blocks
    # The last block may not be thinking, and a last text may not end in white space.
    while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        blocks.pop()
        options.left_out(message, "reasoning that nothing follows")
    for block in blocks:
        if block["type"] == "text":
            block["text"] = block["text"].rstrip()
    return blocks


def _served(neutral: Sequence[Neutral]) -> frozenset[str]:
    """Return the ids of the provider's own calls that can be sent: those that have their results.

    A call is accepted without one as long as only results of the caller's tools follow: the
    provider goes on with it. Anything else behind it makes each request with it refused.
    """
    asked: dict[str, int] = {}
    answered: set[str] = set()
    for index, message in enumerate(neutral):
        for block in objects(message.parts, "anthropic") if message.role == "assistant" else ():
            if block.get("type") in SERVER_CALLS:
                asked[str(block.get("id"))] = index
            elif block.get("tool_use_id") in asked:
                answered.add(block["tool_use_id"])
    last = max((at for at, each in enumerate(neutral) if each.role == "assistant"), default=-1)
    if all(message.role == "tool" for message in neutral[last + 1 :]):
        answered |= {
            call_id for call_id, at in asked.items() if at == last and not neutral[at].cut_off
        }
    return frozenset(answered)


def _own(block: Json, message: Neutral, served: frozenset[str], options: RenderOptions) -> Json:
    """Return a block of the provider's own, or a sentence in place of one half of a tool's run."""
    asks = block["type"] in SERVER_CALLS
    call_id = block.get("id") if asks else block.get("tool_use_id")
    if call_id in served or not (asks or isinstance(call_id, str)):
        return block
    options.left_out(message, "one half of a run of the provider's own tool")
    if not asks:
        return {"type": "text", "text": phrases.hosted_result(failed=is_failure(block))}
    name, given = str(block.get("name") or "tool"), given_to(block)
    return {"type": "text", "text": clean(phrases.hosted(name, given, ended=False, failed=False))}


def _caller(call: ToolCall, served: frozenset[str]) -> Json:
    """Return which of the provider's own tools has made this call, if that one is sent too."""
    fields = sent_back(call, "anthropic", "caller")
    caller = fields.get("caller")
    by = caller.get("tool_id") if isinstance(caller, dict) else None
    return fields if by is None or by in served else {}


def _block(
    part: Part, message: Neutral, served: frozenset[str], options: RenderOptions
) -> list[Json]:
    match part:
        case Text():
            text = phrases.system_said(part.text) if message.role == "system" else part.text
            return [{"type": "text", "text": clean(text)}]
        case ToolCall():
            call = {"type": "tool_use", "id": part.id, "name": part.name}
            return [{**call, "input": arguments_object(part), **_caller(part, served)}]
        case ToolResult():
            return [_result(part, message, options)]
        case Reasoning():
            return _thinking(part, message, options)
        case Image() | File() if message.role == "assistant":
            left = phrases.left_out(f"Something of type {part.media_type}")
            return [{"type": "text", "text": left}]
        case Image() | File():
            return [_media(part, message, options)]
        case Opaque():
            value = opaque_object(part, "anthropic", message, options)
            if isinstance(value, str):
                return [{"type": "text", "text": value}]
            return [] if value is None else [_own(value, message, served, options)]


def _thinking(part: Reasoning, message: Neutral, options: RenderOptions) -> list[Json]:
    """Signed thinking goes back exactly as it came; unsigned thinking is never sent."""
    ours = options.is_ours(message, "anthropic")
    if options.reasoning and ours and is_clean(part.text, part.signature, part.encrypted):
        if part.encrypted:
            return [{"type": "redacted_thinking", "data": part.encrypted}]
        if part.signature:
            return [{"type": "thinking", "thinking": part.text, "signature": part.signature}]
    options.left_out(message, "reasoning that is not this provider's, or not signed")
    return []


def _result(part: ToolResult, message: Neutral, options: RenderOptions) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": part.call_id}
    if isinstance(part.content, str):
        content = [Text(part.content)] if part.content.strip() else []
    else:
        content = list(part.content)  # type: ignore[arg-type]
    blocks = []
    for inner in content:
        if isinstance(inner, Text) and inner.text.strip():
            blocks.append({"type": "text", "text": clean(inner.text)})
        elif isinstance(inner, Image | File) and part.is_error:  # such a result takes text only
            what = f"{'An image' if isinstance(inner, Image) else 'A file'} ({inner.media_type})"
            blocks.append({"type": "text", "text": phrases.left_out(what)})
            options.left_out(message, f"{inner.media_type} in the result of a tool that failed")
        elif isinstance(inner, Image | File):
            blocks.append(_media(inner, message, options))
    block["content"] = blocks or [{"type": "text", "text": result_text(part)}]
    if part.is_error:
        block["is_error"] = True
    return block


def _media(part: Image | File, message: Neutral, options: RenderOptions) -> Json:
    loaded = options.load(part, message)
    if isinstance(loaded, str):
        return {"type": "text", "text": loaded}
    if loaded.text is not None:
        plain = {"type": "text", "media_type": "text/plain", "data": clean(loaded.text)}
        document: Json = {"type": "document", "source": plain}
        return {**document, "title": clean(loaded.name)} if loaded.name else document
    source = {"type": "base64", "media_type": loaded.media_type, "data": loaded.data}
    return {"type": "image" if isinstance(part, Image) else "document", "source": source}
