"""One proxy from its first line of log to its last."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from typing import Final
from urllib.parse import urlsplit

import uvicorn

from killick.errors import UsageError
from killick.proxy.conversations import Conversations
from killick.proxy.forward import AnswerCut, Application, Proxy, ProxySettings
from killick.proxy.upstream import Upstream
from killick.server.auth import Tokens, is_loopback
from killick.server.connections import QuietServer, bind, check_exposure
from killick.server.log import Log
from killick.session.aio import AsyncStore

LOGGER: Final = logging.getLogger("killick.proxy")


class _Quiet(logging.Filter):
    """Leaves out what uvicorn says of answers cut off by intention, and of offers of HTTP/2."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        offered = str(record.msg).startswith(("Unsupported upgrade", "No supported WebSocket"))
        return not (offered or isinstance(error, AnswerCut))


def check_reachable(settings: ProxySettings) -> None:
    """Refuse an upstream whose host has no address, or that is this proxy. Raises UsageError."""
    parts = urlsplit(settings.upstream)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--upstream names {host!r}, which has no address: {error}") from error
    if port == settings.port and is_loopback(host) and is_loopback(settings.host):
        raise UsageError("--upstream is this proxy itself; name the model's server")


async def serve(
    make_store: Callable[[], AsyncStore],
    settings: ProxySettings,
    tokens: Tokens,
    ready: Callable[[str], None] = lambda _url: None,
) -> None:
    """Pass requests on until SIGTERM or SIGINT, then let answers finish, end turns, and leave.

    If interrupted: turns that still run are closed by the next to open their sessions.
    """
    check_exposure(settings.host, tokens)
    check_reachable(settings)
    log = Log(LOGGER)
    listener = bind(settings.host, settings.port)
    logging.getLogger("uvicorn.error").addFilter(_Quiet())
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listener.close)
        store = await stack.enter_async_context(make_store())
        upstream = await stack.enter_async_context(Upstream(settings.upstream))
        conversations = Conversations(store, abandon_seconds=settings.abandon_seconds)
        proxy = Proxy(settings, conversations, upstream, tokens, log)
        stack.push_async_callback(conversations.shut_down)
        await run(proxy, listener, settings, log, ready)
    log.info("ended")


async def run(
    app: Application,
    listener: socket.socket,
    settings: ProxySettings,
    log: Log,
    ready: Callable[[str], None],
) -> None:
    """Serve an application on a socket until a signal comes."""
    server = QuietServer(
        uvicorn.Config(
            app,
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            lifespan="off",
            http="h11",  # whatever else is installed: what is tested
            ws="none",
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
        )
    )
    async with _sweeping(app), _ending(server, log):
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        port = listener.getsockname()[1]
        ready(f"http://{host}:{port}")
        log.info("serving", host=settings.host, port=port, pid=os.getpid())
        await server.serve(sockets=[listener])


@contextlib.asynccontextmanager
async def _sweeping(app: object) -> AsyncIterator[None]:
    """End turns that no request comes for, while the proxy runs."""
    if not isinstance(app, Proxy):
        yield
        return
    every = min(5.0, app.settings.abandon_seconds / 4)

    async def sweep() -> None:
        while True:
            await asyncio.sleep(every)
            try:
                app.figures.abandoned += await app.conversations.end_abandoned()
            except Exception as error:  # noqa: BLE001  (the store may come back)
                app.degraded("abandoned", error)

    sweeping = asyncio.create_task(sweep())
    try:
        yield
    finally:
        sweeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sweeping


@contextlib.asynccontextmanager
async def _ending(server: uvicorn.Server, log: Log) -> AsyncIterator[None]:
    """On a signal: take no more requests, let answers finish for a while. A second hurries."""
    loop = asyncio.get_running_loop()

    def ask(name: str) -> None:
        log.info("signal", name=name)
        server.force_exit = server.should_exit
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask, number.name)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
