"""Requests in, requests on, answers back; a copy of each to the recorder.

A request waits for one commit, that of what it brings. Chunks of the answer pass as they come; the
last event passes after the message is durable.
"""

import asyncio
import contextlib
import json
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    MutableMapping,
)
from typing import Any, Final, Literal, NoReturn, TypeVar

import msgspec

from killick.errors import ConflictError, KillickError, StoreError, TurnStopped
from killick.model.messages import ToolCall
from killick.proxy.conversations import Conversations
from killick.proxy.request import ModelRequest, NotUnderstood, read_request
from killick.proxy.threads import Exchange
from killick.proxy.upstream import FAILURES, Answer, Upstream
from killick.proxy.wire import (
    Decoder,
    Route,
    Unreadable,
    decoder_of,
    error_body,
    header,
    is_websocket,
    may_be_relied_on,
    parent_of,
    passed_on,
    route_of,
    shape_of,
    source_of,
)
from killick.recorders.model_call import Shape
from killick.server.auth import Guard, May, Tokens
from killick.server.log import Log, cause
from killick.server.metrics import PLAIN, FigureValues, render, single
from killick.server.responses import Refused

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
WhenDegraded = Literal["pass", "refuse"]
T = TypeVar("T")

_ENDS_AT_ONCE: Final = frozenset({"anthropic", "openai-responses"})
"""Shapes whose end mark is their last event; the others count tokens after it."""
_LAST_WORDS_SECONDS: Final = 0.5
"""How long the end of an answer is held back for what follows its end mark."""
_COPY_BYTES: Final = 64 * 1024 * 1024
"""A whole response over this is passed on and not recorded."""
_PLAIN: Final = PLAIN.encode()


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a proxy that can be set; each has a default that is meant."""

    upstream: str
    host: str = "127.0.0.1"
    port: int = 8421
    allowed_hosts: tuple[str, ...] = ()
    needs_token: bool = False
    when_degraded: WhenDegraded = "pass"
    cancel_upstream: bool = False
    abandon_seconds: float = 1_800.0
    drain_seconds: float = 5.0
    record: bool = True


class ProxyCounts(msgspec.Struct):
    """Counts of what has happened so far."""

    requests: int = 0
    recorded: int = 0
    passed_through: int = 0
    not_understood: int = 0
    degraded: int = 0
    refused: int = 0
    upstream_failed: int = 0
    upstream_cut: int = 0
    clients_gone: int = 0
    abandoned: int = 0


_MEANINGS: Final = {
    "requests": "Requests that were let in.",
    "recorded": "Requests to a model whose prompt was recorded.",
    "passed_through": "Requests that are none to a model.",
    "not_understood": "Requests to a model that could not be read, and passed unrecorded.",
    "degraded": "Requests and answers that the store could not take.",
    "refused": "Requests of a wrong host, of another site, or without a token.",
    "upstream_failed": "Requests for which the model's server was not reached.",
    "upstream_cut": "Answers that broke off.",
    "clients_gone": "Clients that went away before their answer was complete.",
    "abandoned": "Turns that ended as abandoned.",
}


def families(figures: ProxyCounts, running: int) -> Iterator[FigureValues]:
    """Yield every figure of a proxy."""
    for name, value in msgspec.structs.asdict(figures).items():
        yield single(f"proxy_{name}", "counter", _MEANINGS[name], value)
    yield single("proxy_running_turns", "gauge", "Turns that run now.", running)


class AnswerCut(Exception):
    """The answer broke off: the client's connection is closed as the model's was."""


class UpstreamError(KillickError):
    """The model's server refused the request, or could not be reached."""


