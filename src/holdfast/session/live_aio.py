"""Sessions as they happen, for the asynchronous face: one of them, or many read together."""

from collections import deque
from typing import TYPE_CHECKING, Self

from holdfast.session.core import SessionCore
from holdfast.session.following import Fed, FeedCore, Follower
from holdfast.session.live import REST_SECONDS, HasCore, Interest
from holdfast.session.place import Followed, Seen
from holdfast.session.settling import settle
from holdfast.session.steps import Flow, Pause, read

if TYPE_CHECKING:
    from holdfast.session.runtime import Runtime


class AsyncFollowing:
    """What `follow` gives: an iterator that may simply be dropped, on every event loop."""

    def __init__(self, core: SessionCore, after: int | str) -> None:
        self._follower = Follower(core.key, after)
        self._seen: deque[Seen] = deque()
        self._interest = Interest(core.runtime())
        self.cursor = str(after)
        """Where `follow(after=…)` goes on after what was given last, mid-message too."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Followed:
        runtime = self._interest.runtime
        while not self._seen:
            if self._interest.over:
                raise StopAsyncIteration
            since = runtime.watcher.generation
            self._seen.extend(await settle(runtime, read(self._follower.poll)))
            if not self._seen and self._follower.live:
                await settle(runtime, _rest(since))
        item, self.cursor = self._seen.popleft()
        return item

    async def aclose(self) -> None:
        """Stop following; leaving the loop and forgetting this object does the same."""
        self._interest.end()


class AsyncFeed:
    """What `feed` gives: what is new in any of its sessions, each time there is something."""

    def __init__(self, runtime: "Runtime") -> None:
        self._core = FeedCore()
        self._interest = Interest(runtime)

    def follow(self, session: HasCore, after: int | str = 0) -> None:
        """Add a session, or begin anew with it."""
        core = session._core
        self._core.follow(core.id, Follower(core.key, after))
        self._interest.runtime.watcher.bump()

    def unfollow(self, session_id: str) -> None:
        """Leave a session out from now on."""
        self._core.unfollow(session_id)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Fed]:
        runtime = self._interest.runtime
        while not self._interest.over:
            since = runtime.watcher.generation
            fed = await settle(runtime, read(self._core.poll))
            if fed:
                return fed
            if self._core.live:
                await settle(runtime, _rest(since))
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop; forgetting this object does the same."""
        self._interest.end()


def _rest(since: int) -> Flow[None]:
    yield Pause(since, REST_SECONDS)
