"""Sessions as they happen, for the synchronous face: one of them, or many read together."""

import weakref
from collections import deque
from typing import Generic, Protocol, Self, TypeVar

from killick.session.core.session import SessionCore
from killick.session.drive.steps import run
from killick.session.follow import (
    AnyFollower,
    Fed,
    FeedCore,
    Followed,
    FollowedItem,
    Follower,
    look,
)
from killick.session.news import News, NewsFollower
from killick.session.parts import PartEvent, PartFollower, PartItem
from killick.session.runtime import Runtime
from killick.stores.contract import Reader

REST_SECONDS = 30.0
"""The longest pause between two looks. A commit ends it at once, and so does a store that fails."""


class HasCore(Protocol):
    """A session of either face."""

    @property
    def _core(self) -> SessionCore: ...


class Interest:
    """Keeps the store looking for what others commit, until it is over or forgotten."""

    def __init__(self, runtime: Runtime, key: int = 0) -> None:
        self.runtime = runtime
        self.key = key
        interest = runtime.watcher.following(key)
        interest.__enter__()
        self._finaliser = weakref.finalize(self, interest.__exit__, None, None, None)
        self._finaliser.atexit = False

    @property
    def over(self) -> bool:
        return self.runtime.watcher.closed or not self._finaliser.alive

    def end(self) -> None:
        self._finaliser()
        # Wakes a caller that waits on another thread.
        self.runtime.watcher.bump((self.key,) if self.key else None)


Seen = TypeVar("Seen", FollowedItem, PartItem)


class FollowedSession(Generic[Seen]):
    """One session as it is followed, the same on both faces."""

    def __init__(self, core: SessionCore, follower: AnyFollower[Seen], after: int | str) -> None:
        self._follower: AnyFollower[Seen] = follower
        self._seen: deque[Seen] = deque()
        self._interest = Interest(core.runtime(), core.key)
        self.cursor = str(after)
        """Where `after=…` goes on after what was given last, mid-message too."""

    def _look(self, reader: Reader) -> None:
        # Kept before anything else can be interrupted: it counts as shown now.
        self._seen.extend(self._follower.poll(reader))


class _Iterated(FollowedSession[Seen]):
    def __iter__(self) -> Self:
        return self

    def _next(self) -> Seen:
        runtime = self._interest.runtime
        while not self._seen:
            if self._interest.over:
                raise StopIteration
            since = runtime.watcher.generation
            run(runtime, look(runtime, self._look))
            if not self._seen and self._follower.live:
                runtime.watcher.wait(since, REST_SECONDS, self._interest.key)
        item = self._seen.popleft()
        self.cursor = item.cursor
        return item

    def close(self) -> None:
        """Stop following; leaving the loop and forgetting this object does the same."""
        self._interest.end()


class Following(_Iterated[FollowedItem]):
    """Iterates over what `follow` finds; it may simply be dropped."""

    def __init__(self, core: SessionCore, after: int | str) -> None:
        super().__init__(core, Follower(core.key, after), after)

    def __next__(self) -> Followed:
        return self._next().item


class PartEvents(_Iterated[PartItem]):
    """Iterates over the parts of a session's messages; it may simply be dropped."""

    def __init__(self, core: SessionCore, after: int | str) -> None:
        super().__init__(core, PartFollower(core.key, after), after)

    def __next__(self) -> PartEvent:
        return self._next().item


class FedSessions:
    """Sessions that a feed reads together, the same on both faces."""

    def __init__(self, runtime: Runtime) -> None:
        self._core = FeedCore(runtime.watcher.has_moved)
        self._interest = Interest(runtime)

    def follow(self, session: HasCore, after: int | str = 0) -> None:
        """Add a session, or begin anew with it."""
        core = session._core
        interest = Interest(core.runtime(), core.key)
        self._core.follow(core.id, Follower(core.key, after), interest.end)
        self._interest.runtime.watcher.bump()

    def unfollow(self, session_id: str) -> None:
        """Leave a session out from now on."""
        self._core.unfollow(session_id)


class Feed(FedSessions):
    """Iterates over what is new in any of its sessions."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[Fed]:
        runtime = self._interest.runtime
        while not self._interest.over:
            since = self._core.since = runtime.watcher.generation
            run(runtime, look(runtime, self._core.poll))
            fed = self._core.take()
            if fed:
                return fed
            if self._core.live:
                runtime.watcher.wait(since, REST_SECONDS)
        raise StopIteration

    def close(self) -> None:
        """Stop; forgetting this object does the same."""
        self._interest.end()


class FollowedStore:
    """A whole store as it is followed, the same on both faces."""

    def __init__(self, runtime: Runtime, after: int | str, *, waiting: bool) -> None:
        self._follower = NewsFollower(runtime.tenant, after, waiting=waiting)
        self._lines: deque[News] = deque()
        self._interest = Interest(runtime)
        self.cursor = str(after)
        """Where `after=…` goes on after the line that was given last."""

    def _look(self, reader: Reader) -> None:
        self._lines.extend(self._follower.poll(reader))

    def _take(self) -> News:
        line = self._lines.popleft()
        self.cursor = line.cursor
        return line


class StoreFollowing(FollowedStore):
    """Iterates over the feed of all sessions; it may simply be dropped."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> News:
        runtime = self._interest.runtime
        while not self._lines:
            if self._interest.over:
                raise StopIteration
            since = runtime.watcher.generation
            run(runtime, look(runtime, self._look))
            if not self._lines and self._follower.live:
                runtime.watcher.wait(since, runtime.database.pace().news)
        return self._take()

    def now(self) -> list[News]:
        """Return a page of what is there now, without waiting; nothing once all was given."""
        runtime = self._interest.runtime
        while not self._lines:
            run(runtime, look(runtime, self._look))
            if self._follower.live:
                break
        if not self._lines:
            self.cursor = self._follower.cursor if self.cursor == "end" else self.cursor
        return [self._take() for _ in range(len(self._lines))]

    def close(self) -> None:
        """Stop following; leaving the loop and forgetting this object does the same."""
        self._interest.end()
