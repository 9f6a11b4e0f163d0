"""Who a proxy serves, in one process."""

import asyncio
from pathlib import Path
from typing import Any

import httpcore2
import pytest

from killick import AsyncStore
from killick.proxy.conversations import Conversations
from killick.proxy.forward import Proxy, ProxySettings
from killick.proxy.launch import LOGGER
from killick.proxy.upstream import Upstream
from killick.server.auth import Tokens
from killick.server.log import Log
from killick.stores.memory import MemoryDisk


class _Model(httpcore2.AsyncMockBackend):
    """A model's server that answers, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__([b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n", b"models"])
        self.asked = bytearray()

    async def connect_tcp(self, *given: Any, **further: Any) -> httpcore2.AsyncNetworkStream:
        stream = await super().connect_tcp(*given, **further)
        write = stream.write

        async def keep(buffer: bytes, *given: Any, **further: Any) -> None:
            self.asked += buffer
            await write(buffer, *given, **further)

        stream.write = keep  # type: ignore[method-assign]
        return stream


@pytest.mark.parametrize(
    ("tenant", "served"),
    [(None, True), ("acme", True), ("other", False)],
    ids=["without a tenant", "of the store's tenant", "of another tenant"],
)
def test_a_token_is_for_the_tenant_of_the_store(
    tmp_path: Path, tenant: str | None, *, served: bool
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    _, secret = tokens.make("laptop", "write", 0, tenant)

    model = _Model()

    async def main() -> None:
        async with AsyncStore(MemoryDisk().open(), tenant="acme") as store:
            proxy = Proxy(
                ProxySettings(upstream="http://model", needs_token=True),
                Conversations(store, abandon_seconds=60),
                Upstream("http://model", model),
                tokens,
                Log(LOGGER),
            )
            for path in ("/metrics", "/v1/models"):
                assert await _status(proxy, path, secret) == (200 if served else 401)
                assert await _status(proxy, path, "hf_1_wrong") == 401

    asyncio.run(main())
    assert (b"GET /v1/models HTTP/1.1" in model.asked) is served
    assert b"x-killick-token" not in model.asked.lower()


async def _status(proxy: Proxy, path: str, secret: str) -> int:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    headers = [(b"host", b"127.0.0.1:8421"), (b"x-killick-token", secret.encode())]
    scope = {"type": "http", "method": "GET", "path": path, "headers": headers}
    await proxy(scope, receive, send)
    return int(sent[0]["status"])
