"""A commit wakes those who follow its session, and none of the others."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from killick import AsyncSession, AsyncStore, Store
from killick.session.follow import Follower
from killick.stores.contract import Reader
from tests.postgres_fixtures import OnServer, shared

SILENT = 50
COMMITS = 20


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often the followers of each session looked at the store."""
    counts: Counter[int] = Counter()
    poll = Follower.poll

    def counted(follower: Follower, reader: Reader) -> object:
        counts[follower.key] += 1
        return poll(follower, reader)

    monkeypatch.setattr(Follower, "poll", counted)
    return counts


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "work.db")
    else:
        yield OnServer(shared("18")).at(str(tmp_path))


async def _hear(session: AsyncSession, heard: list[str]) -> None:
    async for item in session.follow(after=session.head):
        heard.append(type(item).__name__)


async def _follow_while(where: str, polls: Counter[int], *, foreign: bool) -> tuple[int, int]:
    """Commit to one of many sessions; return how often the others were looked at, and it."""
    async with AsyncStore(where, indexing=False) as store, anyio.create_task_group() as tasks:
        silent = [await store.create_session() for _ in range(SILENT)]
        busy = await store.create_session(id="busy")
        heard: list[str] = []
        for session in silent:
            tasks.start_soon(_hear, session, [])
        tasks.start_soon(_hear, busy, heard)
        keys = {session._core.key for session in silent}
        await _until(lambda: len(polls) == SILENT + 1)
        await busy.rename("before")  # after this all are known: each was looked at once more
        await _until(lambda: len(heard) == 1)
        await _until_settled(polls)
        polls.clear()
        for n in range(1, COMMITS + 1):
            if foreign:
                await anyio.to_thread.run_sync(_rename, where, f"{n}")
            else:
                await busy.rename(f"{n}")
            await _until(lambda n=n: len(heard) > n)  # type: ignore[misc]
        await _until_settled(polls)
        tasks.cancel_scope.cancel()
    return sum(polls[key] for key in keys), polls[busy._core.key]


def _rename(where: str, title: str) -> None:
    with Store(where, indexing=False) as store:
        store.session("busy").rename(title)


async def _until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110  (polled, with a generous limit)
            await anyio.sleep(0.01)


async def _until_settled(polls: Counter[int]) -> None:
    """Wait until no follower has looked for a while: what was late to come has come."""
    before, quiet = -1, 0
    with anyio.fail_after(60):
        while quiet < 20:
            quiet = quiet + 1 if polls.total() == before else 0
            before = polls.total()
            await anyio.sleep(0.01)


@pytest.mark.parametrize("foreign", [False, True], ids=["this process", "another opening"])
def test_silent_followers_are_not_woken(where: str, polls: Counter[int], foreign: bool) -> None:
    others, concerned = anyio.run(_run, where, polls, foreign)
    assert concerned >= COMMITS
    assert others == 0


async def _run(where: str, polls: Counter[int], foreign: bool) -> tuple[int, int]:
    return await _follow_while(where, polls, foreign=foreign)


def test_a_feed_of_many_sessions_looks_at_the_one_that_changed(
    where: str, polls: Counter[int]
) -> None:
    with Store(where, indexing=False) as store:
        sessions = [store.create_session() for _ in range(SILENT)]
        feed = store.feed()
        for session in sessions:
            feed.follow(session, session.head)
        sessions[0].rename("first")
        assert [fed.session_id for fed in next(feed)] == [sessions[0].id]
        polls.clear()
        for n in range(COMMITS):
            sessions[1].rename(f"{n}")
            assert [fed.session_id for fed in next(feed)] == [sessions[1].id]
        feed.close()
    assert polls.total() < 4 * COMMITS


@pytest.mark.parametrize("streams", [3, 20], ids=["rows of their own", "packs"])
def test_followers_of_running_sessions_are_woken_by_their_own_streams_alone(
    tmp_path: Path, polls: Counter[int], streams: int
) -> None:
    """From another opening; with 20 streams at once, those that flush together share rows."""
    path = tmp_path / "work.db"
    with Store(path, indexing=False) as writer, Store(path, indexing=False) as store:
        ids = [writer.create_session().id for _ in range(streams + 5)]
        turns = [writer.session(name).turn("go").begin() for name in ids]
        replies = [turn.stream().begin() for turn in turns]
        feed = store.feed()
        for name in ids:
            session = store.session(name)
            feed.follow(session, session.head)
        shown: Counter[str] = Counter()
        for n in range(3):
            for reply in replies[:streams]:
                reply.text(f"{n} ")
            while not all(shown[name] > n for name in ids[:streams]):
                shown.update(fed.session_id for fed in next(feed))
            if n == 0:
                polls.clear()  # after this all are known
        silent = {store.session(name)._core.key for name in ids[streams:]}
        feed.close()
        for reply, turn in zip(replies, turns, strict=True):
            reply.end()
            turn.end()
    assert sum(polls[key] for key in silent) == 0
