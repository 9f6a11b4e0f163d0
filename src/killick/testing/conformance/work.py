"""Due work: which turns may be continued, by whom, how often, and who goes first."""

from datetime import UTC, datetime
from typing import Any

from killick.errors import InvalidEntry, LimitReached, WorkLost
from killick.model import entries as e
from killick.model.messages import Message, Text, ToolCall, ToolResult
from killick.model.sessions import Limits
from killick.testing.conformance.feed import feed_lines
from killick.testing.conformance.runs import broken_turn
from killick.testing.conformance.world import World, check, enter, kinds, leave, raises

_LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
_FAR_AWAY = datetime(2999, 1, 1, tzinfo=UTC)


async def _take(store: Any) -> Any:
    """Take the one piece of work that is due."""
    (work,) = await store.take_due()
    return work


async def _attempts(session: Any) -> list[int]:
    return [x.body.attempt for x in await session.entries() if isinstance(x.body, e.WorkTaken)]


async def _break(session: Any, cause: str = "terminated", **options: Any) -> str:
    """A turn that ends with this cause."""
    turn = await enter(session.turn("go", **options))
    await turn.end(cause=cause)
    return str(turn.id)


@check
async def nothing_is_due_unless_it_was_asked_for(world: World) -> None:
    """A turn that died is work only if it was begun with `resume`."""
    await broken_turn(world, ("a", ""))
    async with world.store() as store:
        assert list(await store.take_due(limit=10)) == []


@check
async def a_turn_that_died_is_due(world: World) -> None:
    """It still says that it runs; taking it closes it as crashed, and counts the attempt."""
    session_id, turn_id = await broken_turn(world, ("a", ""), resume=2)
    async with world.store() as store:
        work = await _take(store)
        assert (work.session_id, work.turn_id, work.attempt) == (session_id, turn_id, 1)
        assert list(await store.take_due()) == []
        session = await store.session(session_id)
        assert [(t.status, t.cause) for t in await session.turns()] == [("interrupted", "crashed")]
        async with session.turn(None, continues=turn_id, work=work.token) as turn:
            await turn.record(Message("assistant", [Text("done")]))
        assert list(await store.take_due()) == []
        first, second = await session.turns()
        assert (second.status, second.continues) == ("completed", first.id)
        taken, begun = (
            next(x.body for x in await session.entries() if x.kind == "work_taken"),
            [x.body for x in await session.entries() if isinstance(x.body, e.TurnStarted)][1],
        )
        assert (taken.id, taken.turn_id, begun.work) == (work.token, turn_id, work.token)
        assert await store.examine_session(session_id) == []


@check
async def only_an_accident_makes_work(world: World) -> None:
    """Crashed, terminated, shut down and timed out are due; no other cause is."""
    async with world.store() as store:
        for cause in ("terminated", "shut_down", "timed_out"):
            session = await store.create_session()
            turn_id = await _break(session, cause, resume=1)
            work = await _take(store)
            assert (work.session_id, work.turn_id) == (session.id, turn_id)
        for cause in ("stopped", "cancelled", "client_gone", "abandoned", "failed", "other"):
            session = await store.create_session()
            await _break(session, cause, resume=1)
            assert list(await store.take_due()) == [], cause
        session = await store.create_session()
        async with session.turn("go", resume=1):
            pass
        assert list(await store.take_due()) == []


