"""The parts of other tenants: a first request opens one, and the idlest is closed for room."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Self

from msgspec.structs import replace

from killick.server.app import beside_requests
from killick.server.log import Log, cause
from killick.server.responses import Refused
from killick.server.service import Service
from killick.session.aio import AsyncStore

MakeStore = Callable[[str | None], AbstractAsyncContextManager[AsyncStore]]
"""Opens the store of a tenant; of the server's own for None."""


class _Part:
    """One tenant's part, in a task of its own from its first request until its room is needed."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[Service] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.requests = 0

    def is_idle(self) -> bool:
        """Return whether no request is answered here, and no turn runs."""
        if self.requests or not self.opened.done():
            return False
        return self.opened.result().turns.is_idle


class Tenants:
    """The open parts of a server's other tenants. Whatever is closed here is in the store."""

    def __init__(self, make_store: MakeStore, own: Service) -> None:
        self._make_store = make_store
        self._own = own
        self._parts: dict[str, _Part] = {}  # the one that was asked longest ago is first
        self._closing: set[asyncio.Task[None]] = set()
        self._upkept: defaultdict[str, dict[str, float]] = defaultdict(dict)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for tenant in list(self._parts):
            self._close(tenant)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def parts(self) -> list[Service]:
        """Return the parts that are open, the server's own first."""
        opened = [part.opened for part in self._parts.values() if part.opened.done()]
        return [self._own, *(service.result() for service in opened)]

    @asynccontextmanager
    async def serving(self, tenant: str) -> AsyncIterator[Service]:
        """Keep a tenant's part open, for a request; the first one opens it.

        Raises what opening a store raises, and Refused. If interrupted: it is opened all the same.
        """
        part = self._parts.pop(tenant, None) or self._begin(tenant)
        self._parts[tenant] = part
        part.requests += 1
        try:
            yield await asyncio.shield(part.opened)
        finally:
            part.requests -= 1

    def _begin(self, tenant: str) -> _Part:
        """Begin to open a part, in the room of the idlest if there is none. Raises Refused."""
        if self._own.draining:
            raise Refused(503, "shutting_down", "This tenant is not served here now.")
        before: asyncio.Task[None] | None = None
        if len(self._parts) >= self._own.settings.tenants:
            idle = (name for name, part in self._parts.items() if part.is_idle())
            idlest = next(idle, None)
            if idlest is None:
                raise Refused(
                    503, "too_many_tenants", "Too many tenants are at work here; ask again.",
                    headers={"Retry-After": "5"},
                )  # fmt: skip
            before = self._close(idlest)
        part = _Part()
        name = f"killick-tenant-{tenant}"
        part.task = asyncio.create_task(self._run(tenant, part, before), name=name)
        return part

    def _close(self, tenant: str) -> asyncio.Task[None] | None:
        part = self._parts.pop(tenant)
        part.over.set()
        if part.task is not None:
            self._closing.add(part.task)
            part.task.add_done_callback(self._closing.discard)
        return part.task

    async def _run(self, tenant: str, part: _Part, before: asyncio.Task[None] | None) -> None:
        own = self._own
        # What is posted to webhooks is of the server's own tenant.
        settings, log = replace(own.settings, tenant=tenant, webhooks=()), Log(tenant=tenant)
        try:
            if before is not None:  # no more stores are open at once than there is room for
                await asyncio.wait([before])
            async with self._make_store(tenant) as store:
                service = Service(store, own.runner, settings, own.guard, log, own.places)
                async with beside_requests(service, self._upkept[tenant]):
                    part.opened.set_result(service)
                    await part.over.wait()
        except Exception as error:  # noqa: BLE001  (told to those who ask, or to the log)
            if part.opened.done():
                log.warning("tenant_failed", **cause(error))
                return
            if self._parts.get(tenant) is part:
                del self._parts[tenant]  # the next request tries again
            part.opened.set_exception(error)
