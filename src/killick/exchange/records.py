"""What readers of foreign formats say, in words that all of them share.

A reader is a generator of these, in the order of its source, each with its place there. It decides
nothing about journals: `composing` makes entries of them.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from killick.exchange.formats import content as c
from killick.exchange.report import Place
from killick.journal.kinds import digest
from killick.model.entries import Usage
from killick.model.messages import Image, Json, Part, Role, Text, ToolResult
from killick.model.sessions import Namer, Project


class Record(msgspec.Struct, kw_only=True):
    """A record, and when it was made; None is the time of the one before it."""

    place: Place
    at_us: int | None = None


class Begun(Record, kw_only=True):
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


class Said(Record, kw_only=True):
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


class Answered(Record, kw_only=True):
    """The result of a tool call."""

    result: ToolResult
    blobs: dict[str, bytes] = {}
    person: bool = True
    model: bool = True


class TurnOver(Record, kw_only=True):
    status: Literal["completed", "failed", "interrupted"]
    reason: str | None = None
    detail: str | None = None


class Summed(Record, kw_only=True):
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


class WentBack(Record, kw_only=True):
    """It goes on from an earlier message; what came after that one is out of view."""

    key: str


class Kept(Record, kw_only=True):
    """Something that we have no entry for, kept as a note."""

    name: str
    data: Json


class Archived(Record, kw_only=True):
    """It was put away there."""


class Bad(Record, kw_only=True):
    """A record that was skipped, or taken in another way than it stood."""

    reason: str
    repaired: bool = False


def image(data: bytes, media_type: str, alt: str | None = None) -> tuple[Image, dict[str, bytes]]:
    """An image and its bytes, under the name that a store will give them."""
    name = digest(data)
    return Image(name, media_type, alt), {name: data}


def told(  # noqa: PLR0913  (what there is to say of a message)
    place: Place,
    at_us: int | None,
    role: Role,
    found: c.Content,
    *,
    key: str,
    prompt: bool = False,
    asked: Asked | None = None,
    person: bool = True,
    model: bool = True,
    partial: bool = False,
) -> Iterator[Record]:
    """Everything that a message says. One that says nothing at all is reported."""
    for what in found.bad:
        yield Bad(place=place, reason=what)
    for result in found.results:
        yield Answered(
            place=place,
            at_us=at_us,
            result=result,
            blobs=c.blobs_in(result, found.blobs),
            person=person,
            model=model,
        )
    if found.parts:
        yield Said(
            place=place,
            at_us=at_us,
            role=role,
            parts=tuple(found.parts),
            key=key,
            blobs=found.blobs,
            begins_turn=prompt and role == "user",
            partial=partial,
            asked=asked if role == "assistant" else None,
            person=person,
            model=model,
        )
    elif not found.results and not found.bad:
        yield Bad(place=place, reason="a message without content", repaired=True)


def words(parts: Iterable[Part]) -> str:
    """The text of parts."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def title_of(text: object, most: int = 80) -> str | None:
    """The first line of a text that can be a title."""
    if not isinstance(text, str) or not text.strip():
        return None
    return text.strip().splitlines()[0][:most]
