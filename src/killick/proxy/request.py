"""A request to a model, read: its settings, and the conversation that it brings.

A conversation is a list of units: what the user's side said between two answers (one unit, however
many messages it came in), an answer, a tool's result. Units are compared by their content.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, Literal

import msgspec

from killick.errors import KillickError
from killick.exchange.formats import content as c
from killick.journal.assembly import is_whole_object
from killick.model.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from killick.proxy.wire import gemini_model
from killick.recorders.gemini import snake
from killick.recorders.model_call import Shape

UnitRole = Literal["user", "assistant", "result", "system"]


class CallKey(msgspec.Struct, frozen=True):
    """A tool call, as far as two of them are compared."""

    id: str
    name: str
    arguments: str
    """The hash of the arguments' canonical form."""


class RequestUnit(msgspec.Struct, frozen=True):
    """One piece of a conversation, with what it is compared by."""

    role: UnitRole
    text: str
    """The hash of its text."""
    own: str = ""
    """The hash of its text without what agents put in and take out again."""
    calls: tuple[CallKey, ...] = ()
    call_id: str = ""
    name: str = ""


class Brought(msgspec.Struct, frozen=True):
    """A unit of a request, and what would be recorded of it."""

    unit: RequestUnit
    parts: tuple[Part, ...] = ()
    blobs: dict[str, bytes] = {}

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))


class ModelRequest(msgspec.Struct, frozen=True):
    """A request to a model."""

    shape: Shape
    asked: dict[str, Any]
    """The request as `record` takes one: model, settings, system prompt and tools."""
    units: tuple[Brought, ...]
    stream: bool
    offers_tools: bool
    wants_format: bool
    """It asks for JSON of a given form, as a judge does."""
    after: str | None = None
    """The response that it follows on the provider's side."""


class NotUnderstood(Exception):
    """A body that is no request of its shape; it passes unrecorded."""


# -- comparing -------------------------------------------------------------------------------------

_INJECTED: Final = re.compile(
    r"<(system-reminder|reminder|environment_context|environment_details|session_context"
    r"|current_datetime|user_instructions|command-[a-z]+|local-command-[a-z]+)>.*?</\1>"
    r"|<permissions instructions>.*?</permissions instructions>",
    re.DOTALL,
)
"""What agents put around a person's words, and change from request to request."""


def own_words(text: str) -> str:
    """Return a text without what agents inject into it."""
    return _INJECTED.sub("", text).strip()


def digest_text(text: str) -> str:
    return blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def same(first: RequestUnit, other: RequestUnit) -> bool:
    """Tell whether two units are the same piece of a conversation.

    Agents clear old results, drop calls that were never answered, and move their reminders.
    """
    if first.role != other.role:
        return False
    if first.role == "result":
        if first.call_id and other.call_id:
            return first.call_id == other.call_id
        return first.name == other.name
    if first.role == "assistant":
        return first.text == other.text and _calls_agree(first.calls, other.calls)
    return first.text == other.text or (bool(first.own) and first.own == other.own)


def _calls_agree(first: Sequence[CallKey], other: Sequence[CallKey]) -> bool:
    if bool(first) != bool(other):
        return False
    fewer, more = sorted((first, other), key=len)
    ids, forms = {call.id for call in more}, {(call.name, call.arguments) for call in more}
    return all(call.id in ids or (call.name, call.arguments) in forms for call in fewer)


def _canonical(arguments: str) -> str:
    """Return arguments in a form that does not depend on spaces and the order of keys."""
    if not is_whole_object(arguments):
        return arguments
    try:
        decoded = msgspec.json.decode(arguments.encode("utf-8", "replace"))
        return msgspec.json.encode(decoded, order="deterministic").decode()
    except (msgspec.DecodeError, RecursionError):
        return arguments


def unit_of(role: UnitRole, parts: Iterable[Part]) -> RequestUnit:
    """Return a unit with these parts; the same for a request's and for stored ones."""
    given = list(parts)
    for part in given:
        if isinstance(part, ToolResult):
            return RequestUnit("result", _result_hash(part), call_id=part.call_id)
    text = "\n".join(part.text.strip() for part in given if isinstance(part, Text)).strip()
    if role == "assistant":
        text = "".join(part.text for part in given if isinstance(part, Text))
        text = "".join(text.split())  # blocks are joined in more than one way
    calls = tuple(
        CallKey(part.id, part.name, digest_text(_canonical(part.arguments)))
        for part in given
        if isinstance(part, ToolCall) and part.tool_type in ("function", "custom")
    )
    own = own_words(text) if role == "user" else ""
    return RequestUnit(role, digest_text(text), digest_text(own) if own else "", calls)


def _result_hash(result: ToolResult) -> str:
    return digest_text(result.content if isinstance(result.content, str) else "")


