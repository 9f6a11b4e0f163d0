"""The model's server: requests sent to it as they came, and the connections to it.

The sockets are ours, below httpx2's pool: its own arms a timer and registers with the loop anew at
every read, which costs a chunk more than recording it. An answer may take as long as it takes, so
nothing here has a time limit but connecting.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from typing import Any, Final, Self, cast

import httpcore2
import httpx2

from killick.proxy.wire import header

FAILURES: Final = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException)
"""What asking a model's server, or reading its answer, can raise."""

_CONNECT_SECONDS: Final = 30.0
_OTHER_ADDRESS_SECONDS: Final = 0.25
"""How long one address of a host is tried alone, before the next is tried beside it."""
_CONNECTIONS: Final = 1_000
_AHEAD_BYTES: Final = 256 * 1024
"""Read ahead of a client that is slower than the model's server."""
_HEAD_END: Final = re.compile(rb"\n\r?\n")
"""Where h11 finds the end of a head."""
_CHUNK_HEAD: Final = re.compile(rb"([1-9a-fA-F][0-9a-fA-F]{0,7})(?:(\r\n)|\r?\Z)")
"""The head of a usual chunk, which has data and no extension, or as much of it as has come."""


class Upstream:
    """The model's server. It follows no redirects, keeps no cookies, and uses no environment."""

    def __init__(self, url: str, sockets: httpcore2.AsyncNetworkBackend | None = None) -> None:
        base = httpx2.URL(url)
        self._scheme, self._host, self._port = base.raw_scheme, base.raw_host, base.port
        self._authority = base.netloc
        self._prefix = base.raw_path.rstrip(b"/")
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(),
            max_connections=_CONNECTIONS,
            max_keepalive_connections=100,
            keepalive_expiry=15.0,
            network_backend=sockets or _Sockets(),
        )

    async def __aenter__(self) -> Self:
        await self._pool.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.aclose()

    async def send(
        self,
        method: str,
        path: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        content: bytes | AsyncIterator[bytes] | None,
    ) -> "Answer":
        """Send a request on; its answer must be closed. Raises one of FAILURES."""
        about = [(b"Host", self._authority)]
        if content is not None and not header(headers, b"content-length"):
            if isinstance(content, bytes):
                about.append((b"Content-Length", b"%d" % len(content)))
            else:
                about.append((b"Transfer-Encoding", b"chunked"))
        url = httpcore2.URL(
            scheme=self._scheme, host=self._host, port=self._port, target=self._prefix + path
        )
        response = await self._pool.handle_async_request(
            httpcore2.Request(
                method,
                url,
                headers=[*about, *headers],
                content=content,
                extensions={"timeout": {"connect": _CONNECT_SECONDS}},
            )
        )
        return Answer(response, has_body=method != "HEAD" and response.status not in (204, 304))


class Answer:
    """An answer, whose body is read piece by piece.

    Data that comes in chunks is taken off them here, below the pool, whose layers take a quarter of
    what it takes to pass one on. The pool reads the rest: the end, and whatever is unusual.
    """

    def __init__(self, response: httpcore2.Response, *, has_body: bool) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response
        self._rest: AsyncIterator[bytes] | None = None
        self._socket: _Socket | None = None
        socket = response.extensions["network_stream"]
        if isinstance(socket, _Socket) and socket.begin_body() and has_body:
            in_chunks = header(response.headers, b"transfer-encoding") == "chunked"
            self._socket = socket if in_chunks else None

    async def read(self) -> bytes:
        """Return what came next of the body; nothing at its end. Raises one of FAILURES."""
        if self._socket is not None:
            data = await self._socket.read_chunk()
            if data:
                return data
            self._socket = None
        if self._rest is None:
            self._rest = aiter(cast("AsyncIterable[bytes]", self._response.stream))
        return await anext(self._rest, b"")

    async def aclose(self) -> None:
        await self._response.aclose()


