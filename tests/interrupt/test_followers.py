"""Who follows and is cancelled, as by a limit on the time to wait, goes on where it was."""

import anyio
import pytest

from killick import AsyncStore
from killick.stores.memory import MemoryDisk

pytestmark = pytest.mark.parametrize("loop", ["asyncio", "trio"])


def test_a_follower_that_is_cancelled_while_it_looks_misses_nothing(loop: str) -> None:
    async def main() -> None:
        async with AsyncStore(MemoryDisk().open()) as store:
            session = await store.create_session()
            await session.note("kept")
            following = session.follow()
            with anyio.CancelScope() as scope:
                scope.cancel()
                await anext(following)
            assert scope.cancelled_caught
            kinds = [(await anext(following)).kind for _ in range(2)]
            assert (kinds, following.cursor) == (["session_created", "note"], "2")

    anyio.run(main, backend=loop)


def test_a_feed_that_is_cancelled_while_it_looks_misses_nothing(loop: str) -> None:
    async def main() -> None:
        async with AsyncStore(MemoryDisk().open()) as store:
            session = await store.create_session()
            feed = store.feed()
            feed.follow(session)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await feed.now()
            assert scope.cancelled_caught
            [fed] = await feed.now()
            assert [seen.item.kind for seen in fed.seen] == ["session_created"]
            await feed.aclose()

    anyio.run(main, backend=loop)


def test_what_a_feed_had_found_of_a_session_goes_with_the_session(loop: str) -> None:
    async def main() -> None:
        async with AsyncStore(MemoryDisk().open()) as store:
            one, other = await store.create_session(), await store.create_session()
            feed = store.feed()
            feed.follow(one)
            feed.follow(other)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await feed.now()
            feed.unfollow(one.id)
            assert [fed.session_id for fed in await feed.now()] == [other.id]
            await feed.aclose()

    anyio.run(main, backend=loop)
