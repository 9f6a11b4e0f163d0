"""A message, as it is recorded and as it is read back."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from killick.model.parts import Part, Text, ToolCall

Role = Literal["user", "assistant", "tool", "system"]
State = Literal["streaming", "complete", "partial"]


class Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A role and its parts.

    To record one, give `role` and `parts`, and an `id` when a repeated write must be recognised.
    `state`, `turn_id` and `seq` are filled in when a message is read back; what a caller puts there
    is ignored. `seq` is the place at which the message started.
    """

    role: Role
    parts: Sequence[Part]
    id: str = ""
    state: State = "complete"
    turn_id: str | None = None
    seq: int = 0
    model_call_id: str | None = None

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls, in order."""
        return [part for part in self.parts if isinstance(part, ToolCall)]


Prompt = str | Sequence[Part] | Message | None
"""What starts a turn: text, parts, a message, or nothing to go on without one."""


def as_message(prompt: str | Sequence[Part] | Message, *, role: Role = "user") -> Message:
    """Give a prompt the shape of a message."""
    if isinstance(prompt, Message):
        return prompt
    if isinstance(prompt, str):
        return Message(role=role, parts=(Text(prompt),))
    return Message(role=role, parts=tuple(prompt))