class _Chunks:
    """Takes the data of a body off its chunks."""

    def __init__(self) -> None:
        self._left = 0
        self._at_end = False
        self.are_usual = True
        """False where none follows that is usual: what is there, from there on, is not taken."""

    def take(self, came: bytearray) -> bytes:
        """Take the data of the next chunk, or as much of it as is there.

        Raises RemoteProtocolError for a chunk that goes on after its end.
        """
        at, data = 0, b""
        while at < len(came) and not data:
            if self._at_end:
                if not came.startswith(b"\r\n", at):
                    if not b"\r\n".startswith(came[at:]):
                        raise httpcore2.RemoteProtocolError("a chunk is longer than it says")
                    break
                at, self._at_end = at + 2, False
            elif self._left:
                data = bytes(came[at : at + self._left])
                at += len(data)
                self._left -= len(data)
                self._at_end = not self._left
            else:
                head = _CHUNK_HEAD.match(came, at)
                self.are_usual = head is not None
                if head is None or not head[2]:
                    break
                at, self._left = head.end(), int(head[1], 16)
        del came[:at]
        return data


class _Sockets(httpcore2.AsyncNetworkBackend):
    """Connects to a model's server."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (as httpcore2 calls it)
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                _, stream = await asyncio.get_running_loop().create_connection(
                    _Socket, host, port, happy_eyeballs_delay=_OTHER_ADDRESS_SECONDS
                )
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error) or "no connection in time") from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        return stream


class _Socket(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """One connection. The loop hands over what comes, and a reader takes it."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._came = bytearray()
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._over = self._full = self._waiting = False
        self._error: Exception | None = None
        self._in_head = True
        self._shown = b""
        self._chunks = _Chunks()

    # -- for the loop ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        if len(self._came) > _AHEAD_BYTES and not self._waiting:
            self._waiting = True
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> None:
        self._over = True
        _wake(self._reader)

    def connection_lost(self, error: Exception | None) -> None:
        self._over, self._full, self._error = True, False, error
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        _wake(self._writer)

    # -- for the pool ----------------------------------------------------------------------------

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        while not self._came:
            if self._error is not None:
                raise httpcore2.ReadError(str(self._error)) from self._error
            if self._over:
                return b""
            await self._more()
        data = bytes(self._came[: self._to_head_end(max_bytes) if self._in_head else max_bytes])
        del self._came[: len(data)]
        self._resume()
        return data

    def _to_head_end(self, max_bytes: int) -> int:
        """Return how much to show the pool of an answer that begins: no byte of its body yet."""
        shown = self._shown + self._came[:max_bytes]
        end = _HEAD_END.search(shown)
        before, self._shown = len(self._shown), b"" if end else bytes(shown[-2:])
        return end.end() - before if end else max_bytes

    async def _more(self) -> None:
        self._reader = asyncio.get_running_loop().create_future()
        await self._reader

    def _resume(self) -> None:
        if self._waiting and len(self._came) <= _AHEAD_BYTES:
            self._waiting = False
            self._transport.resume_reading()

    # -- for an answer -----------------------------------------------------------------------------

    def begin_body(self) -> bool:
        """Note that the pool has read a head; False if it has read more than that."""
        self._in_head, self._chunks = False, _Chunks()
        return not self._shown

    async def read_chunk(self) -> bytes:
        """Return the data of the next chunk; nothing where the pool is to read on."""
        while True:
            data = self._chunks.take(self._came)
            if data:
                self._resume()
                return data
            if self._over or not self._chunks.are_usual:
                return b""
            await self._more()

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if self._over:
            raise httpcore2.WriteError("the connection is closed") from self._error
        self._in_head = True
        self._transport.write(buffer)
        while self._full:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer
        if self._error is not None:
            raise httpcore2.WriteError(str(self._error)) from self._error

    async def aclose(self) -> None:
        self._transport.abort()  # what was asked of it was read to its end, or is given up

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                secured = await asyncio.get_running_loop().start_tls(
                    self._transport, self, ssl_context, server_hostname=server_hostname
                )
            if secured is None:
                raise ConnectionResetError("the connection was closed in the TLS handshake")
        except TimeoutError as error:
            self._transport.abort()
            raise httpcore2.ConnectTimeout("no TLS handshake in time") from error
        except OSError as error:  # ssl.SSLError is one
            self._transport.abort()
            raise httpcore2.ConnectError(str(error)) from error
        self._transport = secured
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # of an idle connection: the server has closed it, or will
            return self._over or bool(self._came)
        return self._transport.get_extra_info(info)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