def units_of(messages: Iterable[Message]) -> list[tuple[int, RequestUnit]]:
    """Return the units of stored messages, each with the seq at which it starts."""
    units: list[tuple[int, RequestUnit]] = []
    held: list[Part] = []
    held_seq = 0

    def settle() -> None:
        if held:
            units.append((held_seq, unit_of("user", held)))
            held.clear()

    for message in messages:
        if message.role == "user":
            held_seq = held_seq if held else message.seq
            held.extend(message.parts)
            continue
        if message.role == "system":
            continue
        settle()
        if message.role == "tool":
            units += [(message.seq, unit_of("result", [part])) for part in message.parts]
        elif _says_something(message.parts):
            units.append((message.seq, unit_of("assistant", message.parts)))
    settle()
    return units


def _says_something(parts: Iterable[Part]) -> bool:
    return any(
        (isinstance(part, Text) and part.text.strip()) or isinstance(part, ToolCall)
        for part in parts
    )


# -- reading ---------------------------------------------------------------------------------------


def read_request(shape: Shape, path: str, body: bytes) -> ModelRequest:
    """Read a request. Raises NotUnderstood."""
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotUnderstood(f"the body is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise NotUnderstood("the body is no JSON object")
    try:
        return _READERS[shape](given, path)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, KillickError) as e:
        raise NotUnderstood(f"no request of this shape: {type(e).__name__}") from e


def _request(
    shape: Shape, given: dict[str, Any], pieces: Iterable[Brought], **further: Any
) -> ModelRequest:
    return ModelRequest(
        shape=shape,
        asked=further.pop("asked", given),
        units=tuple(_merged(pieces)),
        stream=further.pop("stream", given.get("stream") is True),
        offers_tools=bool(given.get("tools")),
        **further,
    )


def _merged(pieces: Iterable[Brought]) -> Iterator[Brought]:
    """Yield the pieces, those that the user's side says one after another as one."""
    parts: list[Part] = []
    blobs: dict[str, bytes] = {}
    for piece in pieces:
        if piece.unit.role == "user":
            parts += piece.parts
            blobs |= piece.blobs
            continue
        if piece.unit.role != "system" and parts:
            yield Brought(unit_of("user", parts), tuple(parts), blobs)
            parts, blobs = [], {}
        yield piece
    if parts:
        yield Brought(unit_of("user", parts), tuple(parts), blobs)


def _pieces(role: UnitRole, parsed: c.Content) -> Iterator[Brought]:
    """Yield the results of a message, then the rest of it."""
    for result in parsed.results:
        yield Brought(unit_of("result", [result]), (result,), c.blobs_in(result, parsed.blobs))
    spoken = [
        part for part in parsed.parts if not isinstance(part, Reasoning) or role == "assistant"
    ]
    if spoken and (role != "assistant" or _says_something(spoken)):
        named = parsed.blobs
        yield Brought(unit_of(role, spoken), tuple(spoken), named)


_ROLES: Final[dict[str, UnitRole]] = {
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# Anthropic


def _anthropic(given: dict[str, Any], _path: str) -> ModelRequest:
    def pieces() -> Iterator[Brought]:
        for message in _list(given["messages"]):
            role = _ROLES.get(str(message.get("role")), "user")
            yield from _pieces(role, c.anthropic(message.get("content")))

    config = given.get("output_config") or given.get("output_format")
    wants = isinstance(config, dict) and bool(config.get("format", config))
    return _request("anthropic", given, pieces(), wants_format=wants)


# Chat completions


def _chat(given: dict[str, Any], _path: str) -> ModelRequest:
    messages = _list(given["messages"])
    leading = 0
    while leading < len(messages) and messages[leading].get("role") in ("system", "developer"):
        leading += 1

    def pieces() -> Iterator[Brought]:
        for message in messages[leading:]:
            parsed = c.openai(message.get("content"))
            if message.get("role") in ("tool", "function"):
                call_id = message.get("tool_call_id")
                if c.is_id(call_id):
                    result = ToolResult(call_id, c.plain_or_parts(parsed.parts))
                    yield Brought(unit_of("result", [result]), (result,), parsed.blobs)
                continue
            c.openai_calls(parsed, message.get("tool_calls"))
            yield from _pieces(_ROLES.get(str(message.get("role")), "user"), parsed)

    asked = given.get("response_format")
    wants = isinstance(asked, dict) and asked.get("type") in ("json_schema", "json_object")
    return _request("openai-chat", given, pieces(), wants_format=wants)


# Responses

_CALL_ITEMS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
_OWN_CALLS: Final = frozenset(
    {"local_shell_call", "shell_call", "apply_patch_call", "computer_call"}
)


def _responses(given: dict[str, Any], _path: str) -> ModelRequest:
    items = given.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list):
        raise NotUnderstood("a request without input")
    has_instructions = isinstance(given.get("instructions"), str)

    def pieces() -> Iterator[Brought]:
        answer: list[Part] = []
        begun = has_instructions
        for item in items:
            kind = item.get("type") or "message"
            if kind == "message" and item.get("role") != "assistant":
                yield from _answered(answer)
                role = _ROLES.get(str(item.get("role")), "user")
                begun = begun or role != "system"
                if begun:  # otherwise it is the system prompt
                    yield from _pieces(role, c.openai(item.get("content")))
            elif kind.endswith("_output"):
                yield from _answered(answer)
                yield from _output(item)
            else:
                answer += _answer_parts(kind, item)
        yield from _answered(answer)

    asked = (given.get("text") or {}).get("format") if isinstance(given.get("text"), dict) else None
    wants = isinstance(asked, dict) and asked.get("type") in ("json_schema", "json_object")
    after = given.get("previous_response_id")
    return _request(
        "openai-responses",
        given,
        pieces(),
        wants_format=wants,
        after=after if isinstance(after, str) else None,
    )


