"""Google Gemini: each chunk is a response of its own; a finish reason is the end marker.

Calls come whole, often without an id, so one is minted; or in pieces, each a value at a path in the
arguments. The signature of a part is kept right behind it, because it must go back with that part.
"""

import re
from base64 import b64decode, b64encode
from enum import Enum
from typing import Any, Final

from killick.recorders.actions import (
    Action,
    CallFacts,
    CallPiece,
    EndPart,
    Event,
    MediaPiece,
    ReasoningPiece,
    TextPiece,
    WholePart,
    count,
    extra,
    opaque,
    text_of,
    to_json,
    unsent,
    usage,
)

_BESIDE = ("grounding_metadata", "citation_metadata", "url_context_metadata")
_VALUES: Final = ("string_value", "number_value", "bool_value", "null_value")
_STEP: Final = re.compile(r"""\.?([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]""")
_DATA: Final = frozenset({"args", "response", "part_metadata"})
"""Objects of the caller's: the names in them are data."""
_KNOWN: Final = frozenset({"text", "thought", "thought_signature", "function_call", "inline_data"})
_KNOWN_CALL: Final = frozenset({"id", "name", "args", "partial_args", "will_continue"})
"""The fields of a part that have a place here; the others are kept with it."""
_HUMP: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")
_ITEMS_MAX: Final = 100_000
"""Places of an array that a path may skip: a broken path makes no array of any size."""


class _Calling:
    """A call whose arguments come value by value."""

    def __init__(self, call_id: str, name: str, args: Any) -> None:
        self.id = call_id
        self.name = name
        self.args = args
        self.open: str | None = None
        """The path of a text that goes on."""

    def add(self, piece: Event) -> None:
        path = text_of(piece.get("json_path"))
        keys = [
            int(index) if index else name or quoted
            for name, index, quoted in _STEP.findall(path.removeprefix("$"))
        ]
        value = next((piece[name] for name in _VALUES if piece.get(name) is not None), None)
        if piece.get("null_value") is not None:
            value = None
        elif isinstance(value, float) and value.is_integer():
            value = int(value)  # a number of the wire has no other kind
        goes_on = self.open == path
        self.open = path if piece.get("will_continue") else None
        if keys and (value is not None or piece.get("null_value") is not None):
            self.args = _put(self.args, keys, value, goes_on=goes_on)


def _put(inside: Any, keys: list[Any], value: Any, *, goes_on: bool) -> Any:
    """Return an object or array with a value at a path; text that goes on is appended."""
    if not keys:
        return inside + value if goes_on and isinstance(inside, str) else value
    key, rest = keys[0], keys[1:]
    if isinstance(key, int):
        items = inside if isinstance(inside, list) else []
        if key - len(items) > _ITEMS_MAX:
            raise ValueError("the path skips too many places of an array")
        items += [None] * (key + 1 - len(items))
        items[key] = _put(items[key], rest, value, goes_on=goes_on)
        return items
    fields = inside if isinstance(inside, dict) else {}
    fields[key] = _put(fields.get(key), rest, value, goes_on=goes_on)
    return fields


