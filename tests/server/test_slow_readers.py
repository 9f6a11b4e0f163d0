"""A reader that does not read costs nothing to the others, and is told to reload."""

import asyncio

import pytest

from holdfast.model import entries as e
from holdfast.server.hub import QUEUE_BYTES, Client, _Told, event_bytes
from holdfast.session.place import Place, Seen


def told(seq: int, text: str) -> _Told:
    entry = e.Entry(seq, 0, e.Note(id=f"n{seq}", name="n", data=text))
    seen = Seen(entry, str(seq))
    return _Told(seen, event_bytes(seen))


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
