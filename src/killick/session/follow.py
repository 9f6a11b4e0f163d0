"""Following: how much of a session a reader was shown, and what of the next item is new.

A cursor is every entry through a seq, and of the streams that were open there, how far each part
was shown. By its text form a follower goes on later, in the middle of a message too, in any
process.
"""

import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from killick.errors import InvalidCursor, KillickError, SessionNotFound, StoreDegraded
from killick.journal.assembly import merge
from killick.journal.checks import check_count
from killick.model import entries as e
from killick.model.messages import Part, Reasoning, Text, ToolCall
from killick.session.drive.steps import Flow, Pause, read
from killick.session.runtime import Runtime
from killick.stores.contract import Reader

Followed = e.Entry | e.FollowedDelta


class FollowedItem(NamedTuple):
    """Something that is shown, and the cursor that goes on after it."""

    item: Followed
    cursor: str


_CURSOR_CHARS_MAX: Final = 2_000
"""A longer cursor names no lengths: the open streams are then shown again from their beginning."""

_NUMBER: Final = r"[0-9]{1,15}"
_PART: Final = rf"{_NUMBER}:{_NUMBER}s?"
_CURSOR: Final = re.compile(rf"{_NUMBER}(~{_NUMBER}(\.{_PART})+)*")


class OpenStream:
    """One open stream, as far as it was shown: the length of each part, and which are closed."""

    __slots__ = ("call_id", "flush", "lengths", "message_id", "seq", "signed", "turn_id")

    def __init__(self, seq: int, turn_id: str, message_id: str, call_id: str | None) -> None:
        self.seq = seq
        self.turn_id = turn_id
        self.message_id = message_id
        self.call_id = call_id
        self.flush = 0
        self.lengths: dict[int, int] = {}
        self.signed: set[int] = set()

    def copy(self) -> "OpenStream":
        copied = OpenStream(self.seq, self.turn_id, self.message_id, self.call_id)
        copied.flush, copied.lengths, copied.signed = self.flush, {**self.lengths}, {*self.signed}
        return copied

    def __str__(self) -> str:
        parts = "".join(
            f".{part}:{length}{'s' if part in self.signed else ''}"
            for part, length in self.lengths.items()
        )
        return f"~{self.seq}{parts}" if parts else ""


class Cursor:
    """Everything through `after`, and part of what is open there. `str()` gives the cursor."""

    def __init__(self, after: int | str = 0) -> None:
        self.after, self.begun = _parse(after)
        self.open: dict[str, OpenStream] = {}

    def __str__(self) -> str:
        text = f"{self.after}" + "".join(map(str, self.open.values()))
        return text if len(text) <= _CURSOR_CHARS_MAX else f"{self.after}"

    def copy(self) -> "Cursor":
        copied = Cursor(self.after)
        copied.begun = self.begun
        copied.open = {name: stream.copy() for name, stream in self.open.items()}
        return copied

    def find_again(self, entry: e.Entry) -> None:
        """An entry from before this place: what it opens was open, what it ends was not."""
        match entry.body:
            case e.MessageStarted() as body:
                self._open(OpenStream(entry.seq, body.turn_id, body.id, None))
            case e.ToolStarted() as body:
                self._open(OpenStream(entry.seq, body.turn_id, body.message_id, body.call_id))
            case _:
                for name in self.ended_by(entry.body):
                    del self.open[name]

    def take(self, item: Followed) -> list[FollowedItem]:
        """Return what of this item was not shown yet; text missing before an ending comes first."""
        seen: list[FollowedItem] = []
        if isinstance(item, e.Entry):
            if item.seq > self.after:
                self._take_entry(item, seen)
            return seen
        stream = self.open.get(name_of(item.message_id, item.call_id))
        if stream is not None and stream.seq == item.seq:
            self.show(stream, item.delta, seen, item)
        return seen

    def show(
        self,
        stream: OpenStream,
        delta: e.Delta,
        seen: list[FollowedItem],
        whole: e.FollowedDelta | None = None,
    ) -> None:
        """Add what is new in a delta; `whole` is used as it is if all of it is."""
        known = stream.lengths.get(delta.part)
        fresh = delta.text if known is None else delta.text[max(0, known - delta.offset) :]
        closes = bool(delta.signature or delta.encrypted) and delta.part not in stream.signed
        if known is not None and not fresh and not closes:
            return
        if closes:
            stream.signed.add(delta.part)
        start = known if known is not None else delta.offset
        stream.lengths[delta.part] = start + len(fresh)
        if whole is None or len(fresh) != len(delta.text):
            cut = e.Delta(
                delta.part, start, delta.type, fresh, delta.head, delta.signature, delta.encrypted
            )
            whole = e.FollowedDelta(
                stream.seq, stream.turn_id, stream.message_id, stream.call_id, cut
            )
        seen.append(FollowedItem(whole, str(self)))

    def _take_entry(self, entry: e.Entry, seen: list[FollowedItem]) -> None:
        for name in self.ended_by(entry.body):
            stream = self.open[name]
            if stream.lengths:
                for delta in _whole(entry.body):
                    self.show(stream, delta, seen)
            del self.open[name]
        self.after = entry.seq
        if isinstance(entry.body, e.MessageStarted | e.ToolStarted):
            self.find_again(entry)
        seen.append(FollowedItem(entry, str(self)))

    def _open(self, stream: OpenStream) -> None:
        for part, (length, signed) in self.begun.get(stream.seq, {}).items():
            stream.lengths[part] = length
            if signed:
                stream.signed.add(part)
        self.open[name_of(stream.message_id, stream.call_id)] = stream

    def ended_by(self, body: e.Body) -> list[str]:
        """Return the names of the open streams that this entry ends."""
        match body:
            case e.MessageEnded():
                name = name_of(body.id, None)
            case e.ToolOutput():
                name = name_of(body.message_id, body.call_id)
            case e.ToolFinished():
                name = name_of(body.message_id, body.result.call_id)
            case e.TurnEnding():
                return [
                    name for name, stream in self.open.items() if stream.turn_id == body.turn_id
                ]
            case _:
                return []
        return [name] if name in self.open else []


