"""The feed reaches a receiver at least once and in order, whatever dies on the way."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from killick import AsyncSession, AsyncStore, UsageError
from killick.server.log import Log
from killick.server.webhooks import Webhook, WebhookSender, check_webhook, post, signature
from killick.stores.memory import MemoryDisk
from tests.server.conftest import Serve
from tests.waiting import until


class Receiver:
    """A receiver on loopback; `statuses` are its next answers, 200 when there are none left."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.requests: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((dict(self.headers), body))
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook?of=us"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def in_order(events: list[dict[str, Any]]) -> bool:
    seqs: dict[str, list[int]] = defaultdict(list)
    for event in events:
        if event["seq"] not in seqs[event["session_id"]]:
            seqs[event["session_id"]].append(event["seq"])
    return all(found == sorted(found) for found in seqs.values())


def test_every_line_comes_at_least_once_though_servers_are_killed(
    serve: Serve, receiver: Receiver
) -> None:
    """Two servers with one receiver, one of which is killed while it sends."""
    options = ("--webhook", receiver.url, "--lease", "2")
    first, second = serve(*options), serve(*options)
    sessions = [first.create() for _ in range(3)]
    receiver.statuses = [500, 302, 200, 503]
    wanted = 0
    for number in range(6):
        for session_id in sessions:
            server = second if number > 2 else first
            server.begin(session_id, "hello")
            server.until_end(session_id)
            wanted += 1
        if number == 2:
            first.kill()
    until(lambda: len({event["id"] for event in receiver.events}) == wanted, 60)
    assert in_order(receiver.events)
    assert {event["kind"] for event in receiver.events} == {"turn_ended"}
    for headers, body in receiver.requests:
        at = re.fullmatch(r"t=(\d+),v1=[0-9a-f]{64}", headers["X-Killick-Signature"])
        assert at is not None
        assert headers["X-Killick-Signature"] == signature(b"secret", int(at[1]), body)
        assert b"hello" not in body


def test_after_a_day_of_failures_the_next_ones_pass() -> None:
    """The line is among the dead letters, in the receiver's hidden session."""
    disk, days = MemoryDisk(), [0]
    hook = Webhook(url="https://example.com/")

    async def main() -> None:
        passed = asyncio.Event()

        async def answer(_hook: Webhook, body: bytes, _headers: dict[str, str]) -> int:
            event = json.loads(body)
            if event["session_id"] == "bad":
                days[0] += 1
                return 500
            passed.set()
            return 200

        async def no_rest(_seconds: float) -> None:
            await asyncio.sleep(0)

        async with AsyncStore(disk.open()) as store:
            # It goes on from where the receiver last answered: from the beginning.
            sender = WebhookSender(
                store, hook, Log(), lambda: days[0] * 90_000_000_000, send=answer, sleep=no_rest
            )
            hidden = await store.open_session(sender.session_id, type="hidden")
            following = store.follow(after="end")
            await following.now()
            await hidden.note("cursor", following.cursor)
            for name in ("bad", "good"):
                async with (await store.open_session(name)).turn("go"):
                    pass
            task = asyncio.create_task(sender.run())
            await passed.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            (letter,) = await hidden.notes(name="dead_letter")
            assert isinstance(letter.data, dict)
            assert letter.data["session_id"] == "bad"

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com",
        "example.com/hook",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://10.0.0.1/",
        "http://224.0.0.1/",
        "http://[ff0e::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",  # an address of IPv4, behind a translator
        "http://[64:ff9b:1::a00:1]/",
        "http://[2002:a00:1::]/",
        "http://[::1",
        "http://example.com:99999/",
        "http://user:word@example.com/",  # nobody would send it
        "http://example.com/a b",
        "http://example.com/\u00e4",
        f"http://{'a' * 64}.com/",
        "http://.",
    ],
)
def test_a_url_that_is_none_or_private_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        check_webhook(Webhook(url=url))


@pytest.mark.parametrize("host", ["8.8.8.8", "[::ffff:8.8.8.8]", "[64:ff9b::808:808]", "[2606::1]"])
def test_a_public_address_is_allowed_in_each_of_its_forms(host: str) -> None:
    check_webhook(Webhook(url=f"http://{host}:8080/hook?of=us"))


def test_a_name_is_checked_when_it_is_connected_to(receiver: Receiver) -> None:
    url = receiver.url.replace("127.0.0.1", "localhost")
    with pytest.raises(UsageError, match="--webhook-private"):
        asyncio.run(post(Webhook(url=url), b"{}", {}))
    assert asyncio.run(post(Webhook(url=url, private=True), b"{}", {})) == 200
    receiver.statuses = [302]
    assert asyncio.run(post(Webhook(url=url, private=True), b"{}", {})) == 302
    assert len(receiver.requests) == 2, "a redirect is not followed"


