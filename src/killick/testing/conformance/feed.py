"""The feed over all sessions, and words that steer a running turn."""

from typing import Any

from killick import errors
from killick.model import entries as e
from killick.model.messages import Message, ToolCall
from killick.model.sessions import Limits
from killick.session.news import News
from killick.session.sync import Store
from killick.testing.conformance.world import (
    Boom,
    World,
    check,
    open_store,
    raises,
    texts,
    unwrap,
)

Line = tuple[str, str, str | None]


async def _pages(store: Any, **options: Any) -> list[News]:
    """Everything that a follower is given without waiting."""
    inner, lines = unwrap(store), list[News]()
    follower: Any = inner.follow(**options)
    while True:
        page = follower.now() if isinstance(inner, Store) else await follower.now()
        if not page:
            return lines
        lines += page


async def feed_lines(store: Any, **options: Any) -> list[Line]:
    """Return what a follower is given without waiting: session, kind and cause."""
    return [(news.session_id, news.kind, news.cause) for news in await _pages(store, **options)]


async def _leave_unknown(session: Any) -> Any:
    """Leave a turn while its tool runs."""
    turn = session.turn("go")
    try:
        async with turn:
            await turn.record(Message("assistant", [ToolCall("c", "pay", "{}")]))
            async with turn.tool("c"):
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        return turn


@check
async def the_feed_tells_of_every_session(world: World) -> None:
    """How turns ended, with their causes, in the order in which it happened."""
    async with world.store() as store, world.store() as other:
        first, second = await store.create_session(), await store.create_session()
        async with first.turn("go"):
            pass
        try:
            async with (await other.session(second.id)).turn("go"):
                raise Boom
        except Boom:
            pass
        async with first.turn("on") as turn:
            await turn.record(Message("assistant", [ToolCall("c", "rm", "{}")]))
            asked = await turn.ask_approval("c", "{}")
            await first.decide_approval(asked, approved=True)
        lines = await _pages(store)
        assert [(news.session_id, news.kind, news.cause) for news in lines] == [
            (first.id, "turn_ended", None),
            (second.id, "turn_ended", "failed"),
            (first.id, "approval_asked", None),
            (first.id, "approval_decided", None),
            (first.id, "turn_ended", None),
        ]
        entries = {entry.seq: entry.kind for entry in await first.entries()}
        mine = [news for news in lines if news.session_id == first.id]
        assert [entries[news.seq] for news in mine] == [news.kind for news in mine]


@check
async def a_turn_of_a_dead_process_is_told_when_it_is_closed(world: World) -> None:
    """Its cause is that it crashed, and a tool that had started is unknown."""
    async with world.crashing() as store:
        session = await store.create_session(id="s")
        turn = await session.turn("go").begin()
        await turn.record(Message("assistant", [ToolCall("c", "pay", "{}")]))
        await turn.tool("c").begin()
    async with world.store() as store:
        await store.session("s")
        assert await feed_lines(store) == [
            ("s", "turn_ended", "crashed"),
            ("s", "outcome_unknown", "crashed"),
        ]


@check
async def a_cursor_goes_on_without_gap_or_repeat(world: World) -> None:
    """From any line on, in any process, also when what it named was erased."""
    async with world.store() as store:
        sessions = [await store.create_session() for _ in range(3)]
        for session in sessions:
            async with session.turn("go"):
                pass
        lines = await _pages(store)
        for number, news in enumerate(lines):
            assert await _pages(store, after=news.cursor) == lines[number + 1 :]
        await store.erase_session(sessions[2].id)
        assert await _pages(store) == lines[:2]
        async with sessions[0].turn("on"):
            pass
    async with world.store() as store:
        later = await _pages(store, after=lines[-1].cursor)
        assert [news.session_id for news in later] == [sessions[0].id]


