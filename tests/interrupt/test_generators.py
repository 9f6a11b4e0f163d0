"""A generator that holds the blocks; that it is closed at each yield is a campaign."""

import trio

from tests.interrupt.closing import chunks
from tests.interrupt.driving import Disk
from tests.interrupt.ledger import Ledger


def test_closed_under_a_scope_of_its_own_in_trio(disk: Disk) -> None:
    """The generator keeps no scope open at a yield, so another one may lie around its closing."""
    ledger = Ledger()

    async def main() -> None:
        async with disk.aio() as store:
            session = await store.create_session()
            generator = chunks(session, ledger)
            await anext(generator)
            with trio.CancelScope(shield=True):
                await generator.aclose()

    trio.run(main)
    with disk.sync() as fresh:
        ledger.check(fresh)
        [info] = fresh.sessions()
        [turn] = fresh.session(info.id).turns()
        assert (turn.status, turn.reason) == ("interrupted", "closed")
