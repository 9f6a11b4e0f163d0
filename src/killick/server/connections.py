"""Connections that a server takes: fewer than it may open files, and none that says nothing.

uvicorn has no time limit for the head of a request and no limit of connections that holds before
one was read. A class on top of its protocol has both; see decision 0064.
"""

import asyncio
import contextlib
import resource
import socket
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from killick.errors import UsageError
from killick.server.auth import Tokens, is_loopback

WAITING_MAX: Final = 2_048
"""Connections that the kernel lets wait until they are taken."""

WANTED_FILES: Final = 65_536
OWN_FILES: Final = 128
"""Kept for the store, the log, the tools' pipes and their files."""

KEPT_FOR_HEALTH: Final = 8
"""Connections beyond the limit that are read, so that /healthz is answered; all else is refused."""

_HEALTH: Final = (b"GET /livez ", b"GET /healthz ", b"GET /readyz ")
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Retry-After: 5\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
)
_FULL_BODY: Final = (
    b'{"code":"too_many_connections","message":"Too many connections are open here; try again."}'
)


class QuietServer(uvicorn.Server):
    """uvicorn without its own signals: the program that serves decides how it ends."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def, override, unused-ignore]
        yield


def check_exposure(host: str, tokens: Tokens) -> None:
    """Without a token, serve only loopback clients. Raises UsageError."""
    if not is_loopback(host) and not tokens.any():
        raise UsageError(
            f"{host} can be reached from elsewhere, and no token is set; make one with "
            "'killick token make NAME', or serve on 127.0.0.1"
        )


def bind(host: str, port: int) -> socket.socket:
    """Return the socket to serve on. Raises UsageError when the address cannot be had."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(WAITING_MAX)  # who connects before uvicorn is ready waits
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot serve on {host}:{port}: {error.strerror}; try --port") from error
    return listener


def raise_file_limit() -> int:
    """Raise this process's limit of open files as far as it may; return what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WANTED_FILES if soft == resource.RLIM_INFINITY else soft


def connection_limit(files: int) -> int:
    """Return how many connections leave enough files for everything else."""
    return max(16, files - OWN_FILES - KEPT_FOR_HEALTH)


def protocol_for(limit: int, head_seconds: float) -> type[H11Protocol]:
    """Return the protocol of a server that takes so many connections.

    `head_seconds` is how long a request's head may take, from the connection or its first byte on.
    """
    known = {"limit": limit, "head_seconds": head_seconds, "silent": {}}
    return type("LimitedProtocol", (_Limited,), known)


class _Limited(H11Protocol):
    """One connection. It is closed when its request's head, or more of its body, is not in time.

    Connections without a request take no place: when there are too many, the one that has been
    silent for longest is closed. Where all places are taken by requests, a new one is told to come
    back, unless it asks how the server is.
    """

    limit: int
    head_seconds: float
    silent: dict["_Limited", None]
    """Connections whose request is not there yet, the oldest first."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._begun: bytes | None = b""
        """What came before the connection had a place; None once it has one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()
        while len(self.connections) > self.limit + KEPT_FOR_HEALTH and self.silent:
            next(iter(self.silent)).give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._begun is not None:
            data = self._admitted(data)
            if not data:
                return
        answered = self.cycle is None or self.cycle.response_complete
        if answered and self._deadline is None:
            self._expect_head()  # the first bytes of the next request on this connection
        before = self.cycle
        super().data_received(data)
        if self.conn.their_state is h11.SEND_BODY:
            self._forget_head()
            self._expect_head()  # more of the body: until it is whole, it takes no place
        elif self.cycle is not before or self._is_whole():
            self._forget_head()

    def _is_whole(self) -> bool:
        """Return whether a request is there whose answer is not."""
        return self.cycle is not None and not self.cycle.response_complete

    def _admitted(self, data: bytes) -> bytes:
        """Return what was sent if there is a place, or it asks how the server is; else nothing."""
        begun = (self._begun or b"") + data
        if len(self.connections) - len(self.silent) < self.limit:
            self._begun = None
            return begun
        if begun.startswith(_HEALTH):
            self._begun = None
            self.timeout_keep_alive = 0  # its place is for the next that asks
            return begun
        self._begun = begun
        if not any(path.startswith(begun) for path in _HEALTH):
            self._forget_head()
            self.transport.write(_FULL % (len(_FULL_BODY), _FULL_BODY))
            self.transport.close()
        return b""

    def _expect_head(self) -> None:
        self.silent[self] = None
        self._deadline = self.loop.call_later(self.head_seconds, self.give_up)

    def _forget_head(self) -> None:
        self.silent.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def give_up(self) -> None:
        """Close a connection that says nothing; it is no longer counted."""
        self._forget_head()
        self.connections.discard(self)
        if not self.transport.is_closing():
            self.transport.abort()