class GeminiReader:
    """Reads `GenerateContentResponse` objects, streamed or not."""

    def __init__(self, prefix: str) -> None:
        self.ended = False
        self.cut: str | None = None
        self._prefix = prefix
        self._response_id: str | None = None
        self._ids: set[str] = set()
        self._calling: _Calling | None = None
        self._beside: dict[str, list[Any]] = {}

    def read(self, event: Event) -> list[Action]:
        actions: list[Action] = []
        for position, candidate in enumerate(event.get("candidates") or ()):
            if (candidate.get("index") or position) == 0:
                self._candidate(candidate, actions)
            else:
                self._beside.setdefault("candidates", []).append(candidate)
        blocked = (event.get("prompt_feedback") or {}).get("block_reason")
        if blocked:
            self.ended = True
            actions.append(CallFacts(finish_reason=_name(blocked)))
        if event.get("error"):
            error = event["error"]
            words = error.get("message") if isinstance(error, dict) else error
            self.cut = f"the provider reported an error: {words}"
        response_id, tokens = event.get("response_id"), event.get("usage_metadata")
        if tokens or response_id != self._response_id:
            self._response_id = response_id
            ids = (("response", response_id),) if response_id else ()
            actions.append(CallFacts(usage=_usage(tokens), ids=ids))
        return actions

    def _candidate(self, candidate: Event, actions: list[Action]) -> None:
        for part in (candidate.get("content") or {}).get("parts") or ():
            self._part(part, actions)
        for name in _BESIDE:
            if candidate.get(name):
                self._beside.setdefault(name, []).append(candidate[name])
        reason = candidate.get("finish_reason")
        if reason:
            self._finish(_name(reason), actions)

    def _finish(self, reason: str, actions: list[Action]) -> None:
        self.ended = True
        calling = self._calling
        if calling is not None and (reason != "STOP" or calling.open is not None):
            self.cut = f"the answer ended with {reason!r} in the middle of a tool call"
        else:
            self._end_call(actions)
        actions.append(CallFacts(finish_reason=reason))

    def _part(self, part: Event, actions: list[Action]) -> None:
        text, call, inline = part.get("text"), part.get("function_call"), part.get("inline_data")
        if isinstance(text, str):
            actions.append(ReasoningPiece(text) if part.get("thought") else TextPiece(text))
            if text:
                actions += extra("gemini", part, _KNOWN)
        elif isinstance(call, dict) and (call or self._calling is not None):
            self._call(part, actions)
        elif inline and inline.get("data"):
            data = inline["data"]
            media_type = text_of(inline.get("mime_type")) or "application/octet-stream"
            actions.append(
                MediaPiece(data if isinstance(data, bytes) else b64decode(data), media_type)
            )
        else:
            actions.append(WholePart(opaque("gemini", part)))
            return
        signature = part.get("thought_signature")
        if signature:
            text_of_it = signature if isinstance(signature, str) else b64encode(signature).decode()
            actions += [EndPart(), unsent("gemini", thought_signature=text_of_it)]

    # -- calls -----------------------------------------------------------------------------------

    def _call(self, part: Event, actions: list[Action]) -> None:
        """Take a whole call, the first piece of one, or a piece that has no name of its own."""
        call = part["function_call"]
        pieces, more = call.get("partial_args") or (), bool(call.get("will_continue"))
        if call.get("name") or self._calling is None:
            self._end_call(actions)
            call_id, name = self._unused(text_of(call.get("id"))), text_of(call.get("name"))
            self._calling = _Calling(call_id, name or "tool", call.get("args") or {})
            actions.append(CallPiece(call_id, name or "tool"))
        calling = self._calling
        actions += extra("gemini", part, _KNOWN, calling.id)
        actions += extra("gemini", call, _KNOWN_CALL, calling.id)
        for piece in pieces:
            calling.add(piece)
        if not more:
            self._end_call(actions)

    def _end_call(self, actions: list[Action]) -> None:
        calling, self._calling = self._calling, None
        if calling is not None:
            actions.append(CallPiece(calling.id, arguments=to_json(calling.args).decode()))

    def _unused(self, call_id: str) -> str:
        if not call_id or call_id in self._ids:
            call_id = f"{call_id or self._prefix}_{len(self._ids)}"
        self._ids.add(call_id)
        return call_id

    def close(self) -> list[Action]:
        calling = self._calling
        if calling is not None:
            call = {"id": calling.id, "name": calling.name, "args": calling.args}
            self._beside.setdefault("unfinished", []).append(call)
        return [unsent("gemini", **self._beside)] if self._beside else []


def snake(event: Any) -> Any:
    """Return an event of the wire with the names that the SDK has for its fields."""
    if isinstance(event, list):
        return [snake(inner) for inner in event]
    if not isinstance(event, dict):
        return event
    named = {_HUMP.sub(r"_\1", str(key)).lower(): value for key, value in event.items()}
    return {key: value if key in _DATA else snake(value) for key, value in named.items()}


def _name(value: Any) -> str:
    return str(value.value if isinstance(value, Enum) else value)


def _usage(tokens: Any) -> Any:
    thoughts = count(tokens, "thoughts_token_count")
    asked = count(tokens, "prompt_token_count") + count(tokens, "tool_use_prompt_token_count")
    return usage(
        tokens,
        input=asked,
        output=count(tokens, "candidates_token_count") + thoughts,
        cached=count(tokens, "cached_content_token_count"),
        reasoning=thoughts,
    )