@check
async def a_cursor_that_is_none_is_refused(world: World) -> None:
    """Garbage, another store's, one beyond the end, and one beside waiting=True."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go"):
            pass
        (news,) = await _pages(store)
        number, _, position = news.cursor.partition(".")
        beyond = ".".join(["9" * 18, *position.split(".")[1:]])
        refused: tuple[int | str, ...] = ("", "x", "1.2.3.4.5.6", 7, f"{number}.{beyond}")
        for cursor in (*refused, f"{int(number, 16) ^ 1:x}.{position}"):
            await raises(errors.InvalidCursor, _pages(store, after=cursor))
        await raises(errors.UsageError, _pages(store, after=news.cursor, waiting=True))


@check
async def what_waits_is_told_until_it_is_answered(world: World) -> None:
    """An approval until it is decided, an interrupted turn until the next, an unknown outcome until
    it is known."""
    async with world.store() as store:
        session = await store.create_session(id="s")
        async with session.turn("go") as turn:
            await turn.record(Message("assistant", [ToolCall("c", "rm", "{}")]))
            asked = await turn.ask_approval("c", "{}")
            assert await feed_lines(store, waiting=True) == [("s", "approval_asked", None)]
            await session.decide_approval(asked, approved=False)
            assert await feed_lines(store, waiting=True) == []
        turn = await _leave_unknown(session)
        ended, unknown = ("s", "turn_ended", "cancelled"), ("s", "outcome_unknown", "cancelled")
        assert await feed_lines(store, waiting=True) == [ended, unknown]
        await session.finish_tool(turn.id, "c", "paid")
        assert await feed_lines(store, waiting=True) == [ended]
        async with session.turn("on"):
            pass
        assert await feed_lines(store, waiting=True) == []
        assert [kind for _, kind, _ in await feed_lines(store)] == [
            *("approval_asked", "approval_decided", "turn_ended"),
            *("turn_ended", "outcome_unknown", "turn_ended"),
        ]


@check
async def what_waits_comes_first_then_what_happens(world: World) -> None:
    """A line that waited is not told again."""
    async with world.store() as store:
        session = await store.create_session(id="s")
        await _leave_unknown(session)
        first = await _pages(store, waiting=True)
        async with session.turn("on"):
            pass
        later = await _pages(store, after=first[-1].cursor)
        assert [(news.kind, news.cause) for news in later] == [("turn_ended", None)]


@check
async def a_deleted_session_waits_for_no_person(world: World) -> None:
    """Its lines stay in the feed."""
    async with world.store() as store:
        session = await store.create_session(id="s")
        await _leave_unknown(session)
        await store.delete_session("s")
        assert await feed_lines(store, waiting=True) == []
        assert len(await feed_lines(store)) == 2


@check
async def a_paused_session_waits_until_it_is_not(world: World) -> None:
    """Whatever turns begin meanwhile."""
    async with world.store() as store:
        session = await store.create_session(id="s")
        await session.pause("the bank is closed")
        async with session.turn("go"):
            pass
        assert await feed_lines(store, waiting=True) == [("s", "paused", None)]
        await session.unpause()
        assert await feed_lines(store, waiting=True) == []
        assert [kind for _, kind, _ in await feed_lines(store)] == [
            "paused",
            "turn_ended",
            "unpaused",
        ]


@check
async def the_end_of_a_turn_that_is_followed_is_news(world: World) -> None:
    """It happens now; what was over when it came in is not told."""
    async with world.store() as store:
        over: list[e.Body] = [
            e.SessionCreated(),
            e.TurnStarted(turn_id="t1", fence=1, holder="x", starts="unseen"),
            e.TurnEnding(turn_id="t1", status="failed", reason="x", cause="failed"),
        ]
        begun = e.TurnStarted(turn_id="t2", fence=2, holder="x", starts="unseen")
        entries = [e.Entry(n, n, body) for n, body in enumerate([*over, begun], start=1)]
        await store.import_entries("mine", entries, hold=True)
        assert await feed_lines(store) == []
        ended = e.TurnEnding(turn_id="t2", status="interrupted", reason="x", cause="crashed")
        await store.import_entries("mine", [e.Entry(5, 5, ended)], hold=True)
        assert await feed_lines(store) == [("mine", "turn_ended", "crashed")]
        noted = e.Imported(id="i", source="x", origin="x")
        await store.import_entries("mine", [e.Entry(6, 6, noted)], hold=True)
        assert await store.examine_session("mine") == []


@check
async def what_came_from_elsewhere_is_no_news(world: World) -> None:
    """Messages that are added, and a fork of a broken turn."""
    async with world.store() as store:
        session = await store.create_session()
        await session.add_messages([Message("user", [])], source="there")
        assert await feed_lines(store) == []
        await _leave_unknown(session)
        before = await feed_lines(store)
        await session.fork()
        assert await feed_lines(store) == before


@check
async def a_feed_is_of_one_tenant(world: World) -> None:
    """Another tenant's sessions are not in it."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go"):
            pass
        assert len(await feed_lines(store)) == 1
    settings = {**world._settings, "tenant": "other"}
    async with open_store(world.face, world._make(), **settings) as store:
        assert await feed_lines(store) == []


