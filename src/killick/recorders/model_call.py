"""One model call to record: its provider's shape, the request's settings, and its handle.

The conversation itself is left out of the settings: the journal has it. So are headers and keys,
those too that a request names for servers of tools.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final, Literal, cast, get_args

import msgspec

from killick.errors import StreamCut
from killick.journal.assembly import assemble
from killick.model.entries import Usage
from killick.model.messages import Json, Message, ToolCall
from killick.recorders import anthropic, openai_responses
from killick.recorders.actions import Event, StreamReader
from killick.recorders.anthropic import AnthropicReader
from killick.recorders.gemini import GeminiReader, snake
from killick.recorders.openai_chat import ChatReader
from killick.recorders.openai_responses import ResponsesReader
from killick.session.core.stream import Deltas

# -- shapes --------------------------------------------------------------------------------------

Shape = Literal["openai-chat", "openai-responses", "anthropic", "gemini"]
"""The same names that `session.context` takes."""

Cut = Literal["raise", "keep"]
"""Whether a stream that ends without its end mark raises `StreamCut`, or is only kept."""


class StreamShape(msgspec.Struct, frozen=True):
    """One shape."""

    provider: str
    reader: Callable[[str], StreamReader]
    event: Callable[[Any], Event | None]
    whole: Callable[[Event], list[Event]]


def _event(item: Any) -> Event | None:
    """Return an SDK's object as it was on the wire; a dict is that already."""
    if isinstance(item, dict):
        return item
    if not hasattr(item, "model_dump"):
        raise TypeError(f"a stream of this shape has events, not {_a(item)}")
    event: Event = item.model_dump(exclude_unset=True, by_alias=True, warnings=False)
    return event


def _chat_event(item: Any) -> Event | None:
    """Return the chunk in a helper stream's event; its other events repeat it."""
    if isinstance(item, dict):
        return item
    # Asked of its fields: for one that it lacks, a model looks in many places.
    kind = getattr(item, "__dict__", {}).get("type")
    if kind is not None:
        return _event(item.chunk) if kind == "chunk" else None
    return _event(item)


_REPEATS: Final = frozenset({"text", "thinking", "signature", "citation", "input_json"})


def _anthropic_event(item: Any) -> Event | None:
    """Return the event, unless the helper stream added it: those repeat all that came."""
    kind = getattr(item, "type", None)
    if kind in _REPEATS:
        return None
    if kind in ("message_stop", "content_block_stop"):
        return {"type": kind, "index": getattr(item, "index", None)}
    return _event(item)


_LEFT_OUT: Final = {"sdk_http_response", "automatic_function_calling_history", "parsed"}


def _gemini_event(item: Any) -> Event | None:
    if isinstance(item, dict):
        wire: Event = snake(item)
        return wire
    if not hasattr(item, "model_dump"):
        raise TypeError(f"a stream of this shape has events, not {_a(item)}")
    event: Event = item.model_dump(exclude_none=True, exclude=_LEFT_OUT, warnings=False)
    return event


def _same(response: Event) -> list[Event]:
    return [response]


KINDS: Final[dict[str, StreamShape]] = {
    "openai-chat": StreamShape("openai", ChatReader, _chat_event, _same),
    "openai-responses": StreamShape(
        "openai", ResponsesReader, _event, openai_responses.whole_events
    ),
    "anthropic": StreamShape(
        "anthropic", AnthropicReader, _anthropic_event, anthropic.whole_events
    ),
    "gemini": StreamShape("gemini", GeminiReader, _gemini_event, _same),
}


def kind_of(shape: str) -> StreamShape:
    kind = KINDS.get(shape)
    if kind is None:
        raise ValueError(f"shape {shape!r}; it is one of {', '.join(KINDS)}")
    return kind


# -- settings ------------------------------------------------------------------------------------

Request = Mapping[str, Any]

_NEVER: Final = frozenset(
    {"messages", "input", "contents", "extra_headers", "extra_query", "extra_body", "timeout"}
    | {"stream", "model", "system", "instructions", "tools", "api_key", "text_format"}
)
_SECRET: Final = frozenset(
    {"authorization", "authorizationtoken", "headers", "extraheaders", "cookie", "cookies"}
    | {"apikey", "apikeystring", "xapikey", "authconfig", "accesstoken", "bearertoken"}
    | {"clientsecret", "password"}
)
"""Names under which requests hold keys, for servers of tools too; without case, _ and -."""
_PARAMETERS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Under these stand names of a schema, not values: a tool may have a parameter `headers`."""
_DEPTH: Final = 20


class _Absent:
    """Stands for what JSON cannot hold: a class, a callable, an SDK's mark for "not given"."""


