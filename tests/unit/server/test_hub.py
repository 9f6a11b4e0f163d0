"""A client of the hub: what waited while it caught up is sent when it goes live, once."""

import asyncio

from killick.model import entries as e
from killick.server.hub import Client, _Told, event_bytes
from killick.session.follow import Cursor, FollowedItem


def told(seq: int) -> _Told:
    seen = FollowedItem(e.Entry(seq, 1, e.Note(id=f"n{seq}", name="n")), f"{seq}")
    return _Told(seen, event_bytes(seen))


def test_everything_that_waited_is_sent_when_the_client_goes_live() -> None:
    async def scenario() -> bytes | None:
        client = Client()
        for seq in (4, 5, 6):
            client.tell(told(seq))
        client.go_live(Cursor(3))
        client.tell(told(7))
        return await client.next()

    sent = asyncio.run(scenario())
    assert sent == b"".join(told(seq).data for seq in (4, 5, 6, 7))


def test_what_the_journal_has_given_already_is_not_sent_again() -> None:
    async def scenario() -> bytes | None:
        client = Client()
        for seq in (4, 5, 6):
            client.tell(told(seq))
        client.go_live(Cursor(5))
        return await client.next()

    assert asyncio.run(scenario()) == told(6).data
