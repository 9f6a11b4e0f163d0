"""Runs that finish: effects of tools, starts that are repeated, outcomes that are settled."""

from typing import Any

from killick.errors import (
    CallFinished,
    CallNotFound,
    IdConflict,
    InvalidEntry,
    OutcomeUnsettled,
    SessionBusy,
    ToolAlreadyStarted,
    ToolNotApproved,
    TurnNotFound,
    UsageError,
)
from killick.model import entries as e
from killick.model.messages import Message, Text, ToolCall
from killick.testing.conformance.world import World, check, enter, kinds, leave, raises
from killick.views.validators.truth import truth


async def broken_turn(world: World, *calls: tuple[str, str], **options: Any) -> tuple[str, str]:
    """A turn that died while its tools ran, each of (id, effect); the session and the turn."""
    async with world.crashing() as store:
        session = await store.create_session()
        turn = await enter(session.turn("go", **options))
        parts = [ToolCall(call_id, "pay", f'{{"n": "{call_id}"}}') for call_id, _ in calls]
        await turn.record(Message("assistant", parts))
        for call_id, effect in calls:
            if effect:
                await enter(turn.tool(call_id, effect=effect))
        return session.id, turn.id


async def _bodies(session: Any, kind: type[Any]) -> list[Any]:
    return [entry.body for entry in await session.entries() if isinstance(entry.body, kind)]


async def _truth(session: Any) -> None:
    """A model would be sent what the journal says, in every format."""
    entries = await session.entries()
    for format_ in ("anthropic", "openai-chat", "openai-responses", "gemini"):
        assert truth(entries, await session.context(format_)) == []


# -- effects and starts ----------------------------------------------------------------------------


@check
async def an_effect_is_recorded_with_the_start(world: World) -> None:
    """Once is what a tool has that says nothing; an unknown word is refused."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            calls = [ToolCall(name, "f", "{}") for name in ("a", "b", "c")]
            await turn.record(Message("assistant", calls))
            async with turn.tool("a") as call:
                await call.finish("1")
            async with turn.tool("b", effect="none", key="mine") as call:
                assert call.key == "mine"
                await call.finish("2")
            try:
                turn.tool("c", effect="twice")
            except UsageError as refused:
                assert "idempotent" in str(refused)
            else:
                raise AssertionError("an unknown effect was taken")
        starts = await _bodies(session, e.ToolStarted)
        assert [(body.effect, body.key, body.number) for body in starts] == [
            ("once", None, 1),
            ("none", "mine", 1),
        ]


@check
async def a_tool_without_effect_is_started_again(world: World) -> None:
    """In the turn that continues: another start, the same key, and one result."""
    for effect in ("none", "idempotent"):
        session_id, turn_id = await broken_turn(world, ("a", effect))
        async with world.store() as store:
            session = await store.session(session_id)
            async with session.turn(None, continues=turn_id) as turn:
                async with turn.tool("a", of=turn_id) as call:
                    key = call.key
                    await call.finish("done")
                assert await raises(ToolAlreadyStarted, enter(turn.tool("a", of=turn_id)))
            starts = await _bodies(session, e.ToolStarted)
            assert [(body.number, body.effect, body.turn_id) for body in starts] == [
                (1, effect, turn_id),
                (2, effect, turn_id),
            ]
            assert key
            assert [m.parts[0].content for m in await session.messages() if m.role == "tool"] == [
                "done"
            ]
            (shown,) = [tool for item in await session.transcript() for tool in item.tools]
            assert (shown.state, shown.result.content) == ("finished", "done")
            await _truth(session)


@check
async def each_start_has_the_same_key(world: World) -> None:
    """Minted from the turn and the call, or given at the first start; never another one."""
    async with world.crashing() as store:
        session = await store.create_session()
        turn = await enter(session.turn("go"))
        calls = [ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}")]
        await turn.record(Message("assistant", calls))
        minted = (await enter(turn.tool("a", effect="idempotent"))).key
        await enter(turn.tool("b", effect="idempotent", key="mine"))
    async with world.store() as store:
        again = await store.session(session.id)
        async with again.turn(None, continues=turn.id) as second:
            assert await raises(IdConflict, enter(second.tool("b", of=turn.id, key="other")))
            async with second.tool("a", of=turn.id) as call:
                assert call.key == minted
                await call.finish("1")
            async with second.tool("b", of=turn.id, key="mine") as call:
                assert call.key == "mine"
                await call.finish("2")


@check
async def a_call_may_be_started_a_third_time(world: World) -> None:
    """By a turn that continues the one that continued; each start has its number."""
    session_id, turn_id = await broken_turn(world, ("a", "idempotent"))
    async with world.crashing() as store:
        session = await store.session(session_id)
        second = await enter(session.turn(None, continues=turn_id))
        await enter(second.tool("a", of=turn_id))
    async with world.store() as store:
        session = await store.session(session_id)
        turn = session.turn(None, continues=second.id)
        async with turn as third, third.tool("a", of=turn_id) as call:
            await call.finish("at last")
        starts = await _bodies(session, e.ToolStarted)
        assert [body.number for body in starts] == [1, 2, 3]
        await _truth(session)


@check
async def once_is_not_started_again(world: World) -> None:
    """Not by a turn that continues, until it is settled that it did not run."""
    session_id, turn_id = await broken_turn(world, ("a", "once"))
    async with world.store() as store:
        session = await store.session(session_id)
        async with session.turn(None, continues=turn_id) as turn:
            refused = await raises(OutcomeUnsettled, enter(turn.tool("a", of=turn_id)))
            assert isinstance(refused, OutcomeUnsettled)
            assert (refused.turn_id, refused.call_id) == (turn_id, "a")
            await session.settle(turn_id, "a", "did_not_run")
            async with turn.tool("a", of=turn_id) as call:
                await call.finish("paid")
        assert [body.number for body in await _bodies(session, e.ToolStarted)] == [1, 2]
        await _truth(session)


@check
async def what_may_have_run_unseen_is_not_started(world: World) -> None:
    """Whether it ran is as unknown as of a call that was started; an effect of none is harmless."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go", starts="unseen") as first:
            await first.record(Message("assistant", [ToolCall(n, "f", "{}") for n in "abc"]))
        async with session.turn(None, continues=first.id) as turn:
            await raises(OutcomeUnsettled, enter(turn.tool("a", of=first.id)))
            await session.settle(first.id, "a", "did_not_run")
            async with turn.tool("a", of=first.id) as call:
                await call.finish("paid")
            async with turn.tool("b", of=first.id, effect="none") as call:
                await call.finish("seen")
            await session.settle(first.id, "c", "ran")
            await raises(ToolAlreadyStarted, enter(turn.tool("c", of=first.id)))
        assert await store.examine_session(session.id) == []


