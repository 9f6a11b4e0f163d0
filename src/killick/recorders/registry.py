"""The four shapes: which reader takes them, and how an SDK's object becomes an event."""

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from killick.recorders import anthropic, openai_responses
from killick.recorders.actions import Event, StreamReader
from killick.recorders.anthropic import AnthropicReader
from killick.recorders.gemini import GeminiReader
from killick.recorders.openai_chat import ChatReader
from killick.recorders.openai_responses import ResponsesReader

Shape = Literal["openai-chat", "openai-responses", "anthropic", "gemini"]
"""The same names that `session.context` takes."""


class Kind(msgspec.Struct, frozen=True):
    """One shape."""

    provider: str
    reader: Callable[[str], StreamReader]
    event: Callable[[Any], Event | None]
    whole: Callable[[Event], list[Event]]


def _event(item: Any) -> Event | None:
    """An SDK's object as it was on the wire; a dict is that already."""
    if isinstance(item, dict):
        return item
    found: Event = item.model_dump(exclude_unset=True, by_alias=True, warnings=False)
    return found


def _chat_event(item: Any) -> Event | None:
    """The helper stream wraps each chunk, and adds events of its own that repeat it."""
    if isinstance(item, dict):
        return item
    # Asked of its fields: for one that it lacks, a model looks in many places.
    kind = vars(item).get("type")
    if kind is not None:
        return _event(item.chunk) if kind == "chunk" else None
    return _event(item)


_REPEATS: Final = frozenset({"text", "thinking", "signature", "citation", "input_json"})


def _anthropic_event(item: Any) -> Event | None:
    """What the helper stream adds holds all that came so far: not worth a look."""
    kind = getattr(item, "type", None)
    if kind in _REPEATS:
        return None
    if kind in ("message_stop", "content_block_stop"):
        return {"type": kind, "index": getattr(item, "index", None)}
    return _event(item)


_LEFT_OUT: Final = {"sdk_http_response", "automatic_function_calling_history", "parsed"}


def _gemini_event(item: Any) -> Event | None:
    if isinstance(item, dict):
        return item
    found: Event = item.model_dump(exclude_none=True, exclude=_LEFT_OUT, warnings=False)
    return found


def _same(response: Event) -> list[Event]:
    return [response]


KINDS: Final[dict[str, Kind]] = {
    "openai-chat": Kind("openai", ChatReader, _chat_event, _same),
    "openai-responses": Kind("openai", ResponsesReader, _event, openai_responses.whole_events),
    "anthropic": Kind("anthropic", AnthropicReader, _anthropic_event, anthropic.whole_events),
    "gemini": Kind("gemini", GeminiReader, _gemini_event, _same),
}


def kind_of(shape: str) -> Kind:
    found = KINDS.get(shape)
    if found is None:
        raise ValueError(f"shape {shape!r}; it is one of {', '.join(KINDS)}")
    return found
