"""The content of messages, as the providers write it: text, reasoning, calls, results, files."""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeGuard

import msgspec

from killick.errors import InvalidEntry, KillickError
from killick.exchange.read import SourceLine, read_lines
from killick.exchange.records import (
    MessageRecord,
    ModelCallRecord,
    ProblemRecord,
    Record,
    ResultRecord,
    SourceLocation,
    image,
)
from killick.journal.checks import check_json, check_usage
from killick.journal.codec import encode, to_bytes
from killick.journal.kinds import digest
from killick.model.entries import Usage
from killick.model.limits import TOKENS_MAX
from killick.model.messages import (
    OWN_PROVIDER,
    File,
    Image,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from killick.model.sessions import Project

_ID_BYTES: Final = 1_000
_COST_MAX: Final = 1e9


class Content:
    """Parts, the bytes they name, results on their own, and what could not be taken."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.results: list[ToolResult] = []
        self.blobs: dict[str, bytes] = {}
        self.bad: list[str] = []

    def text(self, text: object) -> None:
        if isinstance(text, str):
            if text:
                self.parts.append(Text(text))
        else:
            self.bad.append(f"text that is {_kind(text)}")

    def opaque(self, provider: str, value: object) -> None:
        self.parts.append(Opaque(provider, to_bytes(compact(value))))

    def picture(self, data: object, media_type: object) -> bool:
        """Add an image in base64; False when it is none."""
        decoded = _decoded(data)
        if decoded is None or not isinstance(media_type, str):
            return False
        part, blobs = image(decoded, media_type)
        self.parts.append(part)
        self.blobs |= blobs
        return True

    def file(self, data: object, media_type: str, name: object) -> bool:
        decoded = _decoded(data)
        if decoded is None:
            return False
        blob = digest(decoded)
        self.parts.append(File(blob, media_type, name if isinstance(name, str) else None))
        self.blobs[blob] = decoded
        return True

    def call(self, call_id: object, name: object, arguments: str) -> None:
        if is_id(call_id) and isinstance(name, str):
            self.parts.append(ToolCall(call_id, name, arguments))
        else:
            self.bad.append("a tool call without an id or a name")


def anthropic(content: object, provider: str = "anthropic") -> Content:
    """Parse text, thinking, tool_use, tool_result, image and document blocks."""
    parsed = Content()
    if isinstance(content, str):
        parsed.text(content)
        return parsed
    for block in blocks(parsed, content):
        _anthropic_block(parsed, block, provider)
    return parsed


def _anthropic_block(parsed: Content, block: dict[str, Any], provider: str) -> None:
    match block.get("type"):
        case "text":
            parsed.text(block.get("text"))
        case "thinking":
            text, signature = block.get("thinking"), block.get("signature")
            signed = signature if isinstance(signature, str) and signature else None
            parsed.parts.append(Reasoning(text if isinstance(text, str) else "", signature=signed))
        case "tool_use":
            parsed.call(block.get("id"), block.get("name"), compact(block.get("input", {})))
        case "tool_result":
            _anthropic_result(parsed, block, provider)
        case "image" | "document" if _source(parsed, block):
            pass
        case "redacted_thinking" if is_sealed(block.get("data")):
            # Whatever else stands in it would be refused when it is sent back.
            parsed.opaque("anthropic", {"type": "redacted_thinking", "data": block["data"]})
        case _:
            parsed.opaque(f"{provider}-block", block)  # kept, never sent


def _anthropic_result(parsed: Content, block: dict[str, Any], provider: str) -> None:
    call_id = block.get("tool_use_id")
    if not is_id(call_id):
        parsed.bad.append("a tool result without the id of its call")
        return
    content, is_error = block.get("content", ""), block.get("is_error") is True
    if isinstance(content, str):
        parsed.results.append(ToolResult(call_id, content, is_error=is_error))
        return
    inner = anthropic(content, provider)
    parsed.blobs |= inner.blobs
    parsed.bad += inner.bad
    parsed.results.append(ToolResult(call_id, inner_parts(inner.parts), is_error=is_error))


def inner_parts(parts: Iterable[Part]) -> tuple[Text | Image | File | Opaque, ...]:
    """Return parts that a result can hold; others become data that no provider is sent."""
    return tuple(
        part
        if isinstance(part, Text | Image | File | Opaque)
        else Opaque(OWN_PROVIDER, encode(part))
        for part in parts
    )


def plain_or_parts(parts: Iterable[Part]) -> str | tuple[Text | Image | File | Opaque, ...]:
    """Return a result's content: its text if that is all, or its parts."""
    given = list(parts)
    texts = [part.text for part in given if isinstance(part, Text)]
    return "".join(texts) if len(texts) == len(given) <= 1 else inner_parts(given)


def with_structured(result: ToolResult, value: Any) -> ToolResult:
    """Return the result with the value that the tool returned beside its text."""
    return msgspec.structs.replace(result, structured=value)


def blobs_in(result: ToolResult, blobs: dict[str, bytes]) -> dict[str, bytes]:
    """Return those of the message's blobs that this result names."""
    if isinstance(result.content, str):
        return {}
    names = {part.blob for part in result.content if isinstance(part, Image | File)}
    return {name: data for name, data in blobs.items() if name in names}


def _source(parsed: Content, block: dict[str, Any]) -> bool:
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") != "base64":
        return False
    media_type = source.get("media_type")
    if block["type"] == "image":
        return parsed.picture(source.get("data"), media_type)
    kind = media_type if isinstance(media_type, str) else "application/octet-stream"
    return parsed.file(source.get("data"), kind, block.get("title"))


def openai(content: object) -> Content:
    """Parse the content of a Chat Completions message, or of one of the Responses API."""
    parsed = Content()
    if content is None:
        return parsed
    if isinstance(content, str):
        parsed.text(content)
        return parsed
    for block in blocks(parsed, content):
        match block.get("type"):
            case "text" | "input_text" | "output_text" | "summary_text" | "reasoning_text":
                parsed.text(block.get("text"))
            case "refusal":
                parsed.text(block.get("refusal"))
            case "image_url" | "input_image" if _data_url(parsed, block.get("image_url")):
                pass
            case _:
                parsed.opaque("openai-block", block)  # kept, never sent
    return parsed


def openai_calls(parsed: Content, calls: object) -> None:
    """Parse the tool calls beside the content of a Chat Completions message."""
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("arguments", ""), str):
            parsed.call(call.get("id"), function.get("name"), function.get("arguments", ""))
        elif isinstance(call, dict) and isinstance(call.get("custom"), dict):
            _custom_call(parsed, call)
        else:
            parsed.bad.append("a tool call that is none")