@check
async def what_ran_is_not_started_again(world: World) -> None:
    """A call with the effect once that was settled as run stays as it is."""
    session_id, turn_id = await broken_turn(world, ("a", "once"))
    async with world.store() as store:
        session = await store.session(session_id)
        await session.settle(turn_id, "a", "ran", result="receipt 7")
        async with session.turn(None, continues=turn_id) as turn:
            await raises(ToolAlreadyStarted, enter(turn.tool("a", of=turn_id)))
        assert [body.number for body in await _bodies(session, e.ToolStarted)] == [1]


@check
async def a_repeat_needs_a_turn_that_continues(world: World) -> None:
    """A turn without the link repeats nothing, and the running turn none of its own."""
    session_id, turn_id = await broken_turn(world, ("a", "none"))
    async with world.store() as store:
        session = await store.session(session_id)
        async with session.turn("something else") as turn:
            await raises(InvalidEntry, enter(turn.tool("a", of=turn_id)))
            await turn.record(Message("assistant", [ToolCall("b", "f", "{}")]))
            async with turn.tool("b", effect="none") as call:
                await call.finish("1")
            await raises(ToolAlreadyStarted, enter(turn.tool("b", effect="none")))


@check
async def a_second_result_is_late(world: World) -> None:
    """The first is the result, from whichever start; the other is kept and is no message."""
    async with world.store() as store:
        session = await store.create_session()
        first = await enter(session.turn("go"))
        await first.record(Message("assistant", [ToolCall("a", "f", "{}")]))
        zombie = await enter(first.tool("a", effect="idempotent"))
        taking = session.turn(None, continues=first.id, if_busy="take_over")
        async with taking as turn, turn.tool("a", of=first.id) as call:
            await call.finish("from the second")
        receipt = await zombie.finish("from the first")
        assert not receipt.repeated
        assert (await zombie.finish("from the first")).repeated
        results = await _bodies(session, e.LateResult)
        assert [(body.result.content, body.second) for body in results] == [
            ("from the second", 0),
            ("from the first", 1),
        ]
        tools = [m.parts[0].content for m in await session.messages() if m.role == "tool"]
        assert tools == ["from the second"]
        await _truth(session)