class Proxy:
    """The proxy, as an ASGI application."""

    def __init__(
        self,
        settings: ProxySettings,
        conversations: Conversations,
        upstream: Upstream,
        tokens: Tokens,
        log: Log,
    ) -> None:
        self.settings = settings
        self.figures = ProxyCounts()
        self.conversations = conversations
        self._upstream = upstream
        self._tokens = tokens
        self._guard = Guard(settings.host, settings.allowed_hosts, tokens)
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        if scope["type"] != "http":
            return
        target = _target(scope)
        path = target.partition("?")[0]
        if scope["method"] == "GET" and path in ("/metrics", "/livez", "/healthz"):
            await self._answer_itself(path, scope, send)
            return
        route = route_of(target)
        shape = shape_of(scope["method"], route.path)
        try:
            self._check(scope, route)
        except Refused as refused:
            self.figures.refused += 1
            await _error(send, shape, refused.status, str(refused))
            return
        if is_websocket(scope["headers"]):
            await _error(send, shape, 501, "This proxy speaks HTTP alone, no WebSockets.")
            return
        self.figures.requests += 1
        await _Passage(self, scope, receive, send, route, shape).run()

    def _check(self, scope: Scope, route: Route) -> None:
        """Refuse a client that is not allowed to ask. Raises Refused."""
        headers = _headers(scope)
        self._guard.check(headers, navigation=False)
        token = headers.get("x-killick-token") or route.token
        if self.settings.needs_token and self._may(token) != "write":
            raise Refused(401, "unauthorized", "This proxy needs a token: X-Killick-Token.")

    def _may(self, secret: str | None) -> May | None:
        """Return what a client may; a token of another tenant than the store's is for a server."""
        token = None if secret is None else self._tokens.find(secret)
        own = token is not None and token.tenant in (None, self.conversations.tenant)
        return token.may if token is not None and own else None

    async def _answer_itself(self, path: str, scope: Scope, send: Send) -> None:
        """Answer that it lives; its figures to who shows a token, where others are served."""
        if path != "/metrics":
            await _respond(send, 200, _PLAIN, b"ok\n")
            return
        headers = _headers(scope)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        shown = bearer.strip() if scheme.lower() == "bearer" else None
        token = headers.get("x-killick-token") or shown
        if self.settings.needs_token and self._may(token) is None:
            self.figures.refused += 1
            text = "The figures need a token: X-Killick-Token, or Authorization: Bearer.\n"
            await _respond(send, 401, _PLAIN, text.encode())
            return
        counted = families(self.figures, self.conversations.running())
        media, figures = render(counted, headers.get("accept", ""))
        await _respond(send, 200, media.encode(), figures.encode())

    # -- recording -------------------------------------------------------------------------------

    async def exchange(
        self, scope: Scope, route: Route, shape: Shape, body: bytes
    ) -> Exchange | None:
        """Record what a request brings. Returns None if it passes unrecorded.

        Raises KillickError when the store cannot write and the proxy was told to refuse then.
        """
        request = self._read(scope, route, shape, body)
        if request is None:
            return None
        source = source_of(scope["headers"])
        try:
            taken = await self.conversations.take(
                request, source, route.name, parent_of(scope["headers"])
            )
        except (KillickError, ValueError, TypeError) as error:
            self.degraded("request", error)
            if self.settings.when_degraded == "refuse":
                raise
            return None
        self.figures.recorded += 1
        taken.begin()
        return taken

    def _read(self, scope: Scope, route: Route, shape: Shape, body: bytes) -> ModelRequest | None:
        try:
            decoded = decoder_of(header(scope["headers"], b"content-encoding"))(body)
            return read_request(shape, route.path, decoded)
        except (NotUnderstood, Unreadable) as error:
            self.figures.not_understood += 1
            self._log.warning("not_understood", shape=shape, error=type(error).__name__)
            return None

    def degraded(self, where: str, error: BaseException) -> None:
        """Count and log that something passes unrecorded."""
        self.figures.degraded += 1
        self._log.warning("degraded", where=where, **cause(error))

    async def send_on(self, scope: Scope, route: Route, content: Any) -> Answer:
        """Send a request as it came, but for headers about the connection. Raises FAILURES."""
        headers = passed_on(scope["headers"], leave_out=frozenset({b"host"}))
        path = route.path.encode("latin-1")
        return await self._upstream.send(scope["method"], path, headers, content)


