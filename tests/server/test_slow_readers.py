"""A reader that does not read costs nothing to the others, and is told to reload."""

import asyncio
import socket
from pathlib import Path

import pytest

from killick import AsyncStore
from killick.errors import StoreReadOnly
from killick.model import entries as e
from killick.server.hub import QUEUE_BYTES, Client, Hub, _Told, event_bytes
from killick.server.log import Log
from killick.session.follow import Cursor, Fed, FollowedItem
from tests.server.client import Server, texts


def told(seq: int, text: str) -> _Told:
    entry = e.Entry(seq, 0, e.Note(id=f"n{seq}", name="n", data=text))
    seen = FollowedItem(entry, str(seq))
    return _Told(seen, event_bytes(seen))


def test_a_reader_that_never_reads_costs_the_others_nothing(server: Server) -> None:
    """More goes by than the kernel keeps for it. It is told to reload when it reads again."""
    session_id = server.create()
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        request = f"GET /api/sessions/{session_id}/events HTTP/1.1\r\nHost: {host}\r\n\r\n"
        stuck.sendall(request.encode())
        assert b"200 OK" in stuck.recv(1000)
        after = None
        for _ in range(12):
            server.begin(session_id, "flood 8 40000")
            seen = server.until_end(session_id, after)
            after = seen[-1].id
            assert [len(text) for text in texts(seen).values()] == [8 * 40_000]
        rest = b""
        while not rest.endswith(b"0\r\n\r\n"):
            rest = rest[-2_000:] + stuck.recv(1_000_000)
        assert b"event: reload" in rest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_a_client_that_is_too_far_behind_holds_no_memory_and_is_told_to_reload() -> None:
    client = Client()
    client.go_live(Cursor(0))
    for seq in range(1, 40):
        client.tell(told(seq, "x" * 100_000))
    assert await client.next() is None
    assert client.last_words is not None
    assert b'"too_far_behind"' in client.last_words
    assert QUEUE_BYTES < 39 * 100_000


@pytest.mark.anyio
async def test_what_waits_while_a_client_catches_up_is_not_said_twice() -> None:
    client = Client()
    for seq in (1, 2, 3):
        client.tell(told(seq, "x"))
    client.go_live(Cursor(2))
    data = await client.next()
    assert data is not None
    assert data.count(b"id: ") == 1
    assert b"id: 3\n" in data


@pytest.mark.anyio
async def test_waiting_ends_when_something_comes() -> None:
    client = Client()
    client.go_live(Cursor(0))
    waiting = asyncio.ensure_future(client.next())
    await asyncio.sleep(0)
    client.tell(told(1, "x"))
    assert b"id: 1\n" in (await waiting or b"")


@pytest.mark.anyio
async def test_who_comes_while_a_stuck_reader_is_being_sent_away_hears_everything(
    tmp_path: Path,
) -> None:
    """A session could not be read for a moment: its readers reload, and one never leaves."""
    async with AsyncStore(tmp_path / "work.db") as store:
        session = await store.create_session()
        hub = Hub(store, Log())
        hub.start()
        stuck, fresh = Client(), Client()
        with hub.listening(session, stuck):
            hub._tell(Fed(session.id, [], StoreReadOnly("for a moment")))
            assert stuck.over
            with hub.listening(session, fresh):
                fresh.go_live(Cursor(session.head))
                await session.rename("New")
                assert b"event: renamed" in (await fresh.next() or b"")
        await hub.close()


@pytest.mark.anyio
async def test_an_item_that_cannot_be_told_ends_the_streams_of_its_session_alone(
    tmp_path: Path,
) -> None:
    async with AsyncStore(tmp_path / "work.db") as store:
        session, other = await store.create_session(), await store.create_session()
        hub = Hub(store, Log())
        hub.start()
        broken, well = Client(), Client()
        with hub.listening(session, broken), hub.listening(other, well):
            for client, of in ((broken, session), (well, other)):
                client.go_live(Cursor(of.head))
            broken.tell = lambda told: 1 / 0  # type: ignore[method-assign, assignment]
            await session.rename("One")
            await other.rename("Two")
            assert b"event: renamed" in (await well.next() or b"")
            assert await broken.next() is None
            assert b"internal_error" in (broken.last_words or b"")
        await hub.close()
