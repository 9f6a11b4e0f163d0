"""What readers of foreign formats say, in words that all of them share.

A reader is a generator of these, in the order of its source, each with its place there. It decides
nothing about journals: `composing` makes entries of them.
"""

from typing import Any, Literal

import msgspec

from killick.exchange.report import SourceLocation
from killick.journal.kinds import digest
from killick.model.entries import Usage
from killick.model.messages import Image, Json, Part, Role, ToolResult
from killick.model.sessions import Namer, Project


class Record(msgspec.Struct, kw_only=True):
    """A record, and when it was made; None is the time of the one before it."""

    place: SourceLocation
    at_us: int | None = None


class BeginRecord(Record, kw_only=True):
    """The session. What can change later is no part of it: a title is `Titled`."""

    native_id: str
    type: str = "user"
    project: Project | None = None
    extra: dict[str, Any] = {}
    parent: str | None = None


class Titled(Record, kw_only=True):
    title: str
    by: Namer = "import"


class TurnBegan(Record, kw_only=True):
    """A turn begins; one that was open has lost its ending."""

    key: str


class Asked(msgspec.Struct):
    """What is known of the model call that a message answers."""

    provider: str | None = None
    model: str | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    provider_ids: dict[str, str] = {}
    error: str | None = None
    system: str | None = None


class MessageRecord(Record, kw_only=True):
    """A message. One that `begins_turn` is a prompt; `key` is its id in the source."""

    role: Role
    parts: tuple[Part, ...]
    key: str | None = None
    blobs: dict[str, bytes] = {}
    begins_turn: bool = False
    partial: bool = False
    asked: Asked | None = None
    person: bool = True
    model: bool = True


class ResultRecord(Record, kw_only=True):
    """The result of a tool call."""

    result: ToolResult
    blobs: dict[str, bytes] = {}
    person: bool = True
    model: bool = True


class TurnOver(Record, kw_only=True):
    status: Literal["completed", "failed", "interrupted"]
    reason: str | None = None
    detail: str | None = None


class SummaryRecord(Record, kw_only=True):
    """A summary stands for everything so far, but for what is kept.

    That is prompts with one of these texts, and messages with one of these keys. The source may
    have no more than the newest summary, put beside it `late`: it counts from here, and stands at
    the end of what is known.
    """

    text: str
    late: bool = False
    kept_keys: frozenset[str] = frozenset()
    kept_texts: frozenset[str] = frozenset()
    provider: str | None = None
    model: str | None = None


class RolledBack(Record, kw_only=True):
    """The last turns that had a prompt are taken back."""

    turns: int


class BranchRecord(Record, kw_only=True):
    """It goes on from an earlier message; what came after that one is out of view."""

    key: str


class OpaqueRecord(Record, kw_only=True):
    """Something that we have no entry for, kept as a note."""

    name: str
    data: Json


class ArchiveRecord(Record, kw_only=True):
    """It was put away there."""


class Bad(Record, kw_only=True):
    """A record that was skipped, or taken in another way than it stood."""

    reason: str
    repaired: bool = False


def image(data: bytes, media_type: str, alt: str | None = None) -> tuple[Image, dict[str, bytes]]:
    """An image and its bytes, under the name that a store will give them."""
    name = digest(data)
    return Image(name, media_type, alt), {name: data}