@check
async def an_approval_holds_for_a_repeat(world: World) -> None:
    """A person who allowed a call has allowed it; who denied it has denied the repeat."""
    async with world.crashing() as store:
        session = await store.create_session()
        turn = await enter(session.turn("go"))
        await turn.record(Message("assistant", [ToolCall("a", "f", "{}")]))
        asked = await turn.ask_approval("a", "{}")
        await raises(ToolNotApproved, enter(turn.tool("a", effect="none")))
        await session.decide_approval(asked, approved=True)
        await enter(turn.tool("a", effect="none"))
    async with world.store() as store:
        again = await store.session(session.id)
        continuing = again.turn(None, continues=turn.id)
        async with continuing as second, second.tool("a", of=turn.id) as call:
            await call.finish("done")
        assert kinds(await again.entries()).count("tool_started") == 2


# -- settling --------------------------------------------------------------------------------------


@check
async def a_settlement_is_no_result(world: World) -> None:
    """It is an entry of its own, told as what was found out, in the place of the result."""
    session_id, turn_id = await broken_turn(world, ("a", "once"), ("b", "once"))
    async with world.store() as store:
        session = await store.session(session_id)
        await session.settle(turn_id, "a", "ran", result="receipt 7", evidence="the bank says so")
        await session.settle(turn_id, "b", "did_not_run", by="check")
        first, second = await _bodies(session, e.Settled)
        assert (first.outcome, first.result, first.by) == ("ran", "receipt 7", "person")
        assert (second.outcome, second.result, second.by) == ("did_not_run", None, "check")
        assert [m.role for m in await session.messages()] == ["user", "assistant"]
        shown = [tool for item in await session.transcript() for tool in item.tools]
        assert [(tool.settled.outcome, tool.settled.by) for tool in shown] == [
            ("ran", "person"),
            ("did_not_run", "check"),
        ]
        text = str((await session.context("anthropic")).messages)
        assert "A person found out that it ran" in text
        assert "receipt 7" in text
        assert "the bank says so" in text
        assert "A check found out that it did not run" in text
        await _truth(session)


@check
async def a_settlement_is_told_where_it_became_true(world: World) -> None:
    """A sent request stays as it was; the settlement follows, and a later result too."""
    session_id, turn_id = await broken_turn(world, ("a", "once"))
    async with world.store() as store:
        session = await store.session(session_id)
        async with session.turn("and?") as turn, turn.stream() as reply:
            reply.text("I do not know.")
        sent = (await session.context("anthropic")).messages
        await session.settle(turn_id, "a", "did_not_run")
        settled = (await session.context("anthropic")).messages
        assert str(settled).startswith(str(sent)[:-2])
        assert "was settled since" in str(settled)
        await _truth(session)
        async with session.turn("so?") as turn, turn.stream() as reply:
            reply.text("Then again.")
        await session.finish_tool(turn_id, "a", "it ran all the same")
        after = str((await session.context("anthropic")).messages)
        assert after.startswith(str(settled)[:-3].rstrip("]}"))
        assert "it ran all the same" in after
        await _truth(session)


@check
async def a_real_result_wins_and_both_are_told(world: World) -> None:
    """Also when no model was told of the settlement yet."""
    session_id, turn_id = await broken_turn(world, ("a", "once"))
    async with world.store() as store:
        session = await store.session(session_id)
        await session.settle(turn_id, "a", "did_not_run")
        await session.finish_tool(turn_id, "a", "it did run")
        text = str((await session.context("openai-chat")).messages)
        assert "it did run" in text
        assert "was settled before its result came" in text
        (tool,) = [tool for item in await session.transcript() for tool in item.tools]
        assert (tool.state, tool.settled.outcome) == ("finished", "did_not_run")
        await _truth(session)
        await raises(CallFinished, session.settle(turn_id, "a", "ran"))


