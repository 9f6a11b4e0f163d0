"""One server: its settings, and the parts that it is made of."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec

from killick.server.auth import Guard
from killick.server.hub import Hub, StreamPlaces
from killick.server.log import Log
from killick.server.runner import Runner, Turns
from killick.server.webhooks import Webhook
from killick.session.aio import AsyncStore
from killick.session.open import DEFAULT_TENANT


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a server that can be set; each has a default that is meant."""

    host: str = "127.0.0.1"
    port: int = 8420
    allowed_hosts: tuple[str, ...] = ()
    body_bytes: int = 4 * 1024 * 1024
    import_bytes: int = 64 * 1024 * 1024
    streams: int = 1_000
    token_streams: int = 200
    token_requests: float = 100.0
    """Requests a second of one token."""
    tenant: str = DEFAULT_TENANT
    """Whose sessions clients without a tenant of their own are served."""
    tenants: int = 32
    """How many other tenants' stores may be open at once."""
    head_seconds: float = 10.0
    beat_seconds: float = 15.0
    look_seconds: float = 1.0
    drain_seconds: float = 5.0
    webhooks: tuple[Webhook, ...] = ()
    verify_seconds: float | None = None
    """Between two rounds of verifying all sessions; None verifies nothing by itself."""
    retention_seconds: float | None = None
    """Between two looks at the rules of retention in the store; None applies none."""


ServeTenant = Callable[[str], AbstractAsyncContextManager["Service"]]
"""Keeps the part of another tenant open, for a request."""


class Service:
    """One tenant's part of a server. Nothing here is the truth: all of it is in the store."""

    def __init__(
        self,
        store: AsyncStore,
        runner: Runner,
        settings: ServerSettings,
        guard: Guard,
        log: Log,
        places: StreamPlaces | None = None,
    ) -> None:
        self.places = places or StreamPlaces(settings.streams)
        self.serve_tenant: ServeTenant | None = None
        self.store = store
        self.settings = settings
        self.guard = guard
        self.log = log
        self.runner = runner
        self.turns = Turns(store, runner, log)
        self.hub = Hub(
            store,
            log,
            places=self.places,
            max_of_token=settings.token_streams,
            beat_seconds=settings.beat_seconds,
        )
        self.draining = False
        self.damaged_sessions = 0
        """Of the last verification of all sessions here, if there was one."""

    @asynccontextmanager
    async def of(self, tenant: str | None) -> AsyncIterator["Service"]:
        """Keep the part of a token's tenant open, for a request. Raises what opening it raises."""
        if tenant is None or tenant == self.settings.tenant or self.serve_tenant is None:
            yield self
            return
        async with self.serve_tenant(tenant) as service:
            yield service