def _answer_parts(kind: str, item: dict[str, Any]) -> list[Part]:
    if kind == "message":
        return c.openai(item.get("content")).parts
    if kind in _CALL_ITEMS:
        call_id, name = item.get("call_id"), item.get("name")
        text = item.get(_CALL_ITEMS[kind], "")
        custom: Literal["custom", "function"] = (
            "custom" if kind == "custom_tool_call" else "function"
        )
        if c.is_id(call_id) and isinstance(name, str) and isinstance(text, str):
            return [ToolCall(call_id, name, text, custom)]
    if kind in _OWN_CALLS and c.is_id(item.get("call_id")):
        about = {k: v for k, v in item.items() if k not in ("id", "call_id", "type", "status")}
        return [ToolCall(item["call_id"], kind, c.compact(about))]
    return []


def _answered(answer: list[Part]) -> Iterator[Brought]:
    """Yield the answer that has come together so far."""
    if answer and _says_something(answer):
        yield Brought(unit_of("assistant", answer), tuple(answer))
    answer.clear()


def _output(item: dict[str, Any]) -> Iterator[Brought]:
    call_id, output = item.get("call_id"), item.get("output")
    if not c.is_id(call_id):
        return
    if isinstance(output, str):
        result, blobs = ToolResult(call_id, output), dict[str, bytes]()
    elif isinstance(output, list):
        parsed = c.openai(output)
        result, blobs = ToolResult(call_id, c.plain_or_parts(parsed.parts)), parsed.blobs
    else:
        result, blobs = ToolResult(call_id, c.compact(output)), {}
    yield Brought(unit_of("result", [result]), (result,), blobs)


# Gemini


def _gemini(given: dict[str, Any], path: str) -> ModelRequest:
    contents = given["contents"]
    contents = [contents] if isinstance(contents, dict) else _list(contents)

    def pieces() -> Iterator[Brought]:
        for content in contents:
            role = _ROLES.get(str(content.get("role") or "user"), "user")
            parsed, results = _gemini_parts(_list(content.get("parts")))
            yield from results
            yield from _pieces(role, parsed)

    config = given.get("generationConfig") or given.get("generation_config") or {}
    config = config if isinstance(config, dict) else {}
    wants = any(
        key in config for key in ("responseSchema", "responseJsonSchema", "response_schema")
    )
    system = given.get("systemInstruction") or given.get("system_instruction")
    asked = {
        "model": gemini_model(path),
        "config": {
            **snake({k: v for k, v in config.items() if "chema" not in k}),
            "system_instruction": system,
            "tools": given.get("tools"),
        },
    }
    return _request(
        "gemini",
        given,
        pieces(),
        asked=asked,
        wants_format=wants,
        stream="streamGenerateContent" in path,
    )


def _gemini_parts(parts: list[Any]) -> tuple[c.Content, list[Brought]]:
    parsed, results = c.Content(), list[Brought]()
    for part in parts:
        call = part.get("functionCall") or part.get("function_call")
        answer = part.get("functionResponse") or part.get("function_response")
        inline = part.get("inlineData") or part.get("inline_data")
        if isinstance(call, dict):
            name = call.get("name")
            if isinstance(name, str):
                given = call.get("id")
                call_id = given if c.is_id(given) else name
                parsed.parts.append(ToolCall(call_id, name, c.compact(call.get("args") or {})))
        elif isinstance(answer, dict):
            results.append(_gemini_result(answer))
        elif isinstance(inline, dict):
            kind = inline.get("mimeType") or inline.get("mime_type") or ""
            if not parsed.picture(inline.get("data"), kind):
                parsed.opaque("gemini-part", part)
        elif isinstance(part.get("text"), str):
            if not part.get("thought"):
                parsed.text(part["text"])
        else:
            parsed.opaque("gemini-part", part)
    return parsed, results


def _gemini_result(answer: dict[str, Any]) -> Brought:
    name, value = str(answer.get("name") or ""), answer.get("response")
    value = value if isinstance(value, dict) else {"output": value}
    error = value.get("error")
    text = value.get("output", value.get("result", error))
    content = text if isinstance(text, str) else c.compact(value)
    given = answer.get("id")
    call_id = given if c.is_id(given) else ""
    result = ToolResult(call_id or name or "tool", content, is_error="error" in value)
    unit = RequestUnit("result", digest_text(content), call_id=call_id, name=name)
    return Brought(unit, (result,))


_READERS: Final = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