_ABSENT: Final = _Absent()


def call_settings(format_: str, provider: str, request: Request | None) -> dict[str, Any]:
    """Return provider, model, settings, system prompt and tools of one request."""
    given = dict(request or {})
    config = plain(given.pop("config", None))
    if format_ == "gemini" and isinstance(config, dict):
        given.update(config)
    system = _SYSTEM[format_](given)
    given.pop("system_instruction", None)
    kept = _without_keys(plain({key: value for key, value in given.items() if key not in _NEVER}))
    model = given.get("model")
    settings: dict[str, Any] = {"provider": provider, "settings": kept}
    if isinstance(model, str):
        settings["model"] = model
    if system:
        settings["system"] = system
    tools = _without_keys(plain(given.get("tools")))
    if tools and not isinstance(tools, _Absent):
        settings["tools"] = tools
    return settings


def _without_keys(value: Json | _Absent) -> Json | _Absent:
    """Return a value without what is a key by its name."""
    if isinstance(value, list):
        return cast("Json", [_without_keys(inner) for inner in value])
    if not isinstance(value, dict):
        return value
    kept = {
        name: inner if name in _PARAMETERS else _without_keys(inner)
        for name, inner in value.items()
        if name.lower().replace("_", "").replace("-", "") not in _SECRET
    }
    return cast("Json", kept)


def _messages(request: Request | None) -> dict[str, Json] | None:
    """Return the messages of a request as JSON, if it has any."""
    for name in ("messages", "input", "contents"):
        value = plain((request or {}).get(name))
        if isinstance(value, list):
            return {name: value}
    return None


def plain(value: Any, depth: int = 0) -> Json | _Absent:
    """Return a value as JSON; what JSON cannot hold is left out, and a function is its name."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else _ABSENT
    if depth > _DEPTH or isinstance(value, type):
        return _ABSENT
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json", exclude_none=True), depth + 1)
    if isinstance(value, Mapping):
        pairs = {str(key): plain(inner, depth + 1) for key, inner in value.items()}
        return {key: inner for key, inner in pairs.items() if not isinstance(inner, _Absent)}
    if isinstance(value, list | tuple):
        items = [plain(inner, depth + 1) for inner in value]
        return [inner for inner in items if not isinstance(inner, _Absent)]
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else _ABSENT


# -- the system prompt -------------------------------------------------------------------------


def _chat_system(request: dict[str, Any]) -> str:
    return _leading(request.get("messages"))


def _responses_system(request: dict[str, Any]) -> str:
    instructions = request.get("instructions")
    return instructions if isinstance(instructions, str) else _leading(request.get("input"))


def _anthropic_system(request: dict[str, Any]) -> str:
    return _text(request.get("system"))


def _gemini_system(request: dict[str, Any]) -> str:
    return _text(request.get("system_instruction"))


_SYSTEM: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "openai-chat": _chat_system,
    "openai-responses": _responses_system,
    "anthropic": _anthropic_system,
    "gemini": _gemini_system,
}


def _leading(messages: Any) -> str:
    """Return the instructions that stand as messages before all others."""
    texts: list[str] = []
    for message in messages if isinstance(messages, list | tuple) else ():
        if not isinstance(message, Mapping) or message.get("role") not in ("system", "developer"):
            break
        texts.append(_text(message.get("content")))
    return "\n".join(text for text in texts if text)


def _text(value: Any) -> str:
    """Return text, or the texts of a list of blocks or parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _text(value.get("parts") or value.get("text"))
    if isinstance(value, list | tuple):
        return "\n".join(text for text in map(_text, value) if text)
    return ""


DRAINING: Final = frozenset(
    {"get_final_message", "get_final_text", "get_final_response", "get_final_completion"}
    | {"until_done"}
)
"""What an SDK's helper stream does by reading itself to its end, past any recorder around it."""


