"""Sessions as they happen, for many clients: the store is read once for all of them.

A client is first given what it does not have, from the journal, at its own pace. Then it listens to
the hub, whose one feed follows every session with a client. Its cursor says what of an item is new
to it, so nothing is missed or sent twice where the two meet.
"""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, cast

from killick.model import entries as e
from killick.server.log import Log, cause
from killick.server.responses import Refused, encode_line, explain
from killick.server.schemas import DeltaEvent, EntryEvent, ReloadEvent, time_text
from killick.session.aio import AsyncSession, AsyncStore
from killick.session.aio_feeds import AsyncFeed
from killick.session.follow import Cursor, Fed, FollowedItem

QUEUE_BYTES: Final = 1024 * 1024
"""What may wait for one client; one that is further behind is told to reload."""

BEAT: Final = b": beat\n\n"
_LOOK_AGAIN_SECONDS: Final = 0.5


class _Told(NamedTuple):
    """An item as it goes over the wire."""

    seen: FollowedItem
    data: bytes


def event_bytes(seen: FollowedItem) -> bytes:
    """One event: its id is the cursor that goes on after it, its name is the kind."""
    item = seen.item
    event: EntryEvent | DeltaEvent
    if isinstance(item, e.Entry):
        at = time_text(item.at_us) or ""
        # A kind that this version does not know goes out as it is stored: nothing checks it here.
        body = cast("e.KnownBody", item.body)
        event = EntryEvent(kind=item.kind, seq=item.seq, at=at, body=body)
    else:
        delta = item.delta
        event = DeltaEvent(
            seq=item.seq,
            turn_id=item.turn_id,
            message_id=item.message_id,
            call_id=item.call_id,
            part=delta.part,
            offset=delta.offset,
            type=delta.type,
            text=delta.text,
            head=delta.head,
        )
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (
        seen.cursor.encode(),
        event.kind.encode(),
        encode_line(event),
    )


def reload_bytes(code: str, message: str) -> bytes:
    event = ReloadEvent(code=code, message=message)
    return b"event: reload\ndata: %b\n\n" % encode_line(event)


class Client:
    """One stream of events on its way to a client."""

    def __init__(self, allowed: Callable[[], bool] = lambda: True, token_id: str = "") -> None:
        self.allowed = allowed
        self.token_id = token_id
        self._waiting: deque[bytes | _Told] = deque()
        self._size = 0
        self._wake = asyncio.Event()
        self._taken = asyncio.Event()
        self._cursor: Cursor | None = None
        self.last_words: bytes | None = None
        self.over = False

    def tell(self, event: _Told) -> None:
        """Something has happened. Costs the same whether or not the client reads."""
        if self.over:
            return
        if self._cursor is None:
            self._add(event, len(event.data))
            return
        self._add_new(event, self._cursor)

    def give(self, data: bytes) -> None:
        """Send something that needs no cursor of ours."""
        if data and not self.over:
            self._add(data, len(data))

    def beat(self) -> None:
        if not self._waiting:
            self._add(BEAT, len(BEAT))

    def end(self, last_words: bytes | None = None) -> None:
        """Nothing more will come; `last_words` say why."""
        if not self.over:
            self.over = True
            self.last_words = last_words
            self._wake.set()
            self._taken.set()

    def go_live(self, cursor: Cursor) -> None:
        """Everything up to this place was sent; what waits beyond it is sent too."""
        waiting = [item for item in self._waiting if isinstance(item, _Told)]
        self._waiting.clear()
        self._size = 0
        self._cursor = cursor
        for event in waiting:
            self._add_new(event, cursor)

    async def next(self) -> bytes | None:
        """Return what waits, in one piece; None at the end."""
        while not self._waiting:
            if self.over:
                return None
            self._wake.clear()
            await self._wake.wait()
        pieces = [item if isinstance(item, bytes) else item.data for item in self._waiting]
        self._waiting.clear()
        self._size = 0
        self._taken.set()
        return b"".join(pieces)

    async def taken(self) -> None:
        """Wait until all that was given is on its way, or nothing more will be."""
        while self._waiting and not self.over:
            self._taken.clear()
            await self._taken.wait()

    def _add_new(self, event: _Told, cursor: Cursor) -> None:
        for seen in cursor.take(event.seen.item):
            data = event.data if seen == event.seen else event_bytes(seen)
            self._add(data, len(data))

    def _add(self, item: bytes | _Told, size: int) -> None:
        self._waiting.append(item)
        self._size += size
        if self._size > QUEUE_BYTES:
            self._waiting.clear()
            self._size = 0
            self.end(reload_bytes("too_far_behind", "You are too far behind; load it anew."))
        self._wake.set()


class StreamPlaces:
    """How many streams a server may have open, for the clients of all its tenants together."""

    def __init__(self, most: int = 1_000) -> None:
        self.most = most
        self.taken = 0


