"""A reader that does not read costs nothing to the others, and is told to reload."""

import asyncio
import socket

import pytest

from holdfast.model import entries as e
from holdfast.server.hub import QUEUE_BYTES, Client, _Told, event_bytes
from holdfast.session.place import Place, Seen
from tests.server.client import Server, texts


def told(seq: int, text: str) -> _Told:
    entry = e.Entry(seq, 0, e.Note(id=f"n{seq}", name="n", data=text))
    seen = Seen(entry, str(seq))
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
    client.go_live(Place(0))
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
    client.go_live(Place(2))
    data = await client.next()
    assert data is not None
    assert data.count(b"id: ") == 1
    assert b"id: 3\n" in data


@pytest.mark.anyio
async def test_waiting_ends_when_something_comes() -> None:
    client = Client()
    client.go_live(Place(0))
    waiting = asyncio.ensure_future(client.next())
    await asyncio.sleep(0)
    client.tell(told(1, "x"))
    assert b"id: 1\n" in (await waiting or b"")
