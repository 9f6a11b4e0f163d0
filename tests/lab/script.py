"""What a scripted model says: answers, made of items."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Text:
    """Says words; streamed, they come in pieces of a few characters."""

    text: str


@dataclass(frozen=True)
class Think:
    """Thinks aloud; Chat Completions have no place for it but `reasoning_content`."""

    text: str


@dataclass(frozen=True)
class Call:
    """Calls a tool; the model makes an id where none is given."""

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None
    namespace: str | None = None
    """The group of tools that the name is of, in Responses: Codex has one for each MCP server."""


@dataclass(frozen=True)
class Gate:
    """Waits, with all that stands before it sent, until the test opens the gate."""

    name: str


@dataclass(frozen=True)
class Fail:
    """Refuses with a status, as the provider does. Must be the first item."""

    status: int = 400
    message: str = "the scripted model refuses"


@dataclass(frozen=True)
class Drop:
    """Closes the connection, in the middle of whatever was being said."""


Item = Text | Think | Call | Gate | Fail | Drop


@dataclass(frozen=True, init=False)
class Answer:
    """One answer of the model."""

    items: tuple[Item, ...] = field(default=())

    def __init__(self, *items: Item) -> None:
        object.__setattr__(self, "items", items)
