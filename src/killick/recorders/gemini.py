"""Google Gemini: each chunk is a response of its own; a finish reason is the end marker.

Calls come whole and often without an id, so one is minted. The signature of a part is kept right
behind it, because it must go back with that part.
"""

from base64 import b64encode
from enum import Enum
from typing import Any

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
    opaque,
    text_of,
    to_json,
    unsent,
    usage,
)

_BESIDE = ("grounding_metadata", "citation_metadata", "url_context_metadata")


class GeminiReader:
    """Reads `GenerateContentResponse` objects, streamed or not."""

    def __init__(self, prefix: str) -> None:
        self.ended = False
        self.cut: str | None = None
        self._prefix = prefix
        self._response_id: str | None = None
        self._ids: set[str] = set()
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
            self.ended = True
            actions.append(CallFacts(finish_reason=_name(reason)))

    def _part(self, part: Event, actions: list[Action]) -> None:
        text, call, inline = part.get("text"), part.get("function_call"), part.get("inline_data")
        if isinstance(text, str):
            actions.append(ReasoningPiece(text) if part.get("thought") else TextPiece(text))
        elif call and not call.get("partial_args") and not call.get("will_continue"):
            actions.append(self._call(call))
        elif inline and isinstance(inline.get("data"), bytes):
            media_type = text_of(inline.get("mime_type")) or "application/octet-stream"
            actions.append(MediaPiece(inline["data"], media_type))
        elif call:
            self._beside.setdefault("unfinished", []).append(part)
        else:
            actions.append(WholePart(opaque("gemini", part)))
            return
        signature = part.get("thought_signature")
        if signature:
            text_of_it = signature if isinstance(signature, str) else b64encode(signature).decode()
            actions += [EndPart(), unsent("gemini", thought_signature=text_of_it)]

    def _call(self, call: Event) -> CallPiece:
        call_id = text_of(call.get("id"))
        if not call_id or call_id in self._ids:
            call_id = f"{call_id or self._prefix}_{len(self._ids)}"
        self._ids.add(call_id)
        arguments = to_json(call.get("args") or {}).decode()
        return CallPiece(call_id, text_of(call.get("name")) or "tool", arguments)

    def close(self) -> list[Action]:
        return [unsent("gemini", **self._beside)] if self._beside else []


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
