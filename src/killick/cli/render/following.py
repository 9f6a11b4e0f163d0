"""A session as it happens, as text: entries as lines, deltas as they come.

Several things can stream at once: an answer and the output of tools. What comes is shown in the
order in which it came; when another stream goes on, a line says which.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from killick.cli.moments import told
from killick.cli.printing import Span
from killick.cli.render.words import entry_words
from killick.model import entries as e
from killick.model.parts import Part, Reasoning, Text, ToolCall


class _Stream(NamedTuple):
    """What deltas belong to: a part of a message, or a tool's output."""

    seq: int
    part: int


class Teller:
    """Turns what a follower is given into words. Pure: it remembers only what it has said."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._names: dict[tuple[str, str], str] = {}
        self._open: _Stream | None = None
        self._ends_line = True
        self._streamed: set[str] = set()
        """Messages and calls whose text was shown as deltas."""

    def tell(self, item: e.Entry | e.FollowedDelta) -> list[Span]:
        spans = list(self._entry(item) if isinstance(item, e.Entry) else self._delta(item))
        if spans:
            self._ends_line = spans[-1].text.endswith("\n")
        return spans

    def _delta(self, item: e.FollowedDelta) -> Iterator[Span]:
        delta = item.delta
        self._streamed.add(_name(item.message_id, item.call_id))
        if isinstance(delta.head, ToolCall):
            self._names[item.message_id, delta.head.id] = delta.head.name
        stream = _Stream(item.seq, item.part)
        if stream != self._open:
            self._open = stream
            yield from self._break()
            yield Span(self._opening(item), "dim")
        if delta.text:
            yield Span(delta.text, "dim italic" if delta.type == "reasoning" else "")

    def _opening(self, item: e.FollowedDelta) -> str:
        delta = item.delta
        if item.call_id is not None:
            return f"#{item.seq} {self._tool(item.message_id, item.call_id)} prints: "
        if delta.type == "arguments":
            name = delta.head.name if isinstance(delta.head, ToolCall) else "tool"
            return f"#{item.seq} calls {name} "
        return f"#{item.seq} thinks: " if delta.type == "reasoning" else f"#{item.seq} says: "

    def _entry(self, entry: e.Entry) -> Iterator[Span]:
        self._learn(entry.body)
        self._open = None
        yield from self._break()
        words, style = entry_words(entry.body, self._tool)
        whole = self._whole(entry.body)
        if isinstance(entry.body, e.MessageEnded):
            yield from whole  # that it was cut off is said where it was
        if words:
            yield Span(f"{told(entry.at, self._now)} #{entry.seq} ", "dim")
            yield Span(words + "\n", style)
        yield from whole

    def _whole(self, body: e.Body) -> Iterator[Span]:
        """What was said, where it did not come as deltas."""
        match body:
            case e.MessageRecorded() | e.MessageEnded():
                if body.id not in self._streamed:
                    yield from _said(body.parts)
            case e.ToolFinished() | e.LateResult():
                content = body.result.content
                streamed = _name(body.message_id, body.result.call_id) in self._streamed
                if isinstance(content, str) and content and not (streamed and body.output is None):
                    yield Span(_ended(content))
            case _:
                pass

    def _learn(self, body: e.Body) -> None:
        match body:
            case e.MessageRecorded() | e.MessageEnded():
                for part in body.parts:
                    if isinstance(part, ToolCall):
                        self._names[body.id, part.id] = part.name
            case e.ToolCalled():
                self._names[body.message_id, body.call_id] = body.name
            case _:
                pass

    def _tool(self, message_id: str, call_id: str) -> str:
        return self._names.get((message_id, call_id), call_id)

    def _break(self) -> Iterator[Span]:
        if not self._ends_line:
            self._ends_line = True
            yield Span("\n")


def _name(message_id: str, call_id: str | None) -> str:
    return message_id if call_id is None else f"{message_id}/{call_id}"


def _said(parts: Sequence[Part]) -> Iterator[Span]:
    for part in parts:
        match part:
            case Text():
                yield Span(_ended(part.text))
            case Reasoning() if part.text:
                yield Span(_ended(part.text), "dim italic")
            case ToolCall():
                yield Span(_ended(f"calls {part.name} {part.arguments}"), "dim")
            case _:
                pass


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"
