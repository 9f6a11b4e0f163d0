"""Webhooks: the feed over all sessions, posted to a URL, each line at least once and in order.

A URL has a hidden session of its own. The server that sends to it holds a turn there, so one of
several servers sends, and another takes over when it dies. How far the receiver has answered is a
note in that session, written after its answer: a server that is killed sends the last line again.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import json
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from killick.errors import KillickError, UsageError
from killick.server.log import Log, cause
from killick.session.aio import AsyncSession, AsyncStore
from killick.session.news import News
from killick.session.runtime import Clock

SESSIONS: Final = "killick-webhook-"
"""How the ids of the hidden sessions begin; what happens in them is told to no receiver."""

_ANSWER_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = (1.0, 300.0)
_GIVEN_UP_US: Final = 86_400_000_000
"""After a day of failures a line goes to the dead letters, and the next ones pass."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One receiver. The secret signs each request and is in no store."""

    url: str
    secret: bytes | None = None
    private: bool = False
    """Whether its address may be of this machine or its network."""


Post = Callable[[Webhook, bytes, dict[str, str]], Awaitable[int]]
"""Posts a body, with these headers; returns the status of the answer. Raises OSError."""


def check_webhook(hook: Webhook) -> SplitResult:
    """Refuse a URL that nothing can be posted to, or a private address without permission."""
    try:
        parts = urlsplit(hook.url)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # as the resolver does
    except ValueError as error:
        raise UsageError(f"the webhook {hook.url!r} is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"a webhook's URL begins with http:// or https://, and {hook.url!r} not")
    if not hook.url.isascii() or not hook.url.isprintable() or " " in hook.url:
        raise UsageError(f"write what is not plain ASCII in {hook.url!r} as %XX, or as xn--")
    if parts.username is not None:
        raise UsageError(f"the webhook for {host} names a user, which the server would not send")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return parts  # a name: its addresses are checked when it is connected to
    check_address(hook, host)
    return parts


def check_address(hook: Webhook, address: str) -> None:
    """Refuse to connect to a private address without permission. Raises UsageError."""
    if not hook.private and not _is_public(address):
        raise UsageError(
            f"the webhook {hook.url!r} points at {address}, which is not a public address; allow "
            "it with --webhook-private"
        )


_ASSIGNED: Final = ipaddress.IPv6Network("2000::/3")
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")


def _is_public(address: str) -> bool:
    """Whether it is one host of the internet. One of IPv6 may stand for one of IPv4."""
    ip = ipaddress.ip_address(address)
    if ip.version == 6:
        inner = ip.ipv4_mapped or ip.sixtofour
        if ip in _TRANSLATED:
            inner = ipaddress.IPv4Address(ip.packed[-4:])
        if inner is None and ip not in _ASSIGNED:
            return False
        ip = inner or ip
    return ip.is_global and not ip.is_multicast


async def post(hook: Webhook, body: bytes, headers: dict[str, str]) -> int:
    """Post over a connection of its own, to an address that was checked. Follows no redirect."""
    parts = check_webhook(hook)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)
    address = str(addresses[0][4][0])
    check_address(hook, address)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    name = host if tls is not None else None
    reader, writer = await asyncio.open_connection(address, port, ssl=tls, server_hostname=name)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        shown = f"[{host}]" if ":" in host else host
        lines = {"Host": shown if parts.port is None else f"{shown}:{port}", **headers}
        lines |= {"Content-Length": str(len(body)), "Connection": "close"}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"POST {target} HTTP/1.1\r\n{head}\r\n".encode() + body)
        await writer.drain()
        try:
            status = (await reader.readline()).split(maxsplit=2)
        except ValueError as error:  # a line that does not end
            raise ConnectionError("the receiver's answer is not HTTP") from error
        if len(status) < 2 or not status[1].isdigit():
            raise ConnectionError("the receiver's answer is not HTTP")
        return int(status[1])
    finally:
        writer.close()


