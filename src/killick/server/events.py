"""A session as it happens, as server-sent events."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from killick.errors import KillickError
from killick.server.endpoint import SESSION, ApiCall, Operation
from killick.server.hub import Client, event_bytes, reload_bytes
from killick.server.responses import encode_line, explain
from killick.server.schemas import EventQuery, Failure, NewsQuery
from killick.server.service import Service
from killick.session.aio import AsyncSession
from killick.session.aio_feeds import AsyncFollowing, AsyncStoreFollowing
from killick.session.news import News

LAST_EVENT = "Last-Event-ID"
_RETRY = b"retry: 1000\n\n"


async def events(call: ApiCall) -> Response:
    """Entries and deltas from the beginning, or from a cursor on, as they come.

    Each event's id is a cursor; `Last-Event-ID`, or `after`, goes on behind it, mid-message too.
    """
    query: EventQuery = call.query
    after = call.request.headers.get(LAST_EVENT) or query.after or "0"
    session = await call.service.store.session(call.session_id)
    following = session.follow(after=after)
    client = call.admit_stream()
    return EventStream(call.service, session, following, client)


class EventStream(Response):
    """An answer that goes on until the client or the server ends it."""

    def __init__(
        self,
        service: Service,
        session: AsyncSession,
        following: AsyncFollowing,
        client: Client,
    ) -> None:
        super().__init__(
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        del self.headers["content-length"]
        self._serving = service
        self._session = session
        self._following = following
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = self._client
        leaving = asyncio.ensure_future(until_gone(receive, client))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _send(send, _RETRY)
            await self._stream(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._serving.hub.let_go(client)
            client.end()
            leaving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leaving
            await self._following.aclose()

    async def _stream(self, send: Send) -> None:
        client, hub = self._client, self._serving.hub
        following = self._following
        try:
            if following.place.after > self._session.head:
                await _send(send, reload_bytes("invalid_cursor", "It is from elsewhere."))
                return
            while not client.over and await self._catch_up(send):
                pass
            with hub.listening(self._session, client):
                while not client.over and await self._catch_up(send):
                    pass
                client.go_live(following.place)
                while (data := await client.next()) is not None:
                    await _send(send, data)
            if client.last_words is not None:
                hub.reloads += 1
                await _send(send, client.last_words)
        except KillickError as error:
            _, failure = explain(error)
            await _send(send, reload_bytes(failure.code, failure.message))

    async def _catch_up(self, send: Send) -> bool:
        """Send what the journal has, a page of it; False when there is nothing more now."""
        seen = await self._following.now()
        for start in range(0, len(seen), 50):
            await _send(send, b"".join(event_bytes(item) for item in seen[start : start + 50]))
        return bool(seen)


async def news(call: ApiCall) -> Response:
    """Send what a person acts on in all sessions, as it happens; `waiting`: what waits now first.

    Each event's id is a cursor; `Last-Event-ID`, or `after`, goes on behind it.
    """
    query: NewsQuery = call.query
    cursor = call.request.headers.get(LAST_EVENT) or query.after
    after = 0 if cursor in (None, "0") else cursor
    following = call.service.store.follow(after=after, waiting=query.waiting and cursor is None)
    first = await following.now()  # a cursor that is none is refused before the answer begins
    client = call.admit_stream()
    lines = _news_lines(following, first)
    return PulledStream(call.service, lines, client, failed=_reload)


async def _news_lines(
    following: AsyncStoreFollowing, first: list[News]
) -> AsyncGenerator[bytes, None]:
    try:
        yield b"".join(map(news_bytes, first))
        async for line in following:
            yield news_bytes(line)
    finally:
        await following.aclose()


def _reload(failure: Failure) -> bytes:
    return reload_bytes(failure.code, failure.message)


class PulledStream(Response):
    """Pieces of a stream, made no faster than the client takes them, until either side ends it.

    `failed` makes the last piece of a store that fails.
    """

    def __init__(
        self,
        service: Service,
        pieces: AsyncGenerator[bytes, None],
        client: Client,
        *,
        failed: Callable[[Failure], bytes],
    ) -> None:
        super().__init__(
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        del self.headers["content-length"]
        self._serving = service
        self._pieces = pieces
        self._client = client
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hub, client = self._serving.hub, self._client
        leaving = asyncio.ensure_future(until_gone(receive, client))
        reading = asyncio.ensure_future(self._read(client))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _send(send, _RETRY)
            with hub.present(client):
                while (data := await client.next()) is not None:
                    await _send(send, data)
            if client.last_words is not None:
                await _send(send, client.last_words)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            hub.let_go(client)
            client.end()
            for task in (leaving, reading):
                task.cancel()
            await asyncio.gather(leaving, reading, return_exceptions=True)
            await self._pieces.aclose()

    async def _read(self, client: Client) -> None:
        try:
            async for data in self._pieces:
                client.give(data)
                await client.taken()
            client.end()
        except KillickError as error:
            client.end(self._failed(explain(error)[1]))


def news_bytes(line: News) -> bytes:
    """One event: its id is the cursor that goes on after it, its name is the kind."""
    shown = {"session_id": line.session_id, "seq": line.seq, "kind": line.kind, "cause": line.cause}
    name = line.kind.encode()
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (line.cursor.encode(), name, encode_line(shown))


async def _send(send: Send, data: bytes) -> None:
    """Wait until the client's connection takes it: that is how a slow one is slow alone."""
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def until_gone(receive: Receive, client: Client) -> None:
    """End a client's stream when its connection is gone."""
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()
    client.end()


OPERATIONS = (
    Operation("GET", "/api/news", news, {200: "text/event-stream"}, query=NewsQuery,
              headers=(LAST_EVENT,)),
    Operation("GET", SESSION + "/events", events, {200: "text/event-stream"}, query=EventQuery,
              headers=(LAST_EVENT,), errors=(404, 410)),
)  # fmt: skip