def _custom_call(parsed: Content, call: dict[str, Any]) -> None:
    call_id, custom = call.get("id"), call["custom"]
    name, text = custom.get("name"), custom.get("input", "")
    if is_id(call_id) and isinstance(name, str) and isinstance(text, str):
        parsed.parts.append(ToolCall(call_id, name, text, "custom"))
    else:
        parsed.bad.append("a tool call without an id or a name")


def _data_url(parsed: Content, value: object) -> bool:
    url = value.get("url") if isinstance(value, dict) else value
    if not isinstance(url, str) or not url.startswith("data:"):
        return False
    head, _, data = url[5:].partition(",")
    media_type, _, encoding = head.partition(";")
    return encoding == "base64" and parsed.picture(data, media_type)


def gemini(content: object) -> Content:
    """Parse Gemini's parts: text and thoughts, functionCall, functionResponse, inlineData."""
    parsed = Content()
    if content is None:
        return parsed
    if isinstance(content, str):
        parsed.text(content)
        return parsed
    for part in blocks(parsed, content if isinstance(content, list) else [content]):
        _gemini_part(parsed, part)
    return parsed


def _gemini_part(parsed: Content, part: dict[str, Any]) -> None:
    text, call, response = part.get("text"), part.get("functionCall"), part.get("functionResponse")
    inline = part.get("inlineData")
    if isinstance(call, dict):
        parsed.call(call.get("id"), call.get("name"), compact(call.get("args", {})))
    elif isinstance(response, dict):
        gemini_result(parsed, response, response.get("id"))
    elif isinstance(text, str) and part.get("thought") is True:
        if text:
            parsed.parts.append(Reasoning(text))
    elif isinstance(text, str):
        parsed.text(text)
    elif isinstance(inline, dict) and parsed.picture(inline.get("data"), inline.get("mimeType")):
        pass
    else:
        parsed.opaque("gemini-part", part)  # kept, never sent


def gemini_result(
    parsed: Content, response: dict[str, Any], call_id: object, *, failed: bool = False
) -> None:
    """Take the response of a function: its `output`, its `error`, or all of it as JSON."""
    if not is_id(call_id):
        parsed.bad.append("a tool's response without the id of its call")
        return
    value = response.get("response")
    error = value.get("error") if isinstance(value, dict) else None
    if error is not None:
        value, failed = error, True
    elif isinstance(value, dict) and isinstance(value.get("output"), str):
        value = value["output"]
    text = value if isinstance(value, str) else compact(value)
    parsed.results.append(ToolResult(call_id, text, is_error=failed))


def blocks(parsed: Content, content: object) -> Iterable[dict[str, Any]]:
    if not isinstance(content, list):
        parsed.bad.append(f"content that is {_kind(content)}")
        return
    for block in content:
        if isinstance(block, dict):
            yield block
        elif isinstance(block, str):
            yield {"type": "text", "text": block}
        else:
            parsed.bad.append(f"a block that is {_kind(block)}")


def usage(value: object) -> Usage | None:
    """Parse token counts, under either provider's names; None for impossible counts."""
    if not isinstance(value, dict):
        return None
    read = count(value, "cache_read_input_tokens")
    written = count(value, "cache_creation_input_tokens")
    cached = read or count(value, "cached_input_tokens") or _inner(value, "prompt_tokens_details")
    counts = Usage(
        input=count(value, "input_tokens", "prompt_tokens") + read + written,
        output=count(value, "output_tokens", "completion_tokens"),
        cached=cached,
        reasoning=count(value, "reasoning_output_tokens"),
    )
    try:
        check_usage(counts)
    except InvalidEntry:
        return None
    return counts


