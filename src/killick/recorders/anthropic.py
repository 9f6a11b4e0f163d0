"""Anthropic Messages: blocks that start, grow and stop; `message_stop` is the end marker.

What its servers ran themselves (a search and its results) is kept block by block exactly as it
came, because it must go back exactly.
"""

import json
from typing import Any, Final

from killick.journal.assembly import is_whole_object
from killick.model.messages import Reasoning
from killick.recorders.actions import (
    NO_ACTIONS,
    Action,
    CallFacts,
    CallPiece,
    EndPart,
    Event,
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

_DERIVED: Final = frozenset(
    {"ping", "text", "thinking", "signature", "citation", "input_json", "compaction"}
)
"""What the SDK's helper stream adds to the events, and what carries nothing."""
_KNOWN: Final = {
    "text": frozenset({"type", "text", "citations"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
}
"""The fields of a block that have a place in a part; the others are kept with it."""
_CUT: Final = frozenset({"max_tokens", "refusal", "model_context_window_exceeded"})


class _Block:
    """One content block as it grows."""

    def __init__(self, start: Event) -> None:
        self.start = start
        self.type = text_of(start.get("type"))
        self.id = text_of(start.get("id"))
        self.signature = text_of(start.get("signature"))
        self.citations: list[Any] = list(start.get("citations") or ())
        self.pieces: list[str] = []
        self.unknown: list[Event] = []


class AnthropicReader:
    """Reads the events of a message stream."""

    def __init__(self, prefix: str) -> None:
        self.ended = False
        self.cut: str | None = None
        self._prefix = prefix
        self._blocks: dict[int, _Block] = {}
        self._ids: set[str] = set()
        self._broken = False
        self._blank: str | None = None
        self._usage: dict[str, Any] = {}

    def read(self, event: Event) -> list[Action]:
        match event.get("type"):
            case "content_block_delta":
                block = self._blocks.get(event["index"])
                return NO_ACTIONS if block is None else self._grow(block, event["delta"])
            case "content_block_start":
                return self._start(event["index"], event["content_block"])
            case "content_block_stop":
                block = self._blocks.pop(event["index"], None)
                return NO_ACTIONS if block is None else self._stop(block)
            case "message_start":
                return self._begin(event["message"])
            case "message_delta":
                return self._about(event)
            case "message_stop":
                self.ended = True
                return NO_ACTIONS
            case "error":
                error = event.get("error") or {}
                self.cut = f"the provider reported an error: {error.get('message')}"
                return NO_ACTIONS
            case kind if kind in _DERIVED:
                return NO_ACTIONS
        return [unsent("anthropic", event=event)]

    # -- blocks --------------------------------------------------------------------------------

    def _start(self, index: int, start: Event) -> list[Action]:
        block = self._blocks[index] = _Block(start)
        actions = self._settle()
        match block.type:
            case "text" if start.get("text"):
                actions.append(TextPiece(start["text"]))
            case "thinking" if start.get("thinking"):
                actions.append(ReasoningPiece(start["thinking"]))
            case "redacted_thinking":
                # A part of its own: thinking that is open may not take its data.
                actions.append(WholePart(_redacted(start)))
            case "tool_use":
                if block.id in self._ids or not block.id:
                    block.id = f"{block.id or self._prefix}_{len(self._ids)}"
                self._ids.add(block.id)
                actions.append(CallPiece(block.id, text_of(start.get("name")) or "tool"))
                actions += extra("anthropic", start, _KNOWN["tool_use"], block.id)
        return actions

    def _grow(self, block: _Block, delta: Event) -> list[Action]:
        match delta.get("type"):
            case "text_delta" if block.type == "text":
                return [TextPiece(delta["text"])]
            case "thinking_delta" if block.type == "thinking":
                return [ReasoningPiece(delta["thinking"])]
            case "input_json_delta":
                piece = delta["partial_json"]
                block.pieces.append(piece)
                return [CallPiece(block.id, arguments=piece)] if block.type == "tool_use" else []
            case "signature_delta":
                # A later one replaces it, and a signature closes its part: not before the stop.
                block.signature = delta["signature"]
            case "citations_delta":
                block.citations.append(delta["citation"])
            case _:
                block.unknown.append(delta)
        return NO_ACTIONS

    def _stop(self, block: _Block) -> list[Action]:
        match block.type:
            case "text":
                more = extra("anthropic", block.start, _KNOWN["text"])
                cited = [unsent("anthropic", citations=block.citations)] if block.citations else []
                return [*more, EndPart(), *cited, *self._unknown(block)]
            case "thinking":
                more = extra("anthropic", block.start, _KNOWN["thinking"])
                signed = ReasoningPiece(signature=block.signature) if block.signature else EndPart()
                return [*more, signed, EndPart(), *self._unknown(block)]
            case "redacted_thinking":
                return self._unknown(block)
            case "tool_use":
                return [*self._end_call(block), *self._unknown(block)]
        return [WholePart(opaque("anthropic", _whole(block)))]

    def _end_call(self, block: _Block) -> list[Action]:
        text = "".join(block.pieces)
        given = block.start.get("input")
        if not text.strip() and given:
            return [CallPiece(block.id, arguments=to_json(given).decode(), done=True)]
        if not text.strip():
            self._blank = block.id
            return NO_ACTIONS
        self._broken = self._broken or not is_whole_object(text)
        return NO_ACTIONS

    def _settle(self) -> list[Action]:
        """Finish a call without arguments once something follows that is no limit."""
        blank, self._blank = self._blank, None
        return [] if blank is None else [CallPiece(blank, done=True)]

    def _unknown(self, block: _Block) -> list[Action]:
        return [unsent("anthropic", deltas=block.unknown)] if block.unknown else []

    # -- the message -----------------------------------------------------------------------------

    def _begin(self, message: Event) -> list[Action]:
        self._usage.update(_given(message.get("usage")))
        ids = (("message", message["id"]),) if message.get("id") else ()
        actions: list[Action] = [CallFacts(usage=_usage(self._usage), ids=ids)]
        if message.get("content"):  # a whole message, not the beginning of a stream
            for index, block in enumerate(message["content"]):
                actions += self._start(index, block)
                actions += self._stop(self._blocks.pop(index))
        return actions

    def _about(self, event: Event) -> list[Action]:
        self._usage.update(_given(event.get("usage")))
        delta = event.get("delta") or {}
        reason = delta.get("stop_reason")
        open_call = any(block.type == "tool_use" for block in self._blocks.values())
        if reason in _CUT and (self._broken or open_call or self._blank is not None):
            self.cut = f"the answer ended with {reason!r} in the middle of a tool call"
            self._blank = None
        container = (delta.get("container") or {}).get("id")
        ids = (("container", container),) if container else ()
        facts = CallFacts(finish_reason=reason, usage=_usage(self._usage), ids=ids)
        return [*self._settle(), facts]

    def close(self) -> list[Action]:
        actions: list[Action] = []
        for block in self._blocks.values():
            if block.type == "thinking" and block.signature:
                actions.append(ReasoningPiece(signature=block.signature))
            elif block.type == "text" and block.citations:
                actions.append(unsent("anthropic", citations=block.citations))
            elif block.type not in ("text", "thinking", "redacted_thinking", "tool_use"):
                actions.append(unsent("anthropic", unfinished=_whole(block)))
        self._blocks = {}
        return actions


def _redacted(start: Event) -> Reasoning:
    more = {key: value for key, value in start.items() if key not in _KNOWN["redacted_thinking"]}
    return Reasoning(
        "", encrypted=text_of(start.get("data")), extra={"anthropic": more} if more else None
    )


def whole_events(message: Event) -> list[Event]:
    """Return a whole response as the events that a stream of it would have."""
    about = {"stop_reason": message.get("stop_reason"), "container": message.get("container")}
    return [
        {"type": "message_start", "message": message},
        {"type": "message_delta", "delta": about, "usage": message.get("usage")},
        {"type": "message_stop"},
    ]


def _whole(block: _Block) -> Event:
    """Return a block as it came, with the streamed text put into it."""
    whole = dict(block.start)
    text = "".join(block.pieces)
    if text:
        whole["input"] = json.loads(text) if is_whole_object(text) else text
    for delta in block.unknown:
        for key, value in delta.items():
            if key != "type" and isinstance(value, str):
                whole[key] = text_of(whole.get(key)) + value
    return whole


def _given(value: Any) -> dict[str, Any]:
    """Return the totals that an event has; the others stay."""
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else {}


def _usage(totals: dict[str, Any]) -> Any:
    cached = count(totals, "cache_read_input_tokens")
    fresh = count(totals, "input_tokens") + count(totals, "cache_creation_input_tokens")
    return usage(
        totals or None,
        input=fresh + cached,
        output=count(totals, "output_tokens"),
        cached=cached,
        reasoning=count(totals, "output_tokens_details", "thinking_tokens"),
    )
