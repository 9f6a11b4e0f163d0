"""A session as it happens: entries in order, and the deltas of what is open, without gap or repeat.

Deltas exist until their stream ends. A follower that has shown some of them shows the rest before
the entry that ends the stream, taken from that entry; so the deltas it shows always make the text.
"""

from collections.abc import Sequence

from holdfast.errors import SessionNotFound, StoreDegraded
from holdfast.journal.assembly import merge
from holdfast.model import entries as e
from holdfast.model.parts import Part, Reasoning, Text, ToolCall
from holdfast.session.steps import Flow, read
from holdfast.stores.base import Reader

Followed = e.Entry | e.FollowedDelta
_PAGE = 500
_RETRIES = 3


class _Shown:
    """How much of one open stream was shown."""

    __slots__ = ("call_id", "flush", "lengths", "message_id", "seq", "signed", "turn_id")

    def __init__(self, seq: int, turn_id: str, message_id: str, call_id: str | None) -> None:
        self.seq = seq
        self.turn_id = turn_id
        self.message_id = message_id
        self.call_id = call_id
        self.flush = 0
        self.lengths: dict[int, int] = {}
        self.signed: set[int] = set()

    def copy(self) -> "_Shown":
        copied = _Shown(self.seq, self.turn_id, self.message_id, self.call_id)
        copied.flush = self.flush
        copied.lengths, copied.signed = dict(self.lengths), set(self.signed)
        return copied


class Follower:
    """Remembers what was shown; each `poll` returns what is new as of one moment."""

    def __init__(self, key: int, after: int) -> None:
        if after < 0:
            raise ValueError("after counts from zero")
        self._key = key
        self._after = after
        self._open: dict[str, _Shown] = {}
        self._begun = False
        self._failures = 0
        self.live = False
        """Whether the last poll reached the head of the journal."""

    def poll(self, reader: Reader) -> list[Followed]:
        """What is new. If it fails, nothing counts as shown, and the next one shows all of it."""
        before = (self._after, self._begun, {name: one.copy() for name, one in self._open.items()})
        try:
            shown = self._poll(reader)
        except BaseException:
            self._after, self._begun, self._open = before
            raise
        self._failures = 0
        return shown

    def may_retry(self) -> bool:
        """A read fails when its connection is lost; the next one has another, or says why not."""
        self._failures += 1
        return self._failures <= _RETRIES

    def _poll(self, reader: Reader) -> list[Followed]:
        shown: list[Followed] = []
        if not self._begun:
            self._begun = True
            self._find_open(reader)
        for stream in self._open.values():
            self._show_deltas(reader, stream, shown)
        page = reader.entries(self._key, after=self._after, limit=_PAGE)
        if not page and not reader.head_of(self._key):
            raise SessionNotFound("the session does not exist any more; it was erased")
        for entry in page:
            self._show_entry(entry, shown)
            self._after = entry.seq
        self.live = len(page) < _PAGE
        if self.live and page:
            for stream in self._open.values():
                self._show_deltas(reader, stream, shown)
        return shown

    def _find_open(self, reader: Reader) -> None:
        """What streams already at the place where this follower begins is followed too."""
        row = reader.session(self._key)
        if row is not None and row.turn_seq is not None and row.turn_seq <= self._after:
            unseen: list[Followed] = []
            for entry in reader.entries(self._key, after=row.turn_seq - 1, through=self._after):
                self._show_entry(entry, unseen)

    def _show_deltas(self, reader: Reader, stream: _Shown, shown: list[Followed]) -> None:
        for number, flush in reader.deltas(self._key, stream.seq, after=stream.flush):
            stream.flush = number
            for delta in flush:
                self._show(stream, delta, shown)

    def _show(self, stream: _Shown, delta: e.Delta, shown: list[Followed]) -> None:
        known = stream.lengths.get(delta.part)
        fresh = delta.text if known is None else delta.text[max(0, known - delta.offset) :]
        closes = bool(delta.signature or delta.encrypted) and delta.part not in stream.signed
        if known is not None and not fresh and not closes:
            return
        if closes:
            stream.signed.add(delta.part)
        start = known if known is not None else delta.offset
        stream.lengths[delta.part] = start + len(fresh)
        cut = e.Delta(
            delta.part, start, delta.type, fresh, delta.head, delta.signature, delta.encrypted
        )
        shown.append(
            e.FollowedDelta(stream.seq, stream.turn_id, stream.message_id, stream.call_id, cut)
        )

    def _show_entry(self, entry: e.Entry, shown: list[Followed]) -> None:
        match entry.body:
            case e.MessageStarted() as body:
                self._open[body.id] = _Shown(entry.seq, body.turn_id, body.id, None)
            case e.MessageEnded() as body:
                self._finish(body.id, _deltas_of(body.parts), shown)
            case e.ToolStarted() as body:
                name = _tool_name(body.message_id, body.call_id)
                self._open[name] = _Shown(entry.seq, body.turn_id, body.message_id, body.call_id)
            case e.ToolOutput() as body:
                name = _tool_name(body.message_id, body.call_id)
                self._finish(name, [e.Delta(0, 0, "output", body.output)], shown)
            case e.ToolFinished() as body:
                name = _tool_name(body.message_id, body.result.call_id)
                self._finish(name, _output_of(body), shown)
            case e.TurnEnded() as body:
                ended = [name for name, one in self._open.items() if one.turn_id == body.turn_id]
                for name in ended:
                    del self._open[name]
            case _:
                pass
        shown.append(entry)

    def _finish(self, name: str, whole: Sequence[e.Delta], shown: list[Followed]) -> None:
        stream = self._open.pop(name, None)
        if stream is not None and stream.lengths:
            for delta in whole:
                self._show(stream, delta, shown)


def follow_once(follower: Follower) -> Flow[list[Followed]]:
    """One look, for both faces; across a lost connection nothing is missed or shown twice."""
    while True:
        try:
            return (yield from read(follower.poll))
        except StoreDegraded:
            if not follower.may_retry():
                raise


def _tool_name(message_id: str, call_id: str) -> str:
    return f"{len(message_id)}:{message_id}{call_id}"


def _output_of(body: e.ToolFinished) -> list[e.Delta]:
    text = body.output
    if text is None and isinstance(body.result.content, str):
        text = body.result.content  # the output was the result, so it is stored once
    return [] if text is None else [e.Delta(0, 0, "output", text)]


def _deltas_of(parts: Sequence[Part]) -> tuple[e.Delta, ...]:
    """A message's parts as deltas from the beginning."""
    deltas = []
    for number, part in enumerate(parts):
        if isinstance(part, Text):
            deltas.append(e.Delta(number, 0, "text", part.text))
        elif isinstance(part, Reasoning):
            deltas.append(
                e.Delta(number, 0, "reasoning", part.text, None, part.signature, part.encrypted)
            )
        elif isinstance(part, ToolCall):
            head = ToolCall(part.id, part.name, "", part.tool_type)
            deltas.append(e.Delta(number, 0, "arguments", part.arguments, head))
        else:
            deltas.append(e.Delta(number, 0, "part", "", part))
    return merge(deltas)