class _Passage:
    """One request on its way there and back."""

    def __init__(
        self,
        proxy: Proxy,
        scope: Scope,
        receive: Receive,
        send: Send,
        route: Route,
        shape: Shape | None,
    ) -> None:
        self._proxy = proxy
        self._scope = scope
        self._receive = receive
        self._send = send
        self._route = route
        self._shape = shape if proxy.settings.record else None
        self._exchange: Exchange | None = None
        self._early = b""
        self._has_new_calls = False
        self._feeding: asyncio.Future[None] | None = None
        self._gone = False
        self._patience: asyncio.Timeout | None = None

    async def run(self) -> None:
        content: Any = None
        if self._shape is not None:
            content = await self._body()
            if content is None:
                return  # the client went away before it had asked
            try:
                self._exchange = await self._proxy.exchange(
                    self._scope, self._route, self._shape, content
                )
            except (KillickError, ValueError, TypeError):
                text = "The session store cannot be written; this proxy refuses then."
                await _error(self._send, self._shape, 503, text)
                return
            if self._exchange is not None:
                self._exchange.recording.on_call(self._note_call)
        elif _has_body(self._scope):
            self._proxy.figures.passed_through += 1
            content = self._pieces()
        else:
            self._proxy.figures.passed_through += 1
        watching = None
        if self._shape is not None:
            watching = asyncio.ensure_future(self._watch())
        try:
            await self._pass_on(content)
        except AnswerCut:
            raise
        except BaseException as error:
            await self._finish(error)
            raise
        finally:
            if watching is not None:
                watching.cancel()

    async def _body(self) -> bytes | None:
        pieces = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return None
            pieces.append(message.get("body", b""))
            if not message.get("more_body"):
                return b"".join(pieces)

    async def _pieces(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise AnswerCut
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                return

    async def _watch(self) -> None:
        """Notice a client that goes away. That is no Stop: the answer is read to its end."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._proxy.figures.clients_gone += 1
        if self._patience is not None:
            self._patience.reschedule(0)

    def _note_call(self, _call: ToolCall) -> None:
        self._has_new_calls = True

    # -- the way back ----------------------------------------------------------------------------

    async def _pass_on(self, content: Any) -> None:
        proxy = self._proxy
        try:
            answer = await self._unless_gone(proxy.send_on(self._scope, self._route, content))
        except FAILURES as error:
            proxy.figures.upstream_failed += 1
            await self._finish(UpstreamError(f"the model's server was not reached: {_why(error)}"))
            text = f"The model's server could not be reached: {_why(error)}"
            await _error(self._send, self._shape, 502, text)
            return
        try:
            await self._start(answer)
            await self._copy(answer)
        finally:
            with contextlib.suppress(Exception):
                await answer.aclose()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _start(self, answer: Answer) -> None:
        await self._send(
            {
                "type": "http.response.start",
                "status": answer.status,
                "headers": passed_on(answer.headers),
            }
        )

    async def _copy(self, answer: Answer) -> None:
        raw = answer.headers
        if self._exchange is None:
            await self._pass_only(answer)
        elif answer.status >= 300:
            await self._finish(UpstreamError(f"the model's server answered {answer.status}"))
            await self._pass_only(answer)
        elif header(raw, b"content-type").startswith("text/event-stream"):
            await self._copy_events(answer, header(raw, b"content-encoding"))
        else:
            await self._copy_whole(answer, header(raw, b"content-encoding"))

    async def _read(self, answer: Answer, limit: float | None = None) -> bytes:
        """Return the next bytes of the answer; nothing at its end, or if none come within a limit.

        A broken connection breaks the client's too.
        """
        cancels = self._proxy.settings.cancel_upstream
        waiting = self._unless_gone(answer.read()) if cancels else answer.read()
        try:
            if limit is None:
                chunk = await waiting
            else:
                async with asyncio.timeout(limit):
                    chunk = await waiting
        except TimeoutError:
            if limit is None:
                raise
            return b""
        except FAILURES as error:
            self._proxy.figures.upstream_cut += 1
            await self._finish(UpstreamError(f"the answer broke off: {_why(error)}"))
            raise AnswerCut from error
        if chunk and self._gone and cancels:
            await self._give_up()
        return chunk

    async def _unless_gone(self, waiting: Awaitable[T]) -> T:
        """Wait for the model's server; with `cancel_upstream` no longer than the client does."""
        if not self._proxy.settings.cancel_upstream:
            return await waiting
        try:
            async with asyncio.timeout(0 if self._gone else None) as self._patience:
                return await waiting
        except TimeoutError:
            await self._give_up()
        finally:
            self._patience = None

    async def _give_up(self) -> NoReturn:
        await self._finish(None, "the client went away")
        raise AnswerCut

    async def _pass_only(self, answer: Answer) -> None:
        while chunk := await self._read(answer):
            await self._put(chunk)

    async def _put(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _copy_events(self, answer: Answer, encoding: str) -> None:
        decode = self._decoder(encoding)
        held: list[bytes] = []
        limit: float | None = None
        while chunk := await self._read(answer, None if self._exchange is None else limit):
            last = self._exchange is not None and await self._record(decode, chunk)
            if self._exchange is None or not self._exchange.recording.ended:
                await self._put(chunk)
                continue
            held.append(chunk)
            limit = _LAST_WORDS_SECONDS  # the connection may stay open
            if last or self._shape in _ENDS_AT_ONCE:
                await self._finish()
                await self._put_all(held)
        await self._finish()
        await self._put_all(held)

    async def _put_all(self, held: list[bytes]) -> None:
        chunks, held[:] = list(held), []
        for chunk in chunks:
            await self._put(chunk)

    async def _record(self, decode: Decoder | None, chunk: bytes) -> bool:
        """Feed the recorder a copy of a chunk; True if it says that nothing follows."""
        exchange = self._exchange
        assert exchange is not None
        if decode is None:
            await self._lose(Unreadable("encoding"))
            return False
        try:
            data = decode(chunk)
            if exchange.ready and self._feeding is None:
                await exchange.recording.feed(data)
            elif not await self._feed_early(exchange, data):
                return False
            if self._has_new_calls:
                self._has_new_calls = False
                await exchange.recording.until_durable()  # the client may run it on seeing this
        except TurnStopped as stopped:
            await self._finish(stopped)
            raise AnswerCut from stopped
        except (Unreadable, KillickError) as error:
            await self._lose(error)
            return False
        return b"data: [DONE]" in data

    async def _feed_early(self, exchange: Exchange, data: bytes) -> bool:
        """Keep what comes while the model call is being recorded; False if it may pass at once."""
        self._early += data
        if self._feeding is None:
            self._feeding = asyncio.ensure_future(self._feed_kept(exchange))
        if not exchange.has_begun and not may_be_relied_on(self._early):
            return False
        feeding, self._feeding = self._feeding, None
        await feeding
        data, self._early = self._early, b""
        if data:
            await exchange.recording.feed(data)
        return True

    async def _feed_kept(self, exchange: Exchange) -> None:
        await exchange.until_ready()
        data, self._early = self._early, b""
        await exchange.recording.feed(data)

    async def _copy_whole(self, answer: Answer, encoding: str) -> None:
        """Pass an answer that is not streamed; its last chunk waits for the message."""
        held: bytes | None = None
        copy: list[bytes] = []
        size = 0
        while chunk := await self._read(answer):
            if held is not None:
                await self._put(held)
            held = chunk
            size += len(chunk)
            copy.append(chunk)
            if size > _COPY_BYTES:
                copy.clear()
        if self._exchange is not None:
            await self._record_whole(b"".join(copy), encoding)
        if held is not None:
            await self._put(held)

    async def _record_whole(self, body: bytes, encoding: str) -> None:
        exchange, decode = self._exchange, self._decoder(encoding)
        assert exchange is not None
        try:
            await exchange.until_ready()
            given = json.loads(decode(body)) if decode is not None else None
            for event in given if isinstance(given, list) else [given]:
                if isinstance(event, dict):
                    if isinstance(given, list):
                        await exchange.recording.feed_event(event)
                    else:
                        await exchange.recording.feed_response(event)
        except TurnStopped as stopped:
            await self._finish(stopped)
            raise AnswerCut from stopped
        except (Unreadable, ValueError, RecursionError) as error:
            await self._finish(
                UpstreamError(f"the answer could not be read: {type(error).__name__}")
            )
            return
        except KillickError as error:
            await self._lose(error)
            return
        await self._finish()

    def _decoder(self, encoding: str) -> Decoder | None:
        try:
            return decoder_of(encoding)
        except Unreadable:
            return None

    async def _finish(self, error: BaseException | None = None, why: str | None = None) -> None:
        """End the recording. Raises AnswerCut when it fails and the proxy was told to refuse."""
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        try:
            if self._feeding is not None:
                feeding, self._feeding = self._feeding, None
                await feeding
            await exchange.finish(error, why)
            self._proxy.conversations.answered(exchange)
        except (StoreError, ConflictError, KillickError) as failure:
            self._proxy.degraded("answer", failure)
            if self._proxy.settings.when_degraded == "refuse" and error is None:
                raise AnswerCut from failure

    async def _lose(self, error: BaseException) -> None:
        """Go on without the recorder: what came so far is kept as it can be."""
        self._proxy.degraded("answer", error)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            with contextlib.suppress(KillickError):
                await exchange.finish(
                    error
                    if isinstance(error, KillickError)
                    else UpstreamError("the answer could not be read")
                )
        if self._proxy.settings.when_degraded == "refuse" and isinstance(error, KillickError):
            raise AnswerCut from error


# -- answers of the proxy itself -------------------------------------------------------------------


def _headers(scope: Scope) -> dict[str, str]:
    return {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}


def _target(scope: Scope) -> str:
    """Return path and query as they came."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string") or b""
    return (raw.partition(b"?")[0] + (b"?" + query if query else b"")).decode("latin-1")


def _has_body(scope: Scope) -> bool:
    names = {name.lower() for name, _ in scope["headers"]}
    return b"content-length" in names or b"transfer-encoding" in names


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def _error(send: Send, shape: Shape | None, status: int, message: str) -> None:
    await _respond(send, status, b"application/json", error_body(shape, status, message))


async def _respond(send: Send, status: int, kind: bytes, body: bytes) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
