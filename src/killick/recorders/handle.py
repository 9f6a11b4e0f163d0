"""What a recording shows of itself on both faces."""

from collections.abc import Callable
from typing import Any, Final

from killick.model.parts import ToolCall
from killick.recorders.requests import Request, call_settings
from killick.recorders.shapes import Kind, kind_of
from killick.session.blocks import Deltas
from killick.session.options import CallSettings

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
        self.settings: CallSettings = call_settings(shape, provider or self.kind.provider, request)
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