@check
async def a_time_limit_that_ends_a_turn_makes_work(world: World) -> None:
    """The TimeoutError of a caller, or of a model's client, leaves the block as a failure."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go", resume=1) as turn:
                raise TimeoutError
        except TimeoutError:
            pass
        assert [(t.status, t.cause) for t in await session.turns()] == [("failed", "timed_out")]
        assert (await _take(store)).turn_id == turn.id


@check
async def a_stop_outlives_its_holder(world: World) -> None:
    """A turn that a person stopped is not continued, though its process died before it heard."""
    async with world.crashing() as store:
        session = await store.create_session()
        await enter(session.turn("go", resume=1))
        async with world.store() as other:
            await (await other.session(session.id)).stop()
    async with world.store() as store:
        assert list(await store.take_due()) == []
        assert list(await store.take_due()) == []


@check
async def an_unsettled_call_keeps_a_turn_from_workers(world: World) -> None:
    """Until it is settled, either way, or its result comes after all."""
    for outcome in ("ran", "did_not_run", "result"):
        session_id, turn_id = await broken_turn(world, ("a", "once"), ("b", "none"), resume=1)
        async with world.store() as store:
            assert list(await store.take_due()) == []
            session = await store.session(session_id)
            if outcome == "result":
                await session.finish_tool(turn_id, "a", "paid")
            else:
                await session.settle(turn_id, "a", outcome)
            assert (await _take(store)).session_id == session_id


@check
async def a_result_of_another_call_settles_nothing(world: World) -> None:
    """Providers repeat ids: what was recorded for the newer call says nothing of the older."""
    async with world.crashing() as store:
        session = await store.create_session()
        turn = await enter(session.turn("go", resume=1))
        await turn.record(Message("assistant", [ToolCall("a", "pay", "{}")]))
        await (await enter(turn.tool("a"))).end(KeyboardInterrupt())
        await turn.record(Message("assistant", [ToolCall("a", "look", "{}")]))
        await turn.record(Message("tool", [ToolResult("a", "seen")]))
    async with world.store() as store:
        assert list(await store.take_due()) == []


@check
async def a_limit_that_was_reached_makes_no_work(world: World) -> None:
    """Also if the process died before the turn had failed; the feed says which limit it was."""
    async with world.crashing() as store:
        session = await store.create_session(limits=Limits(calls=0))
        turn = await enter(session.turn("go", resume=1))
        await raises(LimitReached, turn.stream().begin())
    async with world.store() as store:
        assert list(await store.take_due()) == []
        lines = await feed_lines(store)
        assert [kind for _, kind, _ in lines] == ["turn_ended", "limit_reached"]
        again = await store.create_session(limits=Limits(calls=0))
    async with world.crashing() as store:
        again = await store.session(again.id)
        turn = await enter(again.turn("go", resume=1))
        await raises(LimitReached, turn.stream().begin())
        await again.limit()
        await turn.stream().begin()
    async with world.store() as store:
        assert (await _take(store)).turn_id == turn.id, "it had gone on"


@check
async def an_approval_that_waits_keeps_a_turn_from_workers(world: World) -> None:
    """Until a person has decided."""
    async with world.crashing() as store:
        session = await store.create_session()
        turn = await enter(session.turn("go", resume=1))
        await turn.record(Message("assistant", [ToolCall("a", "f", "{}")]))
        asked = await turn.ask_approval("a", "{}")
    async with world.store() as store:
        assert list(await store.take_due()) == []
        again = await store.session(session.id)
        await again.decide_approval(asked, approved=True)
        work = await _take(store)
        working = again.turn(None, work=work.token)
        async with working as second, second.tool("a", of=turn.id) as call:
            await call.finish("done")


@check
async def a_person_goes_first(world: World) -> None:
    """A later prompt makes the turn no work any more, and voids what was taken."""
    async with world.store() as store:
        session = await store.create_session()
        await _break(session, resume=3)
        work = await _take(store)
        async with session.turn("never mind"):
            lost = await raises(WorkLost, enter(session.turn(None, work=work.token)))
            assert work.token in str(lost)
        await raises(WorkLost, enter(session.turn(None, work=work.token)))
        assert list(await store.take_due()) == []


@check
async def work_is_begun_once(world: World) -> None:
    """Its token is used up by the turn that begins with it."""
    async with world.store() as store:
        session = await store.create_session()
        first = await _break(session, resume=3)
        other = await store.create_session()
        work = await _take(store)
        await raises(WorkLost, enter(other.turn(None, work=work.token)))
        await raises(WorkLost, enter(session.turn(None, work="ent_of_nobody")))
        missing = session.turn(None, work=work.token, continues="turn_x")
        await raises(InvalidEntry, enter(missing))
        turn = await enter(session.turn(None, work=work.token))
        await raises(WorkLost, enter(session.turn(None, work=work.token)))
        await leave(turn)
        await raises(WorkLost, enter(session.turn(None, work=work.token)))
        assert [t.continues for t in await session.turns()] == [None, first]


@check
async def work_lapses_with_its_time(world: World) -> None:
    """It may be taken again then, as the next attempt; the old token is lost."""
    async with world.store() as store:
        session = await store.create_session()
        await _break(session, resume=2)
        (first,) = await store.take_due(lease_seconds=0.000_001)
        await raises(WorkLost, enter(session.turn(None, work=first.token)))
        await session.resume_at(_LONG_AGO)
        second = await _take(store)
        assert (first.attempt, second.attempt) == (1, 2)
        await raises(WorkLost, enter(session.turn(None, work=first.token)))
        async with session.turn(None, work=second.token):
            pass
        assert await store.examine_session(session.id) == []


@check
async def work_lapses_with_its_taker(world: World) -> None:
    """Work of a worker that died is taken by the next, however long its lease was."""
    async with world.store() as store:
        session = await store.create_session()
        await _break(session, resume=2)
        async with world.crashing() as worker:
            first = await _take(worker)
            assert list(await store.take_due()) == []
        await session.resume_at(_LONG_AGO)
        second = await _take(store)
        assert second.attempt == 2
        await raises(WorkLost, enter(session.turn(None, work=first.token)))


@check
async def attempts_are_counted_and_used_up(world: World) -> None:
    """Over all the turns that go on with it; at last that is recorded, once."""
    async with world.store() as store:
        session = await store.create_session()
        await _break(session, resume=2)
        for number in (1, 2):
            await session.resume_at(_LONG_AGO)
            work = await _take(store)
            assert work.attempt == number
            turn = await enter(session.turn(None, work=work.token))
            await turn.end(cause="shut_down")
        assert list(await store.take_due()) == []
        assert list(await store.take_due()) == []
        assert await _attempts(session) == [1, 2]
        (used,) = [x.body for x in await session.entries() if isinstance(x.body, e.AttemptsUsed)]
        assert (used.attempts, used.turn_id) == (2, turn.id)
        assert await store.examine_session(session.id) == []


@check
async def a_turn_that_kills_its_workers_comes_to_an_end(world: World) -> None:
    """Taken and never begun, each time, is an attempt each time, and a rest follows."""
    async with world.store() as store:
        session = await store.create_session()
        await _break(session, resume=7)
        for _ in range(7):
            await session.resume_at(_LONG_AGO)
            async with world.crashing() as worker:
                await _take(worker)
            if (await _attempts(session))[-1] == 6:
                assert list(await store.take_due()) == [], "half a minute"
        assert list(await store.take_due()) == []
        assert await _attempts(session) == [1, 2, 3, 4, 5, 6, 7]
        assert kinds(await session.entries())[-1] == "attempts_used"


@check
async def an_attempt_is_followed_by_a_rest(world: World) -> None:
    """`resume_at` says another time, earlier or later."""
    async with world.store() as store:
        session = await store.create_session()
        await _break(session, resume=5)
        work = await _take(store)
        turn = await enter(session.turn(None, work=work.token))
        await turn.end(cause="terminated")
        assert list(await store.take_due()) == []
        await session.resume_at(_FAR_AWAY)
        assert list(await store.take_due()) == []
        await session.resume_at(_LONG_AGO)
        assert (await _take(store)).attempt == 2


@check
async def a_paused_session_is_left_alone(world: World) -> None:
    """Workers stay out until it is unpaused; what one had taken is void; a person may go on."""
    async with world.store() as store:
        session = await store.create_session()
        await _break(session, resume=2)
        work = await _take(store)
        await session.pause("the bank is closed")
        await raises(WorkLost, enter(session.turn(None, work=work.token)))
        assert list(await store.take_due()) == []
        await session.unpause()
        await session.resume_at(_LONG_AGO)
        assert (await _take(store)).attempt == 2
        await session.pause()
        async with session.turn("by hand"):
            pass
        await _break(session, resume=1)
        assert list(await store.take_due()) == []
        await session.unpause()
        assert (await _take(store)).attempt == 1
        assert await store.examine_session(session.id) == []


@check
async def prompts_that_wait_go_on_waiting(world: World) -> None:
    """Work takes none of them; the next turn of a person, or of the queue, does."""
    async with world.store() as store:
        session = await store.create_session()
        turn = await enter(session.turn("go", resume=1))
        await session.queue("and then?")
        await turn.end(cause="shut_down")
        work = await _take(store)
        async with session.turn(None, work=work.token):
            pass
        assert [message.text for message in await session.queued()] == ["and then?"]
        async with session.turn(None):
            pass
        assert [message.text for message in await session.queued()] == []
        assert [message.text for message in await session.messages()] == ["go", "and then?"]


@check
async def a_rewound_or_deleted_turn_is_no_work(world: World) -> None:
    """A person who rewinds or deletes has decided otherwise; restoring brings the work back."""
    async with world.store() as store:
        session = await store.create_session()
        await _break(session, resume=1)
        await store.delete_session(session.id)
        assert list(await store.take_due()) == []
        session = await store.restore_session(session.id)
        await session.rewind(1)
        assert list(await store.take_due()) == []
        other = await store.create_session()
        await _break(other, resume=1)
        await store.delete_session(other.id)
        other = await store.restore_session(other.id)
        assert (await _take(store)).session_id == other.id


@check
async def a_fork_and_an_import_are_no_work(world: World) -> None:
    """They may be continued where they come from."""
    async with world.store() as store:
        session = await store.create_session()
        await _break(session, resume=1)
        await session.fork()
        entries = await session.entries()
        await store.import_entries("ses_copy", entries)
        assert [work.session_id for work in await store.take_due(limit=10)] == [session.id]
        assert await store.examine_session("ses_copy") == []


@check
async def each_is_given_to_one(world: World) -> None:
    """Of two openings that take all there is, each piece comes to one, the longest due first."""
    async with world.store() as store, world.store() as other:
        sessions = [await store.create_session() for _ in range(6)]
        for session in sessions:
            await _break(session, resume=1)
        first = [work.session_id for work in await store.take_due(limit=4)]
        second = [work.session_id for work in await other.take_due(limit=100)]
        assert sorted([*first, *second]) == sorted(session.id for session in sessions)
        assert len(second) == 2


@check
async def dead_turns_are_closed_all_at_once(world: World) -> None:
    """As opening each would; those that live are left alone."""
    session_id, turn_id = await broken_turn(world, ("a", "once"))
    async with world.store() as store, world.store() as other:
        session = await other.create_session()
        async with session.turn("still here"):
            closed = await store.close_dead_turns()
            assert [(each.session_id, each.turn_id) for each in closed] == [(session_id, turn_id)]
            assert await store.close_dead_turns() == []
        infos = {info.id: info.status for info in await store.sessions()}
        assert infos[session_id] == "interrupted"
        assert infos[session.id] == "completed"


@check
async def what_work_cannot_be_is_refused(world: World) -> None:
    """Wrong numbers, a prompt with work, `resume` with it, or where starts are not seen."""
    async with world.store() as store:
        session = await store.create_session()
        for options in (
            {"resume": -1},
            {"resume": "2"},
            {"resume": 1, "starts": "unseen"},
            {"resume": 1, "work": "ent_1"},
            {"work": ""},
            {"work": 7},
        ):
            try:
                session.turn(None, **options)
            except (ValueError, TypeError, InvalidEntry) as refused:
                assert str(refused)
            else:
                raise AssertionError(f"{options} was taken")
        try:
            session.turn("do it", work="ent_1")
        except ValueError as refused:
            assert "None" in str(refused)
        else:
            raise AssertionError("a prompt was taken with work")
        for wrong in ({"limit": 0}, {"limit": 10**6}, {"lease_seconds": 0}, {"lease_seconds": 1e9}):
            await raises(ValueError, store.take_due(**wrong))
        await raises(TypeError, store.take_due(limit="1"))
        await raises(TypeError, session.resume_at("tomorrow"))
        await raises(InvalidEntry, session.pause(7))
        assert kinds(await session.entries()) == ["session_created"]
