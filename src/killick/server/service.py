"""One server: its settings, and the parts that it is made of."""

import msgspec

from killick.server.auth import Guard
from killick.server.hub import Hub
from killick.server.log import Log
from killick.server.runner import Runner, Turns
from killick.server.webhooks import Webhook
from killick.session.aio import AsyncStore


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a server that can be set; each has a default that is meant."""

    host: str = "127.0.0.1"
    port: int = 8420
    allowed_hosts: tuple[str, ...] = ()
    body_bytes: int = 4 * 1024 * 1024
    import_bytes: int = 64 * 1024 * 1024
    streams: int = 1_000
    head_seconds: float = 10.0
    beat_seconds: float = 15.0
    look_seconds: float = 1.0
    drain_seconds: float = 5.0
    webhooks: tuple[Webhook, ...] = ()


class Service:
    """One server. Nothing here is the truth: all of it is in the store."""

    def __init__(
        self,
        store: AsyncStore,
        runner: Runner,
        settings: ServerSettings,
        guard: Guard,
        log: Log,
    ) -> None:
        self.store = store
        self.settings = settings
        self.guard = guard
        self.log = log
        self.runner = runner
        self.turns = Turns(store, runner, log)
        self.hub = Hub(store, log, max_streams=settings.streams, beat_seconds=settings.beat_seconds)
        self.draining = False