@check
async def settling_again_changes_nothing(world: World) -> None:
    """Another outcome is a conflict, unless it names the settlement that it replaces."""
    session_id, turn_id = await broken_turn(world, ("a", "once"))
    async with world.store() as store:
        session = await store.session(session_id)
        first = await session.settle(turn_id, "a", "ran")
        again = await session.settle(turn_id, "a", "ran", by="check", evidence="looked")
        assert (again.seq, again.repeated) == (first.seq, True)
        refused = await raises(IdConflict, session.settle(turn_id, "a", "did_not_run"))
        (stored,) = await _bodies(session, e.Settled)
        assert stored.id in str(refused)
        await raises(IdConflict, session.settle(turn_id, "a", "did_not_run", replaces="ent_x"))
        second = await session.settle(turn_id, "a", "did_not_run", replaces=stored.id)
        assert second.seq > first.seq
        repeat = await session.settle(turn_id, "a", "did_not_run", replaces=stored.id)
        assert (repeat.seq, repeat.repeated) == (second.seq, True)
        await raises(IdConflict, session.settle(turn_id, "a", "ran"))
        text = str((await session.context("anthropic")).messages)
        assert "did not run" in text
        assert "that it ran" not in text
        await _truth(session)


@check
async def a_start_after_a_settlement_is_unknown_again(world: World) -> None:
    """A settlement is about the starts before it; the next one is settled by itself."""
    session_id, turn_id = await broken_turn(world, ("a", "once"))
    async with world.crashing() as store:
        session = await store.session(session_id)
        await session.settle(turn_id, "a", "did_not_run")
        turn = await enter(session.turn(None, continues=turn_id))
        await enter(turn.tool("a", of=turn_id))
        await raises(SessionBusy, session.settle(turn_id, "a", "ran"))
    async with world.store() as store:
        session = await store.session(session_id)
        async with session.turn(None, continues=turn.id) as third:
            await raises(OutcomeUnsettled, enter(third.tool("a", of=turn_id)))
        await session.settle(turn_id, "a", "ran")
        assert [(b.number, b.outcome) for b in await _bodies(session, e.Settled)] == [
            (1, "did_not_run"),
            (2, "ran"),
        ]
        await _truth(session)


@check
async def what_cannot_be_settled_is_refused(world: World) -> None:
    """While the turn runs, with a result, what never started, and words that mean nothing."""
    async with world.store() as store:
        session = await store.create_session()
        turn = await enter(session.turn("go"))
        calls = [ToolCall(name, "f", "{}") for name in ("a", "b", "c")]
        await turn.record(Message("assistant", calls))
        await enter(turn.tool("a"))
        async with turn.tool("b") as call:
            await call.finish("done")
        await raises(SessionBusy, session.settle(turn.id, "a", "ran"))
        await leave(turn)
        before = await session.entries()
        await raises(CallFinished, session.settle(turn.id, "b", "ran"))
        await raises(InvalidEntry, session.settle(turn.id, "c", "ran"))
        await raises(InvalidEntry, session.settle(turn.id, "c", "did_not_run"))
        await raises(CallNotFound, session.settle(turn.id, "d", "ran"))
        await raises(TurnNotFound, session.settle("turn_x", "a", "ran"))
        await raises(UsageError, session.settle(turn.id, "a", "perhaps"))
        await raises(UsageError, session.settle(turn.id, "a", "ran", by="model"))
        await raises(InvalidEntry, session.settle(turn.id, "a", "did_not_run", result="x"))
        await raises(InvalidEntry, session.settle(turn.id, "a", "ran", evidence=7))
        await raises(InvalidEntry, session.settle(turn.id, 5, "ran"))
        assert await session.entries() == before


@check
async def a_call_whose_start_nobody_saw_can_be_settled(world: World) -> None:
    """Of a turn with starts="unseen", either way."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go", starts="unseen") as turn:
            calls = [ToolCall("a", "f", '{"n": 1}'), ToolCall("b", "f", '{"n": 2}')]
            await turn.record(Message("assistant", calls))
        await session.settle(turn.id, "a", "ran")
        await session.settle(turn.id, "b", "did_not_run")
        await _truth(session)


@check
async def a_settlement_of_a_summarised_call_is_told(world: World) -> None:
    """With the tool's name: the effect is in the world, whatever the conversation remembers."""
    session_id, turn_id = await broken_turn(world, ("a", "once"))
    async with world.store() as store:
        session = await store.session(session_id)
        async with session.turn("next") as turn:
            await turn.record(Message("assistant", [Text("ok")]))
        await session.compact(summary="They paid, perhaps.", through=session.head)
        await session.settle(turn_id, "a", "ran", evidence="seen")
        text = str((await session.context("anthropic")).messages)
        assert "(pay), was settled since. A person found out that it ran" in text
        await _truth(session)


