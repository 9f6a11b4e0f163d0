"""Deltas to parts, and parts that go beyond what is stored.

A streamed message is a list of parts, each with a number. A delta names its part and the offset at
which its text begins; text that is already there is passed over, so a repeated delta is harmless.
"""

from collections.abc import Iterable, Sequence

from killick.model.entries import Delta
from killick.model.parts import Part, Reasoning, Text, ToolCall


class _Growing:
    """One part under construction."""

    __slots__ = ("encrypted", "head", "length", "pieces", "signature", "type")

    def __init__(self, delta: Delta) -> None:
        self.type = delta.type
        self.head = delta.head
        self.pieces: list[str] = []
        self.length = 0
        self.signature: str | None = None
        self.encrypted: str | None = None

    def add(self, delta: Delta) -> None:
        fresh = (
            delta.text[self.length - delta.offset :] if delta.offset < self.length else delta.text
        )
        if fresh:
            self.pieces.append(fresh)
            self.length += len(fresh)
        self.signature = delta.signature if delta.signature is not None else self.signature
        self.encrypted = delta.encrypted if delta.encrypted is not None else self.encrypted

    def part(self) -> Part:
        text = "".join(self.pieces)
        if self.type == "text":
            return Text(text)
        if self.type == "reasoning":
            return Reasoning(text, signature=self.signature, encrypted=self.encrypted)
        if isinstance(self.head, ToolCall) and self.type == "arguments":
            return ToolCall(self.head.id, self.head.name, text, self.head.tool_type)
        assert self.head is not None
        return self.head

    def is_empty(self) -> bool:
        return self.head is None and self.length == 0 and not (self.signature or self.encrypted)


def assemble(deltas: Iterable[Delta], onto: Sequence[Part] = ()) -> tuple[Part, ...]:
    """The parts that these deltas make, in the order of their numbers; empty ones are left out.

    `onto` are parts that are stored already, which the deltas continue.
    """
    growing: dict[int, _Growing] = {}
    for delta in deltas:
        found = growing.get(delta.part)
        if found is None:
            found = growing[delta.part] = _begin(delta, onto)
        found.add(delta)
    parts = dict(enumerate(onto))
    parts.update((number, one.part()) for number, one in growing.items() if not one.is_empty())
    return tuple(part for _, part in sorted(parts.items()))


def output_text(deltas: Iterable[Delta], *, after: str | None = None) -> str:
    """What a running tool has printed so far; with `after`, only what goes beyond that."""
    pieces: list[str] = []
    length = len(after or "")
    for delta in deltas:
        fresh = delta.text[length - delta.offset :] if delta.offset < length else delta.text
        pieces.append(fresh)
        length += len(fresh)
    return "".join(pieces)


def merge(deltas: Iterable[Delta]) -> tuple[Delta, ...]:
    """The same deltas with neighbours of one part joined: what one flush writes."""
    if isinstance(deltas, list) and len(deltas) == 1:
        return (deltas[0],)
    merged: list[Delta] = []
    run: list[Delta] = []
    for delta in deltas:
        if run and not _continues(run[-1], delta):
            merged.append(_join(run))
            run = []
        run.append(delta)
    if run:
        merged.append(_join(run))
    return tuple(merged)


def _begin(delta: Delta, onto: Sequence[Part]) -> _Growing:
    growing = _Growing(delta)
    if delta.part >= len(onto):
        return growing
    stored = onto[delta.part]
    if isinstance(stored, ToolCall):
        growing.head, text = stored, stored.arguments
    elif isinstance(stored, Text | Reasoning):
        text = stored.text
    else:
        growing.head, text = stored, ""
    growing.pieces, growing.length = [text], len(text)
    if isinstance(stored, Reasoning):
        growing.signature, growing.encrypted = stored.signature, stored.encrypted
    return growing


def _continues(last: Delta, delta: Delta) -> bool:
    closed = last.signature is not None or last.encrypted is not None
    follows = delta.part == last.part and delta.offset == last.offset + len(last.text)
    return follows and delta.head is None and not closed


def _join(run: list[Delta]) -> Delta:
    if len(run) == 1:
        return run[0]
    first, last = run[0], run[-1]
    return Delta(
        part=first.part,
        offset=first.offset,
        type=first.type,
        text="".join(delta.text for delta in run),
        head=first.head,
        signature=last.signature,
        encrypted=last.encrypted,
    )
