"""Connections to a model's server: kept, closed, secured, and read at the speed of the reader."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpcore2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from killick.proxy.upstream import FAILURES, Answer, Upstream

Server = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def asking(
    server: Server, scheme: str = "http", sockets: Any = None, **secured: Any
) -> AsyncIterator[Upstream]:
    """Run a server, and what asks it; leave once every connection is closed."""
    serving: set[asyncio.Task[Any] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await server(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, **secured)
    port = listening.sockets[0].getsockname()[1]
    async with listening:
        async with Upstream(f"{scheme}://127.0.0.1:{port}", sockets) as upstream:
            yield upstream
        await asyncio.gather(*(one for one in serving if one is not None))


async def whole(answer: Answer) -> bytes:
    pieces = []
    while piece := await answer.read():
        pieces.append(piece)
    return b"".join(pieces)


async def text(upstream: Upstream, content: Any = None) -> bytes:
    method = "GET" if content is None else "POST"
    answer = await upstream.send(method, b"/v1/models?a=%20", [(b"X-Mine", b"1")], content)
    try:
        return await whole(answer)
    finally:
        await answer.aclose()


def test_a_request_goes_out_as_it_came() -> None:
    asked: list[bytes] = []

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            body = b""
            if b"chunked" in head:
                body = await reader.readuntil(b"0\r\n\r\n")
            elif b"Content-Length: 3" in head:
                body = await reader.readexactly(3)
            asked.append(head + body)
            writer.write(OK)

    async def pieces() -> Any:
        yield b"ab"
        yield b"c"

    async def main() -> None:
        async with asking(server) as upstream:
            assert [await text(upstream, c) for c in (None, b"abc", pieces())] == [b"ok"] * 3

    asyncio.run(main())
    assert [one.partition(b"\r\n")[0] for one in asked] == [
        b"GET /v1/models?a=%20 HTTP/1.1",
        b"POST /v1/models?a=%20 HTTP/1.1",
        b"POST /v1/models?a=%20 HTTP/1.1",
    ]
    assert all(one.count(b"Host: 127.0.0.1:") == one.count(b"X-Mine: 1") == 1 for one in asked)
    assert asked[1].endswith(b"\r\n\r\nabc")
    assert asked[2].endswith(b"\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    "parting", [b"", b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"]
)
def test_a_connection_that_its_server_has_closed_is_not_used_again(parting: bytes) -> None:
    parted, connections = asyncio.Event(), 0

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await parted.wait()
        writer.write(parting)

    async def main() -> None:
        async with asking(server) as upstream:
            assert await text(upstream) == b"ok"
            (kept,) = upstream._pool.connections
            assert not kept.has_expired()
            parted.set()
            while not kept.has_expired():  # noqa: ASYNC110  (until the loop has read it)
                await asyncio.sleep(0)
            assert await text(upstream) == b"ok"

    asyncio.run(main())
    assert connections == 2


@pytest.mark.parametrize("in_chunks", [False, True])
def test_an_answer_is_read_no_further_than_its_reader_follows(*, in_chunks: bool) -> None:
    size, written = 64 * 1024 * 1024, asyncio.Event()
    head, piece = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size, bytes(65_536)
    if in_chunks:
        head, piece = _CHUNKED, b"10000\r\n%b\r\n" % piece

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        for _ in range(size // 65_536):
            writer.write(piece)
            await writer.drain()
        writer.write(b"0\r\n\r\n" if in_chunks else b"")
        written.set()

    async def main() -> None:
        async with asking(server) as upstream:
            answer = await upstream.send("GET", b"/", [], None)
            seen = len(await answer.read())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(written.wait(), 0.5)
            assert seen + len(await whole(answer)) == size
            await answer.aclose()

    asyncio.run(main())


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's certificate for this machine, which is trusted as a company's own may be."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a model's server")])
    begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin.replace(year=2120))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "certificate.pem"
    pem, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(pem, plain, serialization.NoEncryption())
    file.write_bytes(secret + made.public_bytes(pem))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    return context


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(OK)


async def _plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_server_with_a_certificate_that_is_trusted(certificate: ssl.SSLContext) -> None:
    async def main() -> None:
        async with asking(_answer, "https", ssl=certificate) as upstream:
            assert [await text(upstream) for _ in range(3)] == [b"ok"] * 3
            assert len(upstream._pool.connections) == 1

    asyncio.run(main())


def test_a_server_with_one_that_is_not_or_without_any_is_a_failure_with_its_reason(
    certificate: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")

    async def main() -> None:
        async with asking(_answer, "https", ssl=certificate) as upstream:
            with pytest.raises(httpcore2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await text(upstream)
        async with asking(_plain, "https") as upstream:
            with pytest.raises(httpcore2.ConnectError, match=r"(?i)ssl"):
                await text(upstream)

    asyncio.run(main())


def test_an_answer_that_breaks_off_is_a_failure() -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
        await writer.drain()
        writer.transport.abort()

    async def main() -> None:
        async with asking(server) as upstream:
            with pytest.raises(FAILURES):
                await text(upstream)

    asyncio.run(main())


_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
_BODIES = {
    "one chunk": _CHUNKED + b"2\r\nok\r\n0\r\n\r\n",
    "several": _CHUNKED + b"1\r\na\r\nB\r\n0\r\n\r\n!\r\n0\r\n\r\n1\r\n!\r\n0\r\n\r\n",
    "nothing": _CHUNKED + b"0\r\n\r\n",
    "trailers": _CHUNKED + b"2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n",
    "an extension": _CHUNKED + b"2\r\nok\r\n3;name=1\r\nyes\r\n1\r\n!\r\n0\r\n\r\n",
    "a long number": _CHUNKED + b"2\r\nok\r\n0000000003\r\nyes\r\n0\r\n\r\n",
    "spaces": _CHUNKED + b"2\r\nok\r\n3  \r\nyes\r\n0\r\n\r\n",
    "hints before": _HINTS + _CHUNKED + b"2\r\nok\r\n0\r\n\r\n",
    "plain line ends": b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\r\nok\r\n0\r\n\r\n",
    "no number": _CHUNKED + b"2\r\nok\r\nno\r\n\r\n0\r\n\r\n",
    "a longer chunk": _CHUNKED + b"2\r\nok\r\n2\r\nno!\r\n0\r\n\r\n",
    "one that is cut off": _CHUNKED + b"2\r\nok\r\n3\r\nye",
    "one that is cut off at its end": _CHUNKED + b"2\r\nok\r",
    "a head that is cut off": _CHUNKED + b"2\r\nok\r\n1",
    "no end": _CHUNKED + b"2\r\nok\r\n",
    "another encoding": _CHUNKED.replace(b"chunked", b"gzip, chunked") + b"2\r\nok\r\n0\r\n\r\n",
    "no content": b"HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a length": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok\n\nok\r\n\r",
    "neither": b"HTTP/1.1 200 OK\r\n\r\n2\r\nok\n\nok",
}  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, len(_CHUNKED) - 2, len(_CHUNKED) - 1, 1_000])
@pytest.mark.parametrize("body", _BODIES.values(), ids=_BODIES)
def test_a_body_is_read_as_the_pool_alone_reads_it(body: bytes, size: int) -> None:
    connections = 0

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while await reader.readuntil(b"\r\n\r\n"):
            for at in range(0, len(body), size):
                writer.write(body[at : at + size])
                await asyncio.sleep(0)  # what is sent is read before the next piece
                await asyncio.sleep(0)
            if not body.endswith(b"\r\n\r\n"):
                return

    async def outcomes(sockets: httpcore2.AsyncNetworkBackend | None) -> list[object]:
        nonlocal connections
        connections, found = 0, list[object]()
        async with asking(server, sockets=sockets) as upstream:
            for _ in range(2):
                try:
                    answer = await upstream.send("GET", b"/", [], None)
                    while piece := await answer.read():
                        found += piece
                    await answer.aclose()
                except FAILURES as error:
                    found.append(type(error))
        return [*found, connections]

    expected = asyncio.run(outcomes(httpcore2.AnyIOBackend()))
    assert asyncio.run(outcomes(None)) == expected


def test_chunks_that_came_together_are_read_one_by_one_without_the_pool() -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_CHUNKED + b"1\r\na\r\n2\r\nbc\r\n5\r\nde")
        await reader.read()

    async def main() -> None:
        async with asking(server) as upstream:
            answer = await upstream.send("GET", b"/", [], None)
            assert [await answer.read() for _ in range(3)] == [b"a", b"bc", b"de"]
            assert answer._rest is None
            await answer.aclose()

    asyncio.run(main())
