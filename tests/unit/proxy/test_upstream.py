"""Connections to a model's server: kept, closed, secured, and read at the speed of the reader."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
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

from killick.proxy.upstream import FAILURES, Upstream

Server = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def asking(server: Server, scheme: str = "http", **secured: Any) -> AsyncIterator[Upstream]:
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
        async with Upstream(f"{scheme}://127.0.0.1:{port}") as upstream:
            yield upstream
        await asyncio.gather(*(one for one in serving if one is not None))


async def text(upstream: Upstream, content: Any = None) -> bytes:
    method = "GET" if content is None else "POST"
    answer = await upstream.send(method, b"/v1/models?a=%20", [(b"X-Mine", b"1")], content)
    try:
        return await answer.aread()
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


def test_an_answer_is_read_no_further_than_its_reader_follows() -> None:
    size, written = 64 * 1024 * 1024, asyncio.Event()

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 65_536):
            writer.write(bytes(65_536))
            await writer.drain()
        written.set()

    async def main() -> None:
        async with asking(server) as upstream:
            answer = await upstream.send("GET", b"/", [], None)
            assert isinstance(answer.stream, AsyncIterable)
            stream = aiter(answer.stream)
            seen = len(await anext(stream))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(written.wait(), 0.5)
            async for piece in stream:
                seen += len(piece)
            assert seen == size
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
