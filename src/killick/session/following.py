"""A session as it happens: entries in order, and the deltas of what is open, without gap or repeat.

Deltas exist until their stream ends. A follower that has shown some of them shows the rest before
the entry that ends the stream, taken from that entry; so the deltas it shows always make the text.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from killick.errors import InvalidCursor, KillickError, SessionNotFound, StoreDegraded
from killick.model import entries as e
from killick.session.place import OpenStream, Place, Seen
from killick.session.runtime import Runtime
from killick.session.steps import Flow, Pause, read
from killick.stores.base import Reader

T = TypeVar("T")

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


class Follower:
    """Remembers what was shown; each `poll` returns what is new as of one moment."""

    def __init__(self, key: int, after: int | str) -> None:
        self._key = key
        self._begun = False
        self.place = Place(after)
        self.live = False
        """Whether the last poll reached the head of the journal."""

    def poll(self, reader: Reader) -> list[Seen]:
        """What is new. If it fails, nothing counts as shown, and the next one shows all of it."""
        before = self._begun, self.place.copy()
        try:
            return self._poll(reader)
        except BaseException:
            self._begun, self.place = before
            raise

    def _poll(self, reader: Reader) -> list[Seen]:
        seen: list[Seen] = []
        place = self.place
        if not self._begun:
            self._begun = True
            self._find_open(reader)
        self._show_open(reader, seen)
        head = reader.head_of(self._key)
        if not head:
            raise SessionNotFound("the session does not exist any more; it was erased")
        if head < place.after:  # what is written next would be passed over
            raise InvalidCursor(
                f"after={place.after} is beyond the end of this session, which has {head} entries; "
                "it is from another session, or from a copy that knew more"
            )
        self.live = head == place.after
        if self.live:
            return seen
        page = reader.entries(self._key, after=place.after, limit=_PAGE)
        for entry in page:
            seen += place.take(entry)
        self.live = len(page) < _PAGE
        if self.live:
            self._show_open(reader, seen)
        return seen

    def _find_open(self, reader: Reader) -> None:
        """What streams already at the place where this follower begins is followed too."""
        place = self.place
        row = reader.session(self._key)
        if row is not None and row.turn_seq is not None and row.turn_seq <= place.after:
            for entry in reader.entries(self._key, after=row.turn_seq - 1, through=place.after):
                place.find_again(entry)
        found = {stream.seq for stream in place.open.values()}
        for seq in place.begun:
            if seq not in found and seq <= place.after:  # its turn has ended since
                for entry in reader.entries(self._key, after=seq - 1, limit=1):
                    if isinstance(entry.body, e.MessageStarted | e.ToolStarted):
                        place.find_again(entry)

    def _show_open(self, reader: Reader, seen: list[Seen]) -> None:
        for stream in self.place.open.values():
            self._show_deltas(reader, stream, seen)

    def _show_deltas(self, reader: Reader, stream: OpenStream, seen: list[Seen]) -> None:
        for number, flush in reader.deltas(self._key, stream.seq, after=stream.flush):
            stream.flush = number
            for delta in flush:
                self.place.show(stream, delta, seen)


class Fed(NamedTuple):
    """What is new in one of the sessions of a feed; `error` says why nothing more will come."""

    session_id: str
    seen: list[Seen]
    error: KillickError | None = None


class FeedCore:
    """Many sessions as they happen, read together: one look at the store serves all of them.

    What a look has found stays here until somebody takes it: who is cancelled meanwhile loses
    nothing.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._followers: dict[str, Follower] = {}
        self._ends: dict[str, Callable[[], None]] = {}
        self._found: list[Fed] = []
        self.live = True

    def follow(self, session_id: str, follower: Follower, end: Callable[[], None]) -> None:
        """Add a session; `end` is called when it is followed no longer."""
        self.unfollow(session_id)
        with self._mutex:
            self._followers[session_id], self._ends[session_id] = follower, end

    def unfollow(self, session_id: str) -> None:
        with self._mutex:
            self._found = [one for one in self._found if one.session_id != session_id]
        self._forget(session_id)

    def poll(self, reader: Reader) -> None:
        """Find what is new in any of them."""
        with self._mutex:
            followers = list(self._followers.items())
        live = True
        for session_id, follower in followers:
            try:
                seen = follower.poll(reader)
            except StoreDegraded:
                if not self._found:
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
        """What was found and nobody has taken yet."""
        with self._mutex:
            found, self._found = self._found, []
        return found

    def _find(self, fed: Fed) -> None:
        with self._mutex:
            self._found.append(fed)

    def _forget(self, session_id: str) -> None:
        with self._mutex:
            self._followers.pop(session_id, None)
            end = self._ends.pop(session_id, None)
        if end is not None:
            end()