def signature(secret: bytes, at: int, body: bytes) -> str:
    """Return the time and the HMAC-SHA-256 over time, a point and the body."""
    signed = hmac.new(secret, f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={signed}"


def event_of(line: News) -> dict[str, Any]:
    """Return what a receiver is sent of a line; the same line has the same id."""
    return {
        "id": f"{line.session_id}/{line.seq}/{line.kind}",
        "session_id": line.session_id,
        "seq": line.seq,
        "kind": line.kind,
        "cause": line.cause,
    }


class WebhookSender:
    """Sends the feed to one receiver, for as long as it is this server's part."""

    def __init__(
        self,
        store: AsyncStore,
        hook: Webhook,
        log: Log,
        clock: Clock,
        *,
        send: Post = post,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._hook = hook
        self._log = log
        self._clock = clock
        self._post = send
        self._sleep = sleep
        digest = hashlib.sha256(hook.url.encode()).hexdigest()
        self.session_id = f"{SESSIONS}{digest[:32]}"
        self._host = urlsplit(hook.url).hostname
        """Logged in place of the URL, which may hold a secret."""

    async def run(self) -> None:
        """Send until it is cancelled. If interrupted: the line under way is sent again later."""
        while True:
            try:
                session = await self._store.open_session(self.session_id, type="hidden")
                async with session.turn(None, if_busy="wait"):
                    await self._send_all(session)
            except Exception as error:  # noqa: BLE001  (logged, and tried again)
                self._log.warning("webhook_failed", host=self._host, **cause(error))
                await self._sleep(_RETRY_SECONDS[0])

    async def _send_all(self, session: AsyncSession) -> None:
        kept = await session.notes(name="cursor", last=1)
        cursor = kept[-1].data if kept else None
        if not isinstance(cursor, str):
            cursor = await self._begin(session)
        async for line in self._store.follow(after=cursor):
            if not line.session_id.startswith(SESSIONS):
                if not await self._deliver(session, line):
                    await session.note("dead_letter", event_of(line))
                    self._log.warning("webhook_dead_letter", host=self._host, seq=line.seq)
                await session.note("cursor", line.cursor)

    async def _begin(self, session: AsyncSession) -> str:
        """Begin with what happens from now on."""
        following = self._store.follow(after="end")
        await following.now()
        await session.note("cursor", following.cursor)
        return following.cursor

    async def _deliver(self, session: AsyncSession, line: News) -> bool:
        """Post until the receiver answers with 2xx; False after a day of failures."""
        event, pause = event_of(line), _RETRY_SECONDS[0]
        body = json.dumps(event).encode()
        while True:
            try:
                # Not wait_for: in Python 3.11 it may swallow a cancellation.
                async with asyncio.timeout(_ANSWER_SECONDS):
                    status = await self._post(self._hook, body, self._headers(event, body))
                if 200 <= status < 300:
                    return True
                self._log.warning("webhook_refused", host=self._host, status=status)
            except (OSError, TimeoutError, KillickError) as error:
                self._log.warning("webhook_unreachable", host=self._host, **cause(error))
            if self._clock() - await self._failing_since(session, line) > _GIVEN_UP_US:
                return False
            await self._sleep(pause)
            pause = min(pause * 2, _RETRY_SECONDS[1])

    async def _failing_since(self, session: AsyncSession, line: News) -> int:
        """Return when the line first failed, with this server or one before it."""
        for note in await session.notes(name="failing_since", key=line.cursor):
            if isinstance(note.data, int):
                return note.data
        now = self._clock()
        await session.note("failing_since", now, key=line.cursor)
        return now

    def _headers(self, event: dict[str, Any], body: bytes) -> dict[str, str]:
        name = quote(event["id"], errors="surrogatepass")  # UTF-8 has no half of a pair
        headers = {"Content-Type": "application/json", "X-Killick-Event": name}
        if self._hook.secret is not None:
            at = self._clock() // 1_000_000
            headers["X-Killick-Signature"] = signature(self._hook.secret, at, body)
        return headers
