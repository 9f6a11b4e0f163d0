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
_GIVEN_UP_SECONDS: Final = 86_400.0
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
    """Refuse a URL that is not http(s), or that names a private address without permission."""
    parts = urlsplit(hook.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"a webhook's URL begins with http:// or https://, and {hook.url!r} not")
    try:
        address = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return parts  # a name: its addresses are checked when it is connected to
    check_address(hook, str(address))
    return parts


def check_address(hook: Webhook, address: str) -> None:
    """Refuse to connect to a private address without permission. Raises UsageError."""
    if not hook.private and not ipaddress.ip_address(address).is_global:
        raise UsageError(
            f"the webhook {hook.url!r} points at {address}, which is not a public address; allow "
            "it with --webhook-private"
        )


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
                if not await self._deliver(event_of(line)):
                    await session.note("dead_letter", event_of(line))
                    self._log.warning("webhook_dead_letter", host=self._host, seq=line.seq)
                await session.note("cursor", line.cursor)

    async def _begin(self, session: AsyncSession) -> str:
        """Begin with what happens from now on."""
        following = self._store.follow(after="end")
        await following.now()
        await session.note("cursor", following.cursor)
        return following.cursor

    async def _deliver(self, event: dict[str, Any]) -> bool:
        """Post until the receiver answers with 2xx; False after a day of failures."""
        began, pause = self._clock(), _RETRY_SECONDS[0]
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
            if self._clock() - began > _GIVEN_UP_SECONDS * 1_000_000:
                return False
            await self._sleep(pause)
            pause = min(pause * 2, _RETRY_SECONDS[1])

    def _headers(self, event: dict[str, Any], body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "X-Killick-Event": quote(event["id"])}
        if self._hook.secret is not None:
            at = self._clock() // 1_000_000
            headers["X-Killick-Signature"] = signature(self._hook.secret, at, body)
        return headers