class Plan:
    """A model call to record: its shape and its settings."""

    def __init__(
        self,
        shape: str,
        request: Request | None,
        provider: str | None,
        retry_of: "Handle | None",
        cut: Cut,
    ) -> None:
        if cut not in get_args(Cut):
            raise ValueError(f"cut={cut!r}; it is one of {', '.join(get_args(Cut))}")
        self.cut = cut
        self.kind: StreamShape = kind_of(shape)
        self.first = None if retry_of is None else retry_of.first_call_id
        self.attempt: int = 1 if retry_of is None else retry_of.attempt + 1
        self.settings = call_settings(shape, provider or self.kind.provider, request)
        self.settings["attempt"] = self.attempt
        sent = _messages(request)
        if sent is not None:
            self.settings["request"] = sent
        if self.first is not None:
            self.settings["retry_of"] = self.first


class Handle:
    """One model call that is recorded. Everything else is the provider's stream itself."""

    def __init__(self, plan: Plan, reply: Deltas) -> None:
        self._reply = reply
        self._raises = plan.cut == "raise"
        self._core = reply._core
        self._core.kept = []
        self.attempt: int = plan.attempt
        self.first_call_id: str = plan.first or reply.model_call_id

    @property
    def id(self) -> str:
        """Return the message's id, known before the first chunk."""
        return self._reply.id

    @property
    def model_call_id(self) -> str:
        return self._reply.model_call_id

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Return the calls that are whole so far."""
        return self._reply.tool_calls

    def on_call(self, tell: Callable[[ToolCall], object]) -> None:
        """Have a function called with each tool call as soon as it is whole."""
        self._reply.on_call(tell)

    @property
    def finish_reason(self) -> str | None:
        """Return why the provider ended the answer, in its own word."""
        return self._core.ended.finish_reason

    @property
    def usage(self) -> Usage | None:
        """Return the tokens that the provider has counted so far."""
        return self._core.ended.usage

    @property
    def answer(self) -> Message:
        """Return the message as the provider sent it: `.text`, `.parts`, `.tool_calls`, `.state`.

        A store that redacts has stored it redacted.
        """
        core = self._core
        return Message(
            role="assistant",
            parts=assemble(core.kept or ()),
            id=core.id,
            state=core.state,
            turn_id=core.turn.claim.turn_id,
            model_call_id=core.model_call_id,
        )

    @property
    def complete(self) -> bool:
        """Return True once the whole answer is recorded as a complete message."""
        return self._core.state == "complete"

    @property
    def error(self) -> str | None:
        """Return why the message is partial; None while it streams and when it is complete."""
        return self._core.error

    def _cut(self, *, ended: bool) -> StreamCut | None:
        """Return what is raised at the end of a stream: nothing if its end mark came."""
        if ended or not self._raises:
            return None
        answer = self.answer
        calls = tuple(call.id for call in self.tool_calls)
        kept = f"{len(answer.text):,} characters of text"
        if calls:
            kept += f" and the whole calls {', '.join(calls)}"
        return StreamCut(
            f"{self.error}; kept as the partial message {self.id}: {kept}",
            message_id=self.id,
            characters=len(answer.text),
            calls=calls,
        )


# -- what can be recorded ------------------------------------------------------------------------


def is_response(given: Any) -> bool:
    """Tell whether this is a whole response; an SDK's models can be iterated too."""
    return hasattr(given, "model_dump") or isinstance(given, dict)


def check_source(given: Any, *, streams: tuple[str, ...]) -> None:
    """Raise TypeError for what can be neither read nor called; `streams` are a face's methods."""
    text = isinstance(given, str | bytes | bytearray | memoryview)
    readable = not text and any(hasattr(given, name) for name in streams)
    if not readable and not callable(given) and not is_response(given):
        raise TypeError(
            f"record() takes a stream, its manager, or a function that makes one, not {_a(given)}"
        )


def must_stream(given: Any, *, streams: tuple[str, ...]) -> None:
    if is_response(given):
        raise TypeError("this is a whole response, not a stream; take it with .whole()")
    check_source(given, streams=streams)


def must_be_whole(given: Any) -> None:
    if not is_response(given):
        raise TypeError(f"whole() takes one whole response, not {_a(given)}")


def _a(given: Any) -> str:
    name = type(given).__name__
    return "None" if given is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
