"""Write pydantic-ai's events as a stream's deltas.

What pydantic-ai keeps beside the text of a part (a provider's ids and details) and parts that have
no text (a hosted tool's call) go into one opaque part behind the message, so that `history` can
give them back exactly.
"""

import json
from typing import Any, Final

import msgspec
from pydantic import TypeAdapter
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)

from killick.errors import InvalidEntry
from killick.model.entries import Usage
from killick.model.messages import Opaque
from killick.session.core.stream import Deltas

OURS: Final = "pydantic-ai"
"""The provider of the opaque parts that only this adapter reads."""

LEFT: Final = "the consumer stopped reading"
NO_END: Final = "the stream ended without its end marker"

PARTS: Final[TypeAdapter[Any]] = TypeAdapter(ModelResponsePart)
HELD: Final = {
    "text": {"content"},
    "thinking": {"content", "signature"},
    "tool-call": {"tool_name", "args", "tool_call_id"},
}
"""What a stored part of ours holds of each kind of theirs; its other fields are kept beside."""


class PartApplier:
    """Hands one answer over to a stream, piece by piece."""

    def __init__(self, reply: Deltas, provider: str) -> None:
        self._reply = reply
        self._encrypted = provider.startswith(("openai", "azure"))
        self._calls: dict[int, str] = {}

    def write_event(self, event: ModelResponseStreamEvent) -> None:
        """Write one event. A refused one is kept as it came."""
        try:
            match event:
                case PartStartEvent():
                    self._reply.end_part()
                    self._begin(event.index, event.part)
                case PartDeltaEvent():
                    self._grow(event.index, event.delta)
                case _:
                    pass
        except InvalidEntry as refused:
            kept = {"refused": str(refused), "event": repr(event)}
            self._reply.part(Opaque(OURS, msgspec.json.encode(kept)))

    def whole(self, response: ModelResponse) -> None:
        """Write an answer that came in one piece."""
        for index, part in enumerate(response.parts):
            self.write_event(PartStartEvent(index=index, part=part))

    def end(self, response: ModelResponse, *, ended: bool) -> None:
        """Write the facts of the answer when no more of it comes."""
        usage = response.usage
        ids = response.provider_response_id
        self._reply.finish(
            finish_reason=response.finish_reason,
            usage=Usage(
                input=usage.input_tokens,
                output=usage.output_tokens,
                cached=usage.cache_read_tokens,
                reasoning=usage.details.get("reasoning_tokens", 0),
            ),
            provider_ids={"id": ids} if ids else None,
        )
        if not ended:
            self._reply.cut_off(LEFT)
        elif response.state not in ("complete", "suspended"):
            self._reply.cut_off(NO_END)
        else:
            beside = [_beside(part) for part in response.parts]
            if any(len(fields) > 1 for fields in beside):
                self._reply.part(Opaque(OURS, msgspec.json.encode({"beside": beside})))

    def _begin(self, index: int, part: ModelResponsePart) -> None:
        match part:
            case TextPart():
                self._reply.text(part.content)
            case ThinkingPart():
                self._think(part.content, part.signature)
            case ToolCallPart():
                self._calls[index] = part.tool_call_id
                self._reply.tool_call(
                    part.tool_call_id, name=part.tool_name, arguments=_text(part.args)
                )
            case _:
                pass  # kept whole when the answer ends

    def _grow(self, index: int, delta: object) -> None:
        match delta:
            case TextPartDelta():
                self._reply.text(delta.content_delta)
            case ThinkingPartDelta():
                self._think(delta.content_delta or "", delta.signature_delta)
            case ToolCallPartDelta() if delta.args_delta and index in self._calls:
                self._reply.tool_call(self._calls[index], arguments=_text(delta.args_delta))
            case _:
                pass

    def _think(self, text: str, signature: str | None) -> None:
        if self._encrypted:
            self._reply.reasoning(text, encrypted=signature)
        else:
            self._reply.reasoning(text, signature=signature)


def _text(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False)


def _beside(part: ModelResponsePart) -> dict[str, Any]:
    """Return the fields of pydantic-ai's part that our own part does not hold."""
    dumped: dict[str, Any] = PARTS.dump_python(part, mode="json", exclude_none=True)
    held = HELD.get(part.part_kind)
    if held is None:
        return dumped
    return {key: value for key, value in dumped.items() if key not in held}
