"""Deltas to parts, and the text of a tool call's arguments to a whole JSON object.

Arguments come in pieces. Parsing all of them again for each piece would cost the square of their
length, so a scanner follows the braces, and the text is parsed once, when they are closed.
"""

import json
from collections.abc import Iterable, Sequence

from killick.model.entries import Delta
from killick.model.messages import Extra, Part, Reasoning, Text, ToolCall

_BLANK = " \t\r\n"


class ObjectScanner:
    """Follows the text of one JSON object; `closed` once its last brace was seen."""

    __slots__ = ("_depth", "_escaped", "_in_string", "broken", "closed")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.closed = False
        self.broken = False

    def feed(self, text: str) -> None:
        """Take the next piece; `broken` if it is no object or goes on after its end."""
        for char in text:
            if self._in_string:
                self._feed_string(char)
            elif self.closed or self._depth == 0:
                self._feed_outside(char)
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                self.closed = self._depth == 0

    def _feed_string(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False

    def _feed_outside(self, char: str) -> None:
        if char in _BLANK:
            return
        if char == "{" and not self.closed:
            self._depth = 1
        else:
            self.broken = True


def is_whole_object(text: str) -> bool:
    """Return True for a text that is one JSON object and nothing else."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class _Growing:
    """One part under construction."""

    __slots__ = ("encrypted", "extra", "head", "length", "pieces", "signature", "type")

    def __init__(self, delta: Delta) -> None:
        self.type = delta.type
        self.head = delta.head
        self.pieces: list[str] = []
        self.length = 0
        self.signature: str | None = None
        self.encrypted: str | None = None
        self.extra: Extra | None = None

    def add(self, delta: Delta) -> None:
        fresh = delta.text[max(0, self.length - delta.offset) :]
        if fresh:
            self.pieces.append(fresh)
            self.length += len(fresh)
        self.signature = delta.signature if delta.signature is not None else self.signature
        self.encrypted = delta.encrypted if delta.encrypted is not None else self.encrypted
        if delta.extra is not None:
            self.extra = join_extra(self.extra, delta.extra)

    def part(self) -> Part:
        text = "".join(self.pieces)
        if self.type == "text":
            return Text(text, self.extra)
        if self.type == "reasoning":
            return Reasoning(text, self.signature, self.encrypted, self.extra)
        if isinstance(self.head, ToolCall) and self.type == "arguments":
            return ToolCall(self.head.id, self.head.name, text, self.head.tool_type, self.extra)
        assert self.head is not None
        return self.head

    def is_empty(self) -> bool:
        return self.head is None and self.length == 0 and not (self.signature or self.encrypted)


def assemble(deltas: Iterable[Delta], onto: Sequence[Part] = ()) -> tuple[Part, ...]:
    """Return the parts that these deltas make, by their numbers; empty ones are left out.

    `onto` are parts that are stored already, which the deltas continue.
    """
    growing: dict[int, _Growing] = {}
    for delta in deltas:
        part = growing.get(delta.part)
        if part is None:
            part = growing[delta.part] = _begin(delta, onto)
        part.add(delta)
    parts = dict(enumerate(onto))
    parts.update(
        (number, grown.part()) for number, grown in growing.items() if not grown.is_empty()
    )
    return tuple(part for _, part in sorted(parts.items()))


def join_extra(known: Extra | None, fresh: Extra) -> Extra:
    """Return the further fields of both, shape by shape; a field that comes again is replaced."""
    joined = dict(known or {})
    for shape, fields in fresh.items():
        joined[shape] = {**joined.get(shape, {}), **fields}
    return joined


def output_text(deltas: Iterable[Delta], *, after: str | None = None) -> str:
    """Return what a running tool has printed so far; with `after`, only what goes beyond that."""
    pieces: list[str] = []
    length = len(after or "")
    for delta in deltas:
        fresh = delta.text[max(0, length - delta.offset) :]
        pieces.append(fresh)
        length += len(fresh)
    return "".join(pieces)


def merge(deltas: Iterable[Delta]) -> tuple[Delta, ...]:
    """Join neighbouring deltas of one part: what one flush writes."""
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
    if isinstance(stored, Text | Reasoning | ToolCall):
        growing.extra = stored.extra
    if isinstance(stored, Reasoning):
        growing.signature, growing.encrypted = stored.signature, stored.encrypted
    return growing


def _continues(last: Delta, delta: Delta) -> bool:
    closed = last.signature is not None or last.encrypted is not None
    follows = delta.part == last.part and delta.offset == last.offset + len(last.text)
    more = delta.extra is not None or last.extra is not None
    return follows and delta.head is None and not closed and not more


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
