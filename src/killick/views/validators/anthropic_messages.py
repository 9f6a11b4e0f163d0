"""Anthropic Messages: what `messages` must be.

The words after each rule are the published text or the error that the API answers with. The
reference says that consecutive turns of one role are combined, so they are no violation; results
are looked for in the directly following message all the same, as the error text says. A system
message inside `messages` is taken by some newer models only, so it is refused here.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from killick.views.validators.findings import (
    NONE,
    Findings,
    MediaLimits,
    Shape,
    Types,
    Violation,
    check_complete,
    tag,
)

RULES: Mapping[str, str] = {
    "not-json": "The request body is not valid JSON",
    "surrogate": "The request body is not valid JSON: no low surrogate in string",
    "request-size": "request_too_large: 32 MB for the Messages API",
    "image-count": "100 images per request, for models with a 200k-token context window",
    "shape": "messages.1.content.0.tool_use.input: Field required; Input should be a valid …",
    "unknown-key": "messages.0.id: Extra inputs are not permitted",
    "role": "messages: Unexpected role; Input should be 'user' or 'assistant'",
    "first-role": 'messages: first message must use the "user" role',
    "block-type": "Input tag '…' found using 'type' does not match any of the expected tags",
    "block-role": "`tool_use` blocks can only be in `assistant` messages, `tool_result` in `user`",
    "media-role": "images and documents are content of user messages and of tool results",
    "empty-content": "all messages must have non-empty content except for the optional final "
    "assistant message",
    "empty-text": "messages: text content blocks must be non-empty",
    "whitespace-text": "messages: text content blocks must contain non-whitespace text",
    "trailing-whitespace": "messages: final assistant content cannot end with trailing whitespace",
    "tool-name": "String should match pattern '^[a-zA-Z0-9_-]{1,64}$'",
    "call-id": "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    "duplicate-call-id": "`tool_use` ids must be unique",
    "arguments": "tool_use.input: Input should be a valid dictionary",
    "missing-result": "`tool_use` ids were found without `tool_result` blocks immediately after",
    "missing-server-result": "`web_search` tool use with id … was found without a corresponding "
    "`web_search_tool_result` block",
    "orphan-result": "unexpected `tool_use_id` found in `tool_result` blocks: each must have a "
    "corresponding `tool_use` block in the previous message",
    "duplicate-result": "each tool_use must have a single result. Found multiple `tool_result` "
    "blocks with id",
    "misplaced-result": "tool_result blocks come first in the content array, text after them",
    "error-result": "all content must be type 'text' if 'is_error' is true",
    "thinking-signature": "thinking.signature: Field required; Invalid `signature` in `thinking`",
    "redacted-data": "redacted_thinking.data: Field required",
    "thinking-last": "The final block in an assistant message cannot be `thinking`",
    "media-type": "media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or "
    "'image/webp'; Image does not match the provided media type",
    "media-size": "image exceeds 5 MB maximum; dimensions exceed max allowed size: 8000 pixels "
    "(2000 in many-image requests)",
    "base64": "source.base64.data: invalid base64 data",
    "empty-request": "messages: at least one message is required",
    "ends-with-assistant": "This model does not support assistant message prefill. The "
    "conversation must end with a user message",
}

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
REQUEST_BYTES = 32 * 1024 * 1024
IMAGES_MAX = 100
MANY_IMAGES = 20
_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
# The limit is compared with the characters of the base64 text.
IMAGE = MediaLimits(_IMAGE_TYPES, 5 * 1024 * 1024, pixels=8000)
IMAGE_AMONG_MANY = MediaLimits(_IMAGE_TYPES, 5 * 1024 * 1024, pixels=2000)
PDF = MediaLimits(frozenset({"application/pdf"}), REQUEST_BYTES)

MESSAGE = Shape({"role": str, "content": (str, list)})
_CACHE: Mapping[str, Types] = {"cache_control": (dict, NONE)}
_CALLED: Mapping[str, Types] = {**_CACHE, "caller": dict, "toolset_name": (str, NONE)}
BLOCKS: Mapping[str, Shape] = {
    "text": Shape({"type": str, "text": str}, {**_CACHE, "citations": (list, NONE)}),
    "image": Shape({"type": str, "source": dict}, {**_CACHE, "transformations": (dict, NONE)}),
    "document": Shape(
        {"type": str, "source": dict},
        {**_CACHE, "citations": (dict, NONE), "context": (str, NONE), "title": (str, NONE)},
    ),
    "thinking": Shape({"type": str, "thinking": str}, {"signature": object}),
    "redacted_thinking": Shape({"type": str}, {"data": object}),
    "tool_use": Shape({"type": str, "id": str, "name": str, "input": object}, _CALLED),
    "tool_result": Shape(
        {"type": str, "tool_use_id": str},
        {**_CACHE, "content": (str, list), "is_error": bool, "toolset_name": (str, NONE)},
    ),
}
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
OF_USER = frozenset({"text", "image", "document", "tool_result"})
OF_ASSISTANT = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
OPAQUE_ASSISTANT = frozenset({"compaction", "fallback"})
"""Taken back by the beta API that sends them: `BetaContentBlockParam` of anthropic 2.8."""
OPAQUE_USER = frozenset({"search_result", "container_upload"})
OF_RESULT = frozenset({"text", "image", "document"})
OPAQUE_RESULT = frozenset({"search_result", "tool_reference"})

SOURCES: Mapping[str, Shape] = {
    "base64": Shape({"type": str, "media_type": str, "data": str}),
    "url": Shape({"type": str, "url": str}),
    "file": Shape({"type": str, "file_id": str}),
    "text": Shape({"type": str, "media_type": str, "data": str}),
    "content": Shape({"type": str, "content": (str, list)}),
}
SOURCES_OF = {"image": ("base64", "url", "file"), "document": tuple(SOURCES)}


def anthropic(
    messages: Sequence[Mapping[str, Any]], system: str | None = None, *, complete: bool = False
) -> list[Violation]:
    """Say which rules `messages` break; with `complete`, as a request that is sent now."""
    report = Findings(RULES)
    size = report.json(messages, "messages") + report.json(system, "system")
    if size > REQUEST_BYTES:
        report.add("request-size", "messages", f"{size} bytes, {REQUEST_BYTES} at most")
    if system is not None:
        _text(report, system, "system")
    count = _images(messages)
    if count > IMAGES_MAX:
        report.add("image-count", "messages", f"{count} images, {IMAGES_MAX} at most")
    images = IMAGE_AMONG_MANY if count > MANY_IMAGES else IMAGE
    valid = [
        _message(report, message, images, f"messages[{index}]")
        for index, message in enumerate(messages)
    ]
    if valid and valid[0] and messages[0]["role"] != "user":
        report.add("first-role", "messages[0]", "the first message is not the user's")
    _pairs(report, messages, valid)
    goes_on = _server_pairs(report, messages, valid)
    if valid and valid[-1] and messages[-1]["role"] == "assistant":
        _ending(report, messages[-1], f"messages[{len(messages) - 1}]")
    if complete and not goes_on:
        check_complete(report, messages)
    return report.found


def _ending(report: Findings, message: Mapping[str, Any], where: str) -> None:
    content = message["content"]
    last = content[-1] if isinstance(content, list) and content else {"text": content}
    text = last.get("text") if isinstance(last, dict) else None
    if isinstance(text, str) and text.strip() and text != text.rstrip():
        report.add("trailing-whitespace", where, "the final text ends with whitespace")


def _images(value: object) -> int:
    """Count the images of a request, those in tool results too."""
    if isinstance(value, list | tuple):
        return sum(_images(inner) for inner in value)
    if not isinstance(value, dict):
        return 0
    return (value.get("type") == "image") + _images(value.get("content"))


def _text(report: Findings, text: str, where: str) -> None:
    if not text:
        report.add("empty-text", where, "an empty string")
    elif not text.strip():
        report.add("whitespace-text", where, "nothing but whitespace")


def _message(report: Findings, message: object, images: MediaLimits, where: str) -> bool:
    """Check a message; True if it can be looked at for calls and results."""
    if not report.fits(message, MESSAGE, where) or not isinstance(message, dict):
        return False
    role, content = message["role"], message["content"]
    if role not in ("user", "assistant"):
        report.add("role", where, f"{role!r} is not a role")
        return False
    # A final assistant message may be empty, but then nothing could come after it.
    if not content:
        report.add("empty-content", f"{where}.content", "nothing in it")
    elif isinstance(content, str):
        _text(report, content, f"{where}.content")
    else:
        for index, block in enumerate(content):
            _block(report, block, role, images, f"{where}.content[{index}]")
        last = content[-1] if isinstance(content[-1], dict) else {}
        if role == "assistant" and last.get("type") in ("thinking", "redacted_thinking"):
            report.add("thinking-last", f"{where}.content[{len(content) - 1}]", "nothing follows")
    return True


def _block(report: Findings, block: object, role: str, images: MediaLimits, where: str) -> None:
    name = tag(block)
    if isinstance(block, dict) and not _takes(report, name, role, where):
        return
    if name and name not in BLOCKS:
        return
    if not report.fits(block, BLOCKS.get(name, Shape({})), where) or not isinstance(block, dict):
        return
    if name == "text":
        _text(report, block["text"], where)
    elif name in ("image", "document"):
        _source(report, block, images, where)
    elif name == "thinking" and not _filled(block.get("signature")):
        report.add("thinking-signature", where, "there is no signature")
    elif name == "redacted_thinking" and not _filled(block.get("data")):
        report.add("redacted-data", where, "there is no data")
    elif name == "tool_use":
        report.matches("call-id", CALL_ID, block["id"], f"{where}.id")
        report.matches("tool-name", TOOL_NAME, block["name"], f"{where}.name")
        if not isinstance(block["input"], dict):
            report.add("arguments", f"{where}.input", "an object is expected")
    elif name == "tool_result":
        _result(report, block, images, where)


def _filled(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _takes(report: Findings, name: str, role: str, where: str) -> bool:
    """Tell whether this role takes such a block; results of server tools are passed on."""
    served = name in SERVER_CALLS or _served(name)
    if name not in OF_USER | OF_ASSISTANT | OPAQUE_USER | OPAQUE_ASSISTANT and not served:
        report.add("block-type", where, f"{name!r} is not a type of block")
        return False
    if role == "assistant" and name in ("image", "document"):
        report.add("media-role", where, f"an assistant message takes no {name}")
        return False
    of_role = OF_USER | OPAQUE_USER if role == "user" else OF_ASSISTANT | OPAQUE_ASSISTANT
    if name not in of_role and not (served and role == "assistant"):
        report.add("block-role", where, f"a {role} message takes no {name}")
        return False
    return True


def _served(name: str) -> bool:
    return name.endswith("_tool_result")


def _source(report: Findings, block: dict[str, Any], images: MediaLimits, where: str) -> None:
    source, where = block["source"], f"{where}.source"
    name = tag(source)
    if name not in SOURCES_OF[block["type"]]:
        report.add("shape", where, f"{name!r} is not a source of an {block['type']}")
    elif report.fits(source, SOURCES[name], where) and name == "base64":
        limits = images if block["type"] == "image" else PDF
        report.media(source["data"], source["media_type"], limits, where)
    elif name == "text" and source.get("media_type") != "text/plain":
        report.add("media-type", where, f"{source.get('media_type')!r} is not 'text/plain'")


def _result(report: Findings, block: dict[str, Any], images: MediaLimits, where: str) -> None:
    report.matches("call-id", CALL_ID, block["tool_use_id"], f"{where}.tool_use_id")
    content = block.get("content")
    if not isinstance(content, list):
        # A result may be without content: the tool returned nothing.
        return
    for index, inner in enumerate(content):
        path = f"{where}.content[{index}]"
        name = tag(inner)
        if block.get("is_error") and name != "text":
            report.add("error-result", path, f"{name!r} in the result of an error")
        elif isinstance(inner, dict) and name not in OF_RESULT | OPAQUE_RESULT:
            report.add("block-type", path, f"a result takes no {name!r}")
        else:
            _block(report, inner, "user", images, path)


def _pairs(report: Findings, messages: Sequence[Mapping[str, Any]], valid: Sequence[bool]) -> None:
    """Results are the first blocks of the message directly after their calls, one for each."""
    known: set[str] = set()
    open_calls: dict[str, str] = {}
    for index, message in enumerate(messages):
        content = message["content"] if valid[index] else []
        blocks = content if isinstance(content, list) else []
        spoken = tag(message, "role") == "assistant"
        if not spoken:
            _results(report, blocks, open_calls, f"messages[{index}]")
        _missing(report, open_calls)
        open_calls = {}
        for position, call_id in _named(blocks, "tool_use", "id") if spoken else ():
            where = f"messages[{index}].content[{position}]"
            if call_id in known:
                report.add("duplicate-call-id", where, f"{call_id!r} is there twice")
            known.add(call_id)
            open_calls[call_id] = where
    _missing(report, open_calls)


def _results(
    report: Findings, blocks: Sequence[Any], open_calls: dict[str, str], where: str
) -> None:
    answered: set[str] = set()
    first = next(
        (at for at, block in enumerate(blocks) if tag(block) != "tool_result"), len(blocks)
    )
    for position, call_id in _named(blocks, "tool_result", "tool_use_id"):
        path = f"{where}.content[{position}]"
        if call_id in answered:
            report.add("duplicate-result", path, f"{call_id!r} has its result already")
        elif call_id not in open_calls:
            report.add("orphan-result", path, f"no call {call_id!r} in the message before")
        else:
            del open_calls[call_id]
            answered.add(call_id)
            if position > first:
                report.add("misplaced-result", path, "other blocks stand before it")


def _missing(report: Findings, open_calls: Mapping[str, str]) -> None:
    for call_id, where in open_calls.items():
        report.add("missing-result", where, f"no result for {call_id!r} in the next message")


def _server_pairs(
    report: Findings, messages: Sequence[Mapping[str, Any]], valid: Sequence[bool]
) -> bool:
    """A tool that the provider ran: its result is somewhere after it, in an assistant message.

    Measured by pydantic-ai on claude-sonnet-4-5, 2026-08: without one a call is accepted as long as
    nothing but results of the caller's own tools follows its message. True if the provider has one
    to go on with, so that the request need not end with the user.
    """
    open_calls: dict[str, tuple[int, str]] = {}
    for index, message in enumerate(messages):
        content = message["content"] if valid[index] else []
        if not isinstance(content, list) or tag(message, "role") != "assistant":
            continue
        for position, block in enumerate(content):
            name, where = tag(block), f"messages[{index}].content[{position}]"
            if name in SERVER_CALLS and isinstance(block.get("id"), str):
                open_calls[block["id"]] = index, where
            elif _served(name) and open_calls.pop(str(block.get("tool_use_id")), None) is None:
                report.add("orphan-result", where, f"no call {block.get('tool_use_id')!r} before")
    for call_id, (index, where) in open_calls.items():
        if not all(map(_only_results, messages[index + 1 :])):
            report.add("missing-server-result", where, f"no result for {call_id!r} behind it")
    return any(index == len(messages) - 1 for index, _ in open_calls.values())


def _only_results(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    blocks = content if isinstance(content, list) else [None]
    return tag(message, "role") == "user" and all(tag(each) == "tool_result" for each in blocks)


def _named(blocks: Sequence[Any], name: str, key: str) -> list[tuple[int, str]]:
    return [
        (position, block[key])
        for position, block in enumerate(blocks)
        if tag(block) == name and isinstance(block.get(key), str)
    ]