def _inner(value: dict[str, Any], name: str) -> int:
    inner = value.get(name)
    return count(inner, "cached_tokens") if isinstance(inner, dict) else 0


def tokens(
    value: object,
    sent: str,
    received: str,
    cached: str = "",
    thoughts: str = "",
    cost: object = None,
    *,
    apart: bool = False,
) -> Usage | None:
    """Return token counts under an agent's own names; `apart` when cached ones are not in sent."""
    if not isinstance(value, dict):
        return None
    read = count(value, cached)
    spent = cost if isinstance(cost, int | float) and 0 <= cost < _COST_MAX else None
    counts = Usage(
        input=count(value, sent) + (read if apart else 0),
        output=count(value, received),
        cached=read,
        reasoning=count(value, thoughts),
        cost=None if spent is None else float(spent),
    )
    try:
        check_usage(counts)
    except InvalidEntry:
        return None
    return counts


def count(value: dict[str, Any], *names: str) -> int:
    for name in names:
        number = value.get(name)
        if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= TOKENS_MAX:
            return number
    return 0


def compact(value: object) -> str:
    """Return a value as JSON on one line, with its text unescaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def is_sealed(value: object) -> bool:
    """Tell whether this can be data that a provider has sealed: text in ASCII."""
    return isinstance(value, str) and value != "" and value.isascii()


def is_json(value: Any) -> bool:
    """Tell whether JSON can hold this, not too deep."""
    try:
        check_json(value, "value")
    except KillickError:
        return False
    return True


def is_id(value: object) -> TypeGuard[str]:
    """Tell whether this can be an id."""
    return isinstance(value, str) and 0 < len(value.encode("utf-8", "surrogatepass")) <= _ID_BYTES


def _decoded(data: object) -> bytes | None:
    if not isinstance(data, str) or not data:
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return "nothing" if value is None else names.get(type(value), "a number")


def message_records(  # noqa: PLR0913  (what there is to say of a message)
    location: SourceLocation,
    at_us: int | None,
    role: Role,
    parsed: Content,
    *,
    key: str | None,
    prompt: bool = False,
    model_call: ModelCallRecord | None = None,
    person: bool = True,
    model: bool = True,
    partial: bool = False,
    growing: bool = False,
    streams: bool = False,
) -> Iterator[Record]:
    """Yield the records of one message. An empty one is reported."""
    for what in parsed.bad:
        yield ProblemRecord(location=location, reason=what)
    for result in parsed.results:
        yield ResultRecord(
            location=location,
            at_us=at_us,
            result=result,
            blobs=blobs_in(result, parsed.blobs),
            person=person,
            model=model,
        )
    if parsed.parts:
        yield MessageRecord(
            location=location,
            at_us=at_us,
            role=role,
            parts=tuple(parsed.parts),
            key=key,
            blobs=parsed.blobs,
            begins_turn=prompt and role == "user",
            partial=partial,
            growing=growing or streams,
            streams=streams,
            model_call=model_call if role == "assistant" else None,
            person=person,
            model=model,
        )
    elif not parsed.results and not parsed.bad:
        yield ProblemRecord(location=location, reason="a message without content", repaired=True)


def line_records(
    lines: Iterable[SourceLine],
    read_line: Callable[[SourceLocation, dict[str, Any]], Iterator[Record]],
    *,
    settled: bool,
) -> Iterator[Record]:
    """Yield what is read of each line, and a problem for each that is no record.

    A last line that an agent has written half, and still writes, is none.
    """
    for line in lines:
        if line.record is not None:
            yield from read_line(line.location, line.record)
        elif settled or not line.torn:
            yield ProblemRecord(location=line.location, reason=line.problem or "not a record")


def first_record(path: Path, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the first record of a file that fits, or an empty one."""
    records = (line.record for line in read_lines(path) if line.record is not None)
    return next((record for record in records if fits(record)), {})


def project_of(folder: object) -> Project | None:
    """Return the project in a folder, if that is the name of one."""
    return Project(folder) if isinstance(folder, str) and folder else None


def texts_of(value: dict[str, Any], *names: str) -> dict[str, str]:
    """Return what an object has under these names, as far as it is text."""
    return {name: value[name] for name in names if isinstance(value.get(name), str)}


def words(parts: Iterable[Part]) -> str:
    """Return the text of parts."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def as_text(value: object) -> str | None:
    """Return a text that says something, or None."""
    return value if isinstance(value, str) and value else None


def as_dict(value: object) -> dict[str, Any]:
    """Return an object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a list, or an empty one."""
    return value if isinstance(value, list) else []


def title_of(text: object, most: int = 80) -> str | None:
    """Return the first line of a text, if it can be a title."""
    if not isinstance(text, str) or not text.strip():
        return None
    return text.strip().splitlines()[0][:most]
