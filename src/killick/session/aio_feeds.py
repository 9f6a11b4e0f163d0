"""Sessions as they happen, for the asynchronous face: one of them, or many read together."""

from typing import Self

from killick.session.core.session import SessionCore
from killick.session.drive.drive_async import settle
from killick.session.drive.steps import Flow, Pause
from killick.session.feeds import (
    REST_SECONDS,
    FedSessions,
    FollowedSession,
    FollowedStore,
    Seen,
)
from killick.session.follow import Cursor, Fed, Followed, FollowedItem, Follower, look
from killick.session.news import News
from killick.session.parts import PartEvent, PartFollower, PartItem
from killick.session.runtime import Runtime


class _AsyncIterated(FollowedSession[Seen]):
    def __aiter__(self) -> Self:
        return self

    async def _next(self) -> Seen:
        runtime = self._interest.runtime
        while not self._seen:
            if self._interest.over:
                raise StopAsyncIteration
            since = runtime.watcher.generation
            await settle(runtime, look(runtime, self._look))
            if not self._seen and self._follower.live:
                await settle(runtime, _rest(since, key=self._interest.key))
        item = self._seen.popleft()
        self.cursor = item.cursor
        return item

    async def _page(self) -> list[Seen]:
        runtime = self._interest.runtime
        while not self._seen:
            await settle(runtime, look(runtime, self._look))
            if self._follower.live:
                break
        given = list(self._seen)
        self._seen.clear()
        if given:
            self.cursor = given[-1].cursor
        return given

    async def aclose(self) -> None:
        """Stop following; leaving the loop and forgetting this object does the same."""
        self._interest.end()


class AsyncPartEvents(_AsyncIterated[PartItem]):
    """Iterates over the parts of a session's messages; it may simply be dropped."""

    def __init__(self, core: SessionCore, after: int | str) -> None:
        super().__init__(core, PartFollower(core.key, after), after)

    async def __anext__(self) -> PartEvent:
        return (await self._next()).item


class AsyncFollowing(_AsyncIterated[FollowedItem]):
    """Iterates over what `follow` finds; it may simply be dropped, on every event loop."""

    def __init__(self, core: SessionCore, after: int | str) -> None:
        super().__init__(core, Follower(core.key, after), after)

    async def __anext__(self) -> Followed:
        return (await self._next()).item

    async def now(self) -> list[FollowedItem]:
        """Return a page of what is there now, with cursors; nothing once all was given."""
        return await self._page()

    @property
    def place(self) -> Cursor:
        """The cursor so far; it tells what of an item from elsewhere is new."""
        return self._follower.cursor


class AsyncFeed(FedSessions):
    """Iterates over what is new in any of its sessions."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._since = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Fed]:
        while not self._interest.over:
            fed = await self.now()
            if fed:
                return fed
            await self.pause()
        raise StopAsyncIteration

    async def now(self) -> list[Fed]:
        """Return what is new, without waiting."""
        runtime = self._interest.runtime
        self._since = self._core.since = runtime.watcher.generation
        await settle(runtime, look(runtime, self._core.poll))
        return self._core.take()

    async def pause(self) -> None:
        """Wait until there may be something that the last look did not see."""
        if self._core.live:
            await settle(self._interest.runtime, _rest(self._since))

    def wake(self) -> None:
        """End a pause."""
        self._interest.runtime.watcher.bump()

    async def aclose(self) -> None:
        """Stop; forgetting this object does the same."""
        self._interest.end()


class AsyncStoreFollowing(FollowedStore):
    """Iterates over the feed of all sessions; it may simply be dropped, on every event loop."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> News:
        runtime = self._interest.runtime
        while not self._lines:
            if self._interest.over:
                raise StopAsyncIteration
            since = runtime.watcher.generation
            await settle(runtime, look(runtime, self._look))
            if not self._lines and self._follower.live:
                await settle(runtime, _rest(since, runtime.database.pace().news))
        return self._take()

    async def now(self) -> list[News]:
        """Return a page of what is there now, without waiting; nothing once all was given."""
        runtime = self._interest.runtime
        while not self._lines:
            await settle(runtime, look(runtime, self._look))
            if self._follower.live:
                break
        if not self._lines:
            self.cursor = self._follower.cursor if self.cursor == "end" else self.cursor
        return [self._take() for _ in range(len(self._lines))]

    async def aclose(self) -> None:
        """Stop following; leaving the loop and forgetting this object does the same."""
        self._interest.end()


def _rest(since: int, seconds: float = REST_SECONDS, key: int = 0) -> Flow[None]:
    yield Pause(since, seconds, key)