_Lengths = dict[int, tuple[int, bool]]


def _parse(after: int | str) -> tuple[int, dict[int, _Lengths]]:
    """The seq of a cursor, and how far each stream was shown that was open there."""
    if not isinstance(after, str):
        check_count("after", after)
        return after, {}
    if not _CURSOR.fullmatch(after):
        raise InvalidCursor(f"{after[:80]!r} is no cursor; give a seq, or a cursor of a follower")
    seq, *streams = after.split("~")
    begun: dict[int, _Lengths] = {}
    for stream in streams:
        number, *parts = stream.split(".")
        begun[int(number)] = lengths = {}
        for part in parts:
            index, _, length = part.partition(":")
            lengths[int(index)] = int(length.rstrip("s")), length.endswith("s")
    return int(seq), begun


def name_of(message_id: str, call_id: str | None) -> str:
    """Return the name of an open stream: of a message, or of what a tool prints."""
    return message_id if call_id is None else f"{len(message_id)}:{message_id}{call_id}"


def _whole(body: e.Body) -> Sequence[e.Delta]:
    """The text that an ending carries, as deltas from the beginning."""
    match body:
        case e.MessageEnded():
            return deltas_of(body.parts)
        case e.ToolOutput():
            return [e.Delta(0, 0, "output", body.output)]
        case e.ToolFinished():
            return output_of(body)
        case _:
            return ()


def output_of(body: e.ToolFinished | e.LateResult) -> list[e.Delta]:
    """Return what a tool printed, or else the text of its result, as a delta."""
    text = body.output
    if text is None and isinstance(body.result.content, str):
        text = body.result.content  # the output was the result, so it is stored once
    return [] if text is None else [e.Delta(0, 0, "output", text)]


def deltas_of(parts: Sequence[Part]) -> tuple[e.Delta, ...]:
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


T = TypeVar("T")
Seen = TypeVar("Seen")

_PAGE: Final = 500
_LOST_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.05


def look(runtime: Runtime, poll: Callable[[Reader], T]) -> Flow[T]:
    """One look, for both faces. One whose connection was lost is made again, as often as it takes;
    what is not mended after some seconds is raised."""
    until: float | None = None
    while True:
        since = runtime.watcher.generation
        try:
            return (yield from read(poll))
        except StoreDegraded:
            now = time.monotonic()
            until = until or now + _LOST_SECONDS
            if now > until:
                raise
        yield Pause(since, _AGAIN_SECONDS)