# -- run_tools -------------------------------------------------------------------------------------


@check
async def run_tools_finishes_what_was_left(world: World) -> None:
    """It starts what never started and repeats what may be, with the call's key."""
    session_id, turn_id = await broken_turn(
        world, ("a", "idempotent"), ("b", "none"), ("c", ""), ("d", "once")
    )
    ran: list[tuple[str, str | None]] = []

    def pay(n: str, idempotency_key: str | None = None) -> str:
        ran.append((n, idempotency_key))
        return f"paid {n}"

    async with world.store() as store:
        session = await store.session(session_id)
        await session.settle(turn_id, "d", "ran")
        async with session.turn(None, continues=turn_id) as turn:
            running = turn.run_tools(None, {"pay": pay}, unfinished=turn_id)
            async with running:
                pass
            assert sorted(running.results) == ["a", "b", "c"]
            async with turn.run_tools(None, {"pay": pay}, unfinished=turn_id):
                pass
        assert sorted(n for n, _ in ran) == ["a", "b", "c"]
        assert all(key for _, key in ran)
        assert len({key for _, key in ran}) == 3
        await _truth(session)


@check
async def run_tools_asks_the_outside(world: World) -> None:
    """A check settles a call of unknown outcome; what did not run is run, what ran is not."""
    session_id, turn_id = await broken_turn(world, ("a", "once"), ("b", "once"), ("c", "once"))
    ran: list[str] = []
    asked: list[str] = []

    def pay(n: str) -> str:
        ran.append(n)
        return f"paid {n}"

    def was_paid(n: str, idempotency_key: str) -> str | bool:
        asked.append(idempotency_key)
        return "receipt 7" if n == "a" else n == "c"

    async with world.store() as store:
        session = await store.session(session_id)
        async with session.turn(None, continues=turn_id) as turn:
            check_ = {"pay": was_paid}
            async with turn.run_tools(None, {"pay": pay}, unfinished=turn_id, check=check_):
                pass
        assert ran == ["b"]
        assert len(set(asked)) == 3
        settled = await _bodies(session, e.Settled)
        assert sorted((b.call_id, b.outcome, b.result, b.by) for b in settled) == [
            ("a", "ran", "receipt 7", "check"),
            ("b", "did_not_run", None, "check"),
            ("c", "ran", None, "check"),
        ]
        await _truth(session)


@check
async def run_tools_repeats_nothing_that_is_unsettled(world: World) -> None:
    """Without an answer of a check the caller is told which call it is."""
    session_id, turn_id = await broken_turn(world, ("a", "once"))
    async with world.store() as store:
        session = await store.session(session_id)
        turn = await enter(session.turn(None, continues=turn_id))
        running = turn.run_tools(
            None, {"pay": str}, unfinished=turn_id, check={"pay": lambda n: None}
        )
        await enter(running)
        refused = await raises(OutcomeUnsettled, leave(running))
        assert isinstance(refused, OutcomeUnsettled)
        assert refused.call_id == "a"
        await leave(turn)


@check
async def run_tools_leaves_what_a_model_was_told(world: World) -> None:
    """Behind a model call the conversation has gone on: nothing of before is run."""
    session_id, turn_id = await broken_turn(world, ("a", "none"))
    async with world.store() as store:
        session = await store.session(session_id)
        async with session.turn(None, continues=turn_id) as turn:
            async with turn.stream() as reply:
                reply.text("So be it.")
            async with turn.run_tools(None, {"pay": str}, unfinished=turn_id) as running:
                pass
            assert running.results == {}


@check
async def a_tool_runs_with_its_effect(world: World) -> None:
    """`effects` names those of tools; the start of any other says once."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            tools = {"look": lambda: "seen", "pay": lambda: "paid"}
            reply = await enter(turn.stream())
            async with turn.run_tools(reply, tools, effects={"look": "none"}):
                reply.tool_call("a", name="look", arguments="{}")
                reply.tool_call("b", name="pay", arguments="{}")
                await reply.end()
            try:
                turn.run_tools(None, tools, effects={"look": "never"})
            except UsageError as refused:
                assert "idempotent" in str(refused)
            else:
                raise AssertionError("an unknown effect was taken")
        starts = await _bodies(session, e.ToolStarted)
        assert sorted((b.call_id, b.effect) for b in starts) == [("a", "none"), ("b", "once")]
