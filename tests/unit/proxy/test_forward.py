"""Who a proxy serves, in one process."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from killick import AsyncStore
from killick.proxy.conversations import Conversations
from killick.proxy.forward import Proxy, ProxySettings
from killick.proxy.launch import LOGGER
from killick.server.auth import Tokens
from killick.server.log import Log
from killick.stores.memory import MemoryDisk


class _Model(httpx2.AsyncBaseTransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        assert "x-killick-token" not in request.headers
        return httpx2.Response(200, content=b"models")


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

    async def main() -> None:
        async with AsyncStore(MemoryDisk().open(), tenant="acme") as store:
            proxy = Proxy(
                ProxySettings(upstream="http://model", needs_token=True),
                Conversations(store, abandon_seconds=60),
                _Model(),
                tokens,
                Log(LOGGER),
            )
            for path in ("/metrics", "/v1/models"):
                assert await _status(proxy, path, secret) == (200 if served else 401)
                assert await _status(proxy, path, "hf_1_wrong") == 401

    asyncio.run(main())


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