class AnyFollower(Generic[Seen]):
    """Remembers what was shown; each `poll` returns what is new as of one moment."""

    cursor: Cursor

    def __init__(self, key: int, after: int | str) -> None:
        self._key = key
        self._begun = False
        self.key = key
        self.cursor = self._cursor(after)
        self.live = False
        """Whether the last poll reached the head of the journal."""

    def _cursor(self, after: int | str) -> Cursor:
        raise NotImplementedError

    def _take(self, reader: Reader, entry: e.Entry, seen: list[Seen]) -> None:
        raise NotImplementedError

    def _show_deltas(self, reader: Reader, stream: OpenStream, seen: list[Seen]) -> None:
        raise NotImplementedError

    def poll(self, reader: Reader) -> list[Seen]:
        """Return what is new. If it fails, nothing counts as shown: the next poll returns all."""
        before = self._begun, self.cursor.copy()
        try:
            return self._poll(reader)
        except BaseException:
            self._begun, self.cursor = before
            raise

    def _poll(self, reader: Reader) -> list[Seen]:
        seen: list[Seen] = []
        cursor = self.cursor
        if not self._begun:
            self._begun = True
            self._find_open(reader)
        self._show_open(reader, seen)
        head = reader.head_of(self._key)
        if not head:
            raise SessionNotFound("the session does not exist any more; it was erased")
        if head < cursor.after:  # what is written next would be passed over
            raise InvalidCursor(
                f"after={cursor.after} is beyond the end of this session, which has {head} "
                "entries; it is from another session, or from a copy that knew more"
            )
        self.live = head == cursor.after
        if self.live:
            return seen
        page = reader.entries(self._key, after=cursor.after, limit=_PAGE)
        for entry in page:
            self._take(reader, entry, seen)
        self.live = len(page) < _PAGE
        if self.live:
            self._show_open(reader, seen)
        return seen

    def _find_open(self, reader: Reader) -> None:
        """Find the streams that were open where this follower begins."""
        cursor = self.cursor
        row = reader.session(self._key)
        if row is not None and row.turn_seq is not None and row.turn_seq <= cursor.after:
            for entry in reader.entries(self._key, after=row.turn_seq - 1, through=cursor.after):
                cursor.find_again(entry)
        open_seqs = {stream.seq for stream in cursor.open.values()}
        for seq in cursor.begun:
            if seq not in open_seqs and seq <= cursor.after:  # its turn has ended since
                for entry in reader.entries(self._key, after=seq - 1, limit=1):
                    if isinstance(entry.body, e.MessageStarted | e.ToolStarted):
                        cursor.find_again(entry)

    def _show_open(self, reader: Reader, seen: list[Seen]) -> None:
        for stream in self.cursor.open.values():
            self._show_deltas(reader, stream, seen)


class Follower(AnyFollower[FollowedItem]):
    """Follows entries, and deltas as they come."""

    def _cursor(self, after: int | str) -> Cursor:
        return Cursor(after)

    def _take(self, reader: Reader, entry: e.Entry, seen: list[FollowedItem]) -> None:
        seen += self.cursor.take(entry)

    def _show_deltas(self, reader: Reader, stream: OpenStream, seen: list[FollowedItem]) -> None:
        for number, flush in reader.deltas(self._key, stream.seq, after=stream.flush):
            stream.flush = number
            for delta in flush:
                self.cursor.show(stream, delta, seen)


class Fed(NamedTuple):
    """News of one session of a feed; `error` says why nothing more will come."""

    session_id: str
    seen: list[FollowedItem]
    error: KillickError | None = None


class FeedCore:
    """Many sessions as they happen, read together: one look at the store serves all of them.

    What a look has found stays here until a caller takes it: one that is cancelled loses nothing.
    """

    def __init__(self, has_moved: Callable[[int, int], bool]) -> None:
        self._mutex = threading.Lock()
        self._has_moved = has_moved
        self.since = 0
        """The generation before the look that is made, or was made last."""
        self._looked: dict[Follower, int] = {}
        self._followers: dict[str, Follower] = {}
        self._ends: dict[str, Callable[[], None]] = {}
        self._news: list[Fed] = []
        self.live = True

    def follow(self, session_id: str, follower: Follower, end: Callable[[], None]) -> None:
        """Add a session; `end` is called when it is followed no longer."""
        self.unfollow(session_id)
        with self._mutex:
            self._followers[session_id], self._ends[session_id] = follower, end

    def unfollow(self, session_id: str) -> None:
        with self._mutex:
            self._news = [fed for fed in self._news if fed.session_id != session_id]
        self._forget(session_id)

    def poll(self, reader: Reader) -> None:
        """Find what is new in any of them."""
        with self._mutex:
            followers = list(self._followers.items())
        live, since = True, self.since
        for session_id, follower in followers:
            looked = self._looked.get(follower) if follower.live else None
            if looked is not None and not self._has_moved(looked, follower.key):
                continue
            try:
                seen = follower.poll(reader)
                self._looked[follower] = since
            except StoreDegraded:
                if not self._news:
                    raise
                live = False  # the connection is lost, not the session: it is looked at again
                break
            except KillickError as error:  # erased or damaged: the others go on
                if self._followers.get(session_id) is follower:
                    self._forget(session_id)
                self._find(Fed(session_id, [], error))
                continue
            live = live and follower.live
            if seen:
                self._find(Fed(session_id, seen))
        self.live = live

    def take(self) -> list[Fed]:
        """Return what was found and not taken yet."""
        with self._mutex:
            news, self._news = self._news, []
        return news

    def _find(self, fed: Fed) -> None:
        with self._mutex:
            self._news.append(fed)

    def _forget(self, session_id: str) -> None:
        with self._mutex:
            follower = self._followers.pop(session_id, None)
            if follower is not None:
                self._looked.pop(follower, None)
            end = self._ends.pop(session_id, None)
        if end is not None:
            end()