@check
async def words_steer_the_running_turn_once(world: World) -> None:
    """They are durable at once, taken before the next model call, and stand at that place."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        async with session.turn("go") as turn:
            assert await turn.steering() == []
            await turn.record(Message("assistant", [ToolCall("c", "make", "{}")]))
            steer = await (await other.session(session.id)).steer("also check the tests")
            assert (steer.turn_id, steer.queued) == (turn.id, False)
            assert [message.id for message in await session.queued()] == [steer.id]
            async with turn.tool("c") as call:
                await call.finish("made")
            (taken,) = await turn.steering()
            assert (taken.id, taken.role, taken.text) == (steer.id, "user", "also check the tests")
            assert await turn.steering() == []
            assert await session.queued() == []
            context = await session.context("openai-chat")
            assert [message["role"] for message in context.messages] == [
                *("user", "assistant", "tool", "user")
            ]


@check
async def words_for_a_turn_that_ended_first_wait(world: World) -> None:
    """The next turn takes them, unless they are withdrawn; so does a turn after a crash."""
    async with world.crashing() as store:
        session = await store.create_session(id="s")
        turn = await session.turn("go").begin()
        taken = await session.steer("this was taken")
        assert len(await turn.steering()) == 1
        await session.steer("this was not")
    async with world.store() as store:
        session = await store.session("s")
        assert [message.text for message in await session.queued()] == ["this was not"]
        gone = await session.steer("never mind")
        assert gone.queued
        await session.withdraw(gone.id)
        async with session.turn("on"):
            pass
        assert [text for _, _, text in await texts(session)] == [
            *("go", "this was taken", "this was not", "on")
        ]
        assert taken.id in [message.id for message in await session.messages()]


@check
async def words_that_were_said_before_say_where_they_are(world: World) -> None:
    """Under their key: with the turn that took them, or waiting; not with the one that runs now."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as first:
            await session.steer("taken", key="k")
            await first.steering()
            await session.steer("waits", key="w")
        assert (await session.steer("taken", key="k")).turn_id == first.id
        assert (await session.steer("waits", key="w")).queued
        async with session.turn("on") as second:
            assert (await session.steer("taken", key="k")).turn_id == first.id
            assert (await session.steer("waits", key="w")).turn_id == second.id
            assert await second.steering() == []
            assert (await session.steer("on", key="o")).turn_id == second.id


@check
async def a_limit_is_told_under_whatever_error_it_left_the_turn(world: World) -> None:
    """Frameworks put an error of their own around it."""
    async with world.store() as store:
        session = await store.create_session(limits=Limits(calls=0))
        try:
            async with session.turn("go") as turn:
                try:
                    await turn.stream().begin()
                except errors.LimitReached as reached:
                    raise Boom from reached
        except Boom:
            pass
        kinds = [kind for _, kind, _ in await feed_lines(store, waiting=True)]
        assert kinds == ["limit_reached"]


@check
async def words_that_are_none_are_refused(world: World) -> None:
    """As a prompt is; and a key says the same thing once."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            for nothing in ("", "  ", None):
                await raises(errors.InvalidEntry, session.steer(nothing))
            first = await session.steer("once", key="k")
            assert await session.steer("once", key="k") == first
            await raises(errors.IdConflict, session.steer("other", key="k"))
            assert len(await turn.steering()) == 1