def sent(store: AsyncStore, hook: Webhook, **how: Any) -> WebhookSender:
    return WebhookSender(store, hook, Log(), lambda: 0, **how)


def test_a_day_of_failures_is_counted_across_servers() -> None:
    """A server that is replaced every hour would never pass a line that its receiver refuses."""
    disk, hours = MemoryDisk(), [0]
    hook = Webhook(url="https://example.com/")

    async def main() -> None:
        tried, passed = asyncio.Event(), asyncio.Event()

        async def answer(_hook: Webhook, body: bytes, _headers: dict[str, str]) -> int:
            if json.loads(body)["session_id"] == "bad":
                return 500
            passed.set()
            return 200

        async def rest(_seconds: float) -> None:
            tried.set()
            await asyncio.Event().wait()

        async def serve_until(happened: asyncio.Event) -> None:
            async with AsyncStore(disk.open()) as store:
                sender = WebhookSender(
                    store, hook, Log(), lambda: hours[0] * 3_600_000_000, send=answer, sleep=rest
                )
                task = asyncio.create_task(sender.run())
                await happened.wait()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        async with AsyncStore(disk.open()) as store:
            hidden = await from_here(store, sent(store, hook))
            for name in ("bad", "good"):
                async with (await store.open_session(name)).turn("go"):
                    pass
        for hours[0] in range(25):
            tried.clear()
            await serve_until(tried)
        assert not passed.is_set()
        hours[0] = 25
        await serve_until(passed)
        async with AsyncStore(disk.open()) as store:
            (letter,) = await (await store.session(hidden.id)).notes(name="dead_letter")
        assert isinstance(letter.data, dict)
        assert letter.data["session_id"] == "bad"

    asyncio.run(asyncio.wait_for(main(), 30))


async def from_here(store: AsyncStore, sender: WebhookSender) -> AsyncSession:
    """Have it send what happens from now on, though it begins later; its hidden session."""
    hidden = await store.open_session(sender.session_id, type="hidden")
    following = store.follow(after="end")
    await following.now()
    await hidden.note("cursor", following.cursor)
    return hidden


@pytest.mark.parametrize(
    "named", ["s\r\nX-Killick-Signature: t=1,v1=forged\r\n\r\n{}", "half a \ud83e"]
)
def test_no_id_of_a_session_adds_headers(receiver: Receiver, named: str) -> None:
    """Nor keeps any line from being sent. Another program may have named the session."""

    async def main() -> None:
        async with AsyncStore(MemoryDisk().open()) as store:
            sender = sent(store, Webhook(url=receiver.url, private=True))
            await from_here(store, sender)
            async with (await store.open_session(named)).turn("go"):
                pass
            task = asyncio.create_task(sender.run())
            await asyncio.to_thread(until, lambda: receiver.requests)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 30))
    headers, body = receiver.requests[0]
    assert "X-Killick-Signature" not in headers
    assert json.loads(body)["session_id"] == named


def test_the_log_names_no_url_and_a_line_without_end_is_no_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A URL may be a secret, as those of chat services are; the line is sent again, later."""
    waits: list[float] = []

    async def main() -> None:
        waited = asyncio.Event()

        async def babble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"x" * 200_000)
            with contextlib.suppress(OSError):
                await writer.drain()
            writer.close()

        async def rest(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 3:
                waited.set()
            await asyncio.sleep(0)

        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        hook = Webhook(url=f"http://127.0.0.1:{port}/hooks/s3cret", private=True)
        async with server, AsyncStore(MemoryDisk().open()) as store:
            sender = sent(store, hook, sleep=rest)
            await from_here(store, sender)
            async with (await store.open_session("s")).turn("go"):
                pass
            task = asyncio.create_task(sender.run())
            await waited.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 30))
    assert waits[:3] == [1.0, 2.0, 4.0], "each attempt waits longer"
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    assert any(each.get("host") == "127.0.0.1" for each in fields)
    assert "s3cret" not in str(fields)


def test_the_command_refuses_a_private_webhook(tmp_path: Path) -> None:
    words = ["serve", "--webhook", "http://127.0.0.1/", "--store", str(tmp_path / "w.db")]
    done = subprocess.run(
        [sys.executable, "-m", "killick.cli", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--webhook-private" in done.stderr
