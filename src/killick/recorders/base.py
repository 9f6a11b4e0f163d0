"""What a request was made with, out of the keyword arguments that the SDK was given.

The conversation itself is left out: the journal has it. So are headers, which may hold secrets.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

from killick.model.messages import Json, ToolCall
from killick.recorders.registry import Kind, kind_of
from killick.session.core.stream import Deltas

Request = Mapping[str, Any]

_NEVER: Final = frozenset(
    {"messages", "input", "contents", "extra_headers", "extra_query", "extra_body", "timeout"}
    | {"stream", "model", "system", "instructions", "tools", "api_key", "text_format"}
)
_DEPTH: Final = 20


class _Absent:
    """Stands for what JSON cannot hold: a class, a callable, an SDK's mark for "not given"."""


_ABSENT: Final = _Absent()


def call_settings(format_: str, provider: str, request: Request | None) -> dict[str, Any]:
    """Provider, model, settings, system prompt and tools of one request."""
    given = dict(request or {})
    config = plain(given.pop("config", None))
    if format_ == "gemini" and isinstance(config, dict):
        given.update(config)
    system = _SYSTEM[format_](given)
    given.pop("system_instruction", None)
    kept = plain({key: value for key, value in given.items() if key not in _NEVER})
    model = given.get("model")
    settings: dict[str, Any] = {"provider": provider, "settings": kept}
    if isinstance(model, str):
        settings["model"] = model
    if system:
        settings["system"] = system
    tools = plain(given.get("tools"))
    if tools and not isinstance(tools, _Absent):
        settings["tools"] = tools
    return settings


def plain(value: Any, depth: int = 0) -> Json | _Absent:
    """A value as JSON; what JSON cannot hold is left out, and a function is its name."""
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
    found = request.get("instructions")
    return found if isinstance(found, str) else _leading(request.get("input"))


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
    """Instructions before everything else, wherever they are written as messages."""
    texts: list[str] = []
    for message in messages if isinstance(messages, list | tuple) else ():
        if not isinstance(message, Mapping) or message.get("role") not in ("system", "developer"):
            break
        texts.append(_text(message.get("content")))
    return "\n".join(text for text in texts if text)


def _text(value: Any) -> str:
    """Text, or the texts of a list of blocks or parts."""
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
    """What is to be recorded: the shape, and what the model is asked with."""

    def __init__(
        self,
        shape: str,
        request: Request | None,
        provider: str | None,
        retry_of: "Handle | None",
    ) -> None:
        self.kind: Kind = kind_of(shape)
        self.first = None if retry_of is None else retry_of.first_call_id
        self.attempt: int = 1 if retry_of is None else retry_of.attempt + 1
        self.settings = call_settings(shape, provider or self.kind.provider, request)
        self.settings["attempt"] = self.attempt
        if self.first is not None:
            self.settings["retry_of"] = self.first


class Handle:
    """One model call that is recorded. Everything else is the provider's stream itself."""

    def __init__(self, plan: Plan, reply: Deltas) -> None:
        self._reply = reply
        self.attempt: int = plan.attempt
        self.first_call_id: str = plan.first or reply.model_call_id

    @property
    def id(self) -> str:
        """The message's id, there before the first chunk is."""
        return self._reply.id

    @property
    def model_call_id(self) -> str:
        return self._reply.model_call_id

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls that are whole so far."""
        return self._reply.tool_calls

    def on_call(self, tell: Callable[[ToolCall], object]) -> None:
        """Have a function called with each tool call as soon as it is whole."""
        self._reply.on_call(tell)


def is_response(given: Any) -> bool:
    """Whether this is a whole response; an SDK's models can be iterated too, by their fields."""
    return hasattr(given, "model_dump") or isinstance(given, dict)


def must_stream(given: Any) -> None:
    if is_response(given):
        raise TypeError("this is a whole response, not a stream; take it with .whole()")
