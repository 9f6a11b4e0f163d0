"""The smallest things a message is made of.

Parts are pure values: equal when their content is equal, with no identity of their own.
Large bytes are not in a part; images and files name a blob by its hash.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

Json = None | bool | int | float | str | list[Any] | dict[str, Any]
Extra = dict[str, dict[str, Any]]
"""Further fields that a provider sent with a part, under the shape that it sent them in."""


def plain(text: str) -> str:
    """Return a text of a class of its own (an enum's, a framework's) as a plain string."""
    return text if type(text) is str or not isinstance(text, str) else str.__str__(text)


class _Part(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    repr_omit_defaults=True,
    tag_field="type",
):
    """Parts cannot form cycles, so the garbage collector need not look at them."""


class Text(_Part, frozen=True, tag="text"):
    """Words of a person, a model or a tool."""

    text: str
    extra: Extra | None = None


class Reasoning(_Part, frozen=True, tag="reasoning"):
    """Thoughts of the model. Signature and encrypted content are kept exactly as they came."""

    text: str
    signature: str | None = None
    encrypted: str | None = None
    extra: Extra | None = None


class ToolCall(_Part, frozen=True, tag="tool_call"):
    """A tool the model asked for; `arguments` is the text the model wrote, never re-encoded."""

    id: str
    name: str
    arguments: str = ""
    tool_type: Literal["function", "custom", "mcp", "hosted"] = "function"
    extra: Extra | None = None


class Image(_Part, frozen=True, tag="image"):
    """An image, stored once under the hash that `store.put_blob` returned."""

    blob: str
    media_type: str
    alt: str | None = None


class File(_Part, frozen=True, tag="file"):
    """A file, stored once under the hash that `store.put_blob` returned."""

    blob: str
    media_type: str
    name: str | None = None


OWN_PROVIDER: Final = "holdfast"
"""The provider of parts that were kept whole here; stored journals have this name."""


class Opaque(_Part, frozen=True, tag="opaque"):
    """A provider's own data, kept byte for byte and handed back to that provider only."""

    provider: str
    data: bytes


class ToolResult(_Part, frozen=True, tag="tool_result"):
    """The result of a tool: text or parts, and structured content beside it."""

    call_id: str
    content: str | tuple[Text | Image | File | Opaque, ...]
    is_error: bool = False
    structured: Json = None


Part = Text | Reasoning | ToolCall | ToolResult | Image | File | Opaque
"""Any part of a message."""

BLOB_PARTS = (Image, File)


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
