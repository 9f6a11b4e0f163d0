"""The actions that a provider's event can mean for a message.

A reader is pure: it takes one event as a dict, remembers what it must, and answers with actions.
`apply` applies them to a stream. So one reader serves both faces, SDKs and raw bytes.
"""

import json
from typing import Any, Final, Protocol

import msgspec

from killick.model.entries import Usage
from killick.model.messages import Opaque, Part
from killick.session.core.stream import ToolType

Event = dict[str, Any]


class _Action(msgspec.Struct, frozen=True, gc=False):
    """Actions cannot form cycles, so the garbage collector need not look at them."""


class TextPiece(_Action, frozen=True):
    """A piece of the answer."""

    text: str


class ReasoningPiece(_Action, frozen=True):
    """A piece of reasoning, or what closes it."""

    text: str = ""
    signature: str | None = None
    encrypted: str | None = None


class EndPart(_Action, frozen=True):
    """The provider's block is over: what comes next is another one."""


class CallPiece(_Action, frozen=True):
    """A tool call, or a piece of its arguments."""

    id: str
    name: str | None = None
    arguments: str = ""
    tool_type: ToolType = "function"
    done: bool = False


class ExtraFields(_Action, frozen=True):
    """Further fields of the open text or reasoning, or of a call; JSON may not hold all of them."""

    shape: str
    fields: dict[str, Any]
    call_id: str | None = None


class WholePart(_Action, frozen=True):
    """A whole part."""

    part: Part


class MediaPiece(_Action, frozen=True):
    """Bytes that become a blob, and an image or a file that names it."""

    data: bytes
    media_type: str


class CallFacts(_Action, frozen=True):
    """Facts of the model call itself. An id is an alias; it may come again."""

    finish_reason: str | None = None
    usage: Usage | None = None
    ids: tuple[tuple[str, str], ...] = ()


Action = (
    TextPiece
    | ReasoningPiece
    | EndPart
    | CallPiece
    | ExtraFields
    | WholePart
    | MediaPiece
    | CallFacts
)

NO_ACTIONS: Final[list[Action]] = []


class StreamReader(Protocol):
    """One provider's shape. `ended` once its end marker came; `cut` says why it broke off."""

    ended: bool
    cut: str | None

    def read(self, event: Event) -> list[Action]:
        """Return the actions of one event."""
        ...

    def close(self) -> list[Action]:
        """Return the actions that were held back for the end; nothing is read afterwards."""
        ...


def unsent(provider: str, **data: Any) -> WholePart:
    """Keep data that is never sent back: a view passes on only what has a type of the provider's.

    Each has one name, under which its data is found: `citations`, `unfinished`, `event` …
    """
    return WholePart(opaque(provider, data))


def opaque(provider: str, data: Any) -> Opaque:
    """Return a provider's own object, as JSON."""
    return Opaque(provider, to_json(data))


def to_json(data: Any) -> bytes:
    """Encode any value of a provider's. Bytes become base64, as on the wire; nothing is refused."""
    try:
        return msgspec.json.encode(data, enc_hook=repr)
    except UnicodeEncodeError:  # half of a character, which providers cut their events at
        return json.dumps(msgspec.to_builtins(data, enc_hook=repr)).encode("ascii")


def usage(value: Any, *, input: int, output: int, cached: int, reasoning: int) -> Usage | None:  # noqa: A002
    """Return usage in one meaning for all: cached and reasoning tokens are part of the others."""
    if not isinstance(value, dict):
        return None
    return Usage(input=input, output=output, cached=cached, reasoning=reasoning)


def count(value: Any, *path: str) -> int:
    """Return the number of tokens at a path; 0 when it is missing or no number."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int) and value > 0 else 0


def extra(
    shape: str, value: Event, known: frozenset[str], call_id: str | None = None
) -> list[ExtraFields]:
    """Return the fields of a part that this reader has no place for, if it has any."""
    fields = {key: field for key, field in value.items() if key not in known and field is not None}
    return [ExtraFields(shape, fields, call_id)] if fields else []


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""
