"""One server from its first line of log to its last: uvicorn, the store, and how it ends."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import uvicorn

from killick.server.app import make_app
from killick.server.auth import Guard, Tokens
from killick.server.connections import (
    WAITING_MAX,
    QuietServer,
    bind,
    check_exposure,
    connection_limit,
    protocol_for,
    raise_file_limit,
)
from killick.server.log import Log
from killick.server.runner import Runner
from killick.server.service import ServerSettings, Service
from killick.server.tenants import MakeStore, Tenants

TAKEN_AT_ONCE: Final = 16
"""Connections that may be taken before the limit of them is looked at."""

LAST_SECONDS: Final = 4.0
"""After the time for turns: how long ending them, the streams and the store may take."""


class _Server(QuietServer):
    """Takes few connections at once. Ending begins with the turns, not with the sockets."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # asyncio takes as many connections at once as it lets wait: few, so that the limit of them
        # holds. The kernel lets more wait.
        for listener in sockets or ():
            listener.listen(WAITING_MAX)


async def serve(
    make_store: MakeStore,
    starting: AbstractAsyncContextManager[Runner],
    settings: ServerSettings,
    tokens: Tokens,
    ready: Callable[[str], None] = lambda _url: None,
) -> None:
    """Serve until SIGTERM or SIGINT, then end in order: turns, streams, connections, store.

    The runner that `starting` yields answers prompts of all tenants.
    If interrupted: turns that still run are closed by the next to open their sessions.
    """
    check_exposure(settings.host, tokens)
    log = Log()
    files = raise_file_limit()
    listener = bind(settings.host, settings.port)
    # Inherited by every connection: what the kernel keeps for a reader that does not read.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 * 1024)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listener.close)
        store = await stack.enter_async_context(make_store(None))
        runner = await stack.enter_async_context(starting)
        guard = Guard(
            settings.host,
            settings.allowed_hosts,
            tokens,
            requests_per_second=settings.token_requests,
        )
        service = Service(store, runner, settings, guard, log)
        tenants = await stack.enter_async_context(Tenants(make_store, service))
        service.serve_tenant = tenants.serving
        server = _Server(
            uvicorn.Config(
                make_app(service),
                log_config=None,
                log_level=logging.WARNING,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="on",
                ws="none",
                backlog=TAKEN_AT_ONCE,
                http=protocol_for(connection_limit(files), settings.head_seconds),
                timeout_keep_alive=30,
                timeout_graceful_shutdown=1,
            )
        )
        async with _ending(tenants, service, server):
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            ready(f"http://{host}:{listener.getsockname()[1]}/")
            tell_manager("READY=1")
            log.info("serving", host=settings.host, port=listener.getsockname()[1], pid=os.getpid())
            await server.serve(sockets=[listener])
    log.info("ended")


@contextlib.asynccontextmanager
async def _ending(
    tenants: Tenants, service: Service, server: uvicorn.Server
) -> AsyncIterator[None]:
    """On a signal: begin no turn, let turns finish, stop them, end streams. A second hurries."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    hurry = asyncio.Event()

    def ask(name: str) -> None:
        (hurry if asked.is_set() else asked).set()
        service.log.info("signal", name=name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask, number.name)

    async def end() -> None:
        await asked.wait()
        service.draining = True  # no other part is opened any more
        parts = tenants.parts()
        for part in parts:
            part.draining = True
        tell_manager("STOPPING=1")
        seconds = service.settings.drain_seconds
        _leave_after(seconds + LAST_SECONDS)
        draining = asyncio.ensure_future(_drain(parts, seconds))
        hurrying = asyncio.ensure_future(hurry.wait())
        await asyncio.wait({draining, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            draining.cancel()
            await _drain(parts, 0)
        hurrying.cancel()
        await asyncio.gather(*(part.hub.close() for part in parts))
        server.should_exit = True

    ending = asyncio.create_task(end())
    try:
        yield
    finally:
        ending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ending
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _drain(parts: list[Service], seconds: float) -> None:
    """Let the turns of all tenants finish for a while, then stop them."""
    await asyncio.gather(*(part.turns.drain(seconds) for part in parts))


def tell_manager(state: str) -> None:
    """Tell systemd how this process is, if systemd started it and asked to be told."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a name without a file, as the kernel writes it
        address = f"\0{address[1:]}"
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.sendto(state.encode(), address)


def _leave_after(seconds: float) -> None:
    """Whatever hangs, the process is gone by then; what it held is closed by others."""
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()