class Hub:
    """The clients of each session, and the one feed for all of them."""

    def __init__(
        self,
        store: AsyncStore,
        log: Log,
        *,
        places: StreamPlaces | None = None,
        max_of_token: int = 200,
        beat_seconds: float = 15.0,
    ) -> None:
        self._store = store
        self._log = log
        self._places = places or StreamPlaces()
        self._max_of_token = max_of_token
        self._of_tokens: Counter[str] = Counter()
        self._beat_seconds = beat_seconds
        self._clients: dict[str, set[Client]] = {}
        self._feed: AsyncFeed | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False
        self._streams = 0
        self.told = 0
        self.reloads = 0

    @property
    def streams(self) -> int:
        return self._streams

    def start(self) -> None:
        self._feed = self._store.feed()
        self._tasks = [
            asyncio.create_task(self._pump(self._feed), name="killick-hub"),
            asyncio.create_task(self._beat(), name="killick-beat"),
        ]

    async def close(self) -> None:
        """Tell what has happened so far, end every stream so that clients go elsewhere, stop."""
        if self._closed:
            return
        self._closed = True
        if self._feed is None:
            return  # it was never started
        self._feed.wake()
        pump, beat = self._tasks
        beat.cancel()
        await asyncio.wait({pump}, timeout=1.0)
        pump.cancel()
        for clients in list(self._clients.values()):
            for client in list(clients):
                client.end()
        await asyncio.gather(pump, beat, return_exceptions=True)
        await self._feed.aclose()

    def admit(self, token_id: str, allowed: Callable[[], bool]) -> Client:
        """Count one more stream. Raises Refused when there are too many, or none are taken."""
        if self._closed:
            raise Refused(503, "shutting_down", "This server is shutting down; ask again.")
        if self._places.taken >= self._places.most:
            raise Refused(
                503, "too_many_streams", "Too many streams are open here; close one, or wait.",
                headers={"Retry-After": "5"},
            )  # fmt: skip
        if token_id and self._of_tokens[token_id] >= self._max_of_token:
            raise Refused(
                429, "too_many_streams", "This token has too many streams open; close one.",
                headers={"Retry-After": "5"},
            )  # fmt: skip
        self._streams += 1
        self._places.taken += 1
        self._of_tokens[token_id] += 1
        return Client(allowed, token_id)

    def let_go(self, client: Client) -> None:
        self._streams -= 1
        self._places.taken -= 1
        self._of_tokens[client.token_id] -= 1

    @contextlib.contextmanager
    def present(self, client: Client) -> Iterator[None]:
        """Keep a client's connection, of no session in particular, for as long as this lasts."""
        clients = self._clients.setdefault("", set())
        clients.add(client)
        try:
            yield
        finally:
            clients.discard(client)

    @contextlib.contextmanager
    def listening(self, session: AsyncSession, client: Client) -> Iterator[None]:
        """Have a client told what happens in a session, for as long as this lasts."""
        assert self._feed is not None
        clients = self._clients.setdefault(session.id, set())
        if not clients:
            self._feed.follow(session, after=session.head)
        clients.add(client)
        try:
            yield
        finally:
            clients.discard(client)
            if not clients and self._clients.get(session.id) is clients:
                del self._clients[session.id]
                self._feed.unfollow(session.id)

    async def _pump(self, feed: AsyncFeed) -> None:
        last = False
        while not last:
            last = self._closed
            try:
                batch = await feed.now()
            except Exception as error:  # noqa: BLE001  (said, and looked at again)
                self._log.warning("feed_failed", **cause(error))
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
                continue
            began = time.monotonic()
            for fed in batch:
                try:
                    self._tell(fed)
                except Exception as error:  # noqa: BLE001  (one session; the others go on)
                    self._log.warning("telling_failed", session=fed.session_id, **cause(error))
                    self._end(fed.session_id, error)
            if not self._closed:
                # Never more than half of the time: what comes meanwhile comes together.
                await asyncio.sleep(max(0.002, time.monotonic() - began))
                await feed.pause()

    def _tell(self, fed: Fed) -> None:
        clients = self._clients.get(fed.session_id, ())
        for seen in fed.seen:
            event = _Told(seen, event_bytes(seen))
            for client in clients:
                client.tell(event)
            self.told += len(clients)
        if fed.error is not None:
            self._end(fed.session_id, fed.error)

    def _end(self, session_id: str, error: Exception) -> None:
        """This session is followed no longer; who comes anew, while these still leave, is told."""
        assert self._feed is not None
        self._feed.unfollow(session_id)
        _, failure = explain(error)
        for client in self._clients.pop(session_id, ()):
            client.end(reload_bytes(failure.code, failure.message))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._beat_seconds)
            for clients in list(self._clients.values()):
                for client in list(clients):
                    client.beat()
                    if not client.allowed():
                        client.end()
