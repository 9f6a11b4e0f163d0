"""One running turn: busy, queued, stopped, taken over, and closed when its holder is dead."""

from killick import errors
from killick.model import entries as e
from killick.model.messages import Message, Text, ToolCall
from killick.testing.conformance.world import World, check, enter, kinds, leave, raises, texts


@check
async def a_busy_session_refuses_and_names_the_holder(world: World) -> None:
    """refuse is the default, from the same opening and from another."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        async with session.turn("go") as turn:
            for handle in (session, await other.session(session.id)):
                busy = await raises(errors.SessionBusy, enter(handle.turn("no")))
                assert isinstance(busy, errors.SessionBusy)
                assert busy.turn_id == turn.id
                assert busy.holder in str(busy)
        assert [info.status for info in await session.turns()] == ["completed"]


@check
async def a_queued_prompt_is_taken_by_the_next_turn(world: World) -> None:
    """The prompt is durable; the next turn takes all that wait, in order, before its own."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("first"):
            queued = await raises(
                errors.PromptQueued, enter(session.turn("second", if_busy="queue"))
            )
            assert isinstance(queued, errors.PromptQueued)
            await session.queue("third", key="k")
            await session.queue("third", key="k")
        async with session.turn("fourth"):
            pass
        async with session.turn(None):
            pass
        prompts = [text for _, _, text in await texts(session)]
        assert prompts == ["first", "second", "third", "fourth"]


@check
async def a_key_that_was_queued_never_runs_again(world: World) -> None:
    """The turn that took the prompt is the one that the key stands for."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("first"):
            asking = session.turn("second", key="k", if_busy="queue")
            await raises(errors.PromptQueued, enter(asking))
        async with session.turn(None) as taker:
            pass
        async with session.turn("second", key="k", if_busy="queue") as again:
            assert again.repeated
            assert again.id == taker.id
        await raises(errors.IdConflict, enter(session.turn("other", key="k")))
        assert [text for _, _, text in await texts(session)] == ["first", "second"]


@check
async def a_prompt_that_was_withdrawn_is_never_asked(world: World) -> None:
    """Once, while it waits; from any process; the others still wait. Its key is used up."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        async with session.turn("first"):
            gone = await session.queue("second", key="k")
            kept = await session.queue("third")
            elsewhere = await other.session(session.id)
            receipt = await elsewhere.withdraw(gone)
            assert (await session.withdraw(gone)).seq == receipt.seq
            assert [one.id for one in await session.queued()] == [kept]
            await raises(errors.IdConflict, session.queue("second", key="k"))
            await raises(errors.MessageNotFound, session.withdraw("none"))
        async with session.turn("fourth"):
            pass
        await raises(errors.MessageNotFound, session.withdraw(kept))
        assert [text for _, _, text in await texts(session)] == ["first", "third", "fourth"]


@check
async def what_a_fenced_out_tool_printed_is_kept(world: World) -> None:
    """Output that was not on the disk when the turn was taken over is kept as late, once."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        turn = session.turn("first")
        await enter(turn)
        await turn.record(Message("assistant", [ToolCall(name, "shell", "{}") for name in "ab"]))
        finished, left = await enter(turn.tool("a")), turn.tool("b")
        await enter(left)
        async with (await other.session(session.id)).turn("second", if_busy="take_over"):
            finished.output("printed ")
            left.output("printed too")
            receipt = await finished.finish("done")
            assert not receipt.repeated
            interruption = KeyboardInterrupt()
            await left.__aexit__(KeyboardInterrupt, interruption, None)
        await raises(errors.StaleFence, leave(turn))
        assert (turn.status, turn.reason) == ("interrupted", "taken_over")
        bodies = [entry.body for entry in await session.entries()]
        (late,) = [body for body in bodies if isinstance(body, e.LateResult)]
        assert (late.result.content, late.output) == ("done", "printed ")
        (text,) = [body for body in bodies if isinstance(body, e.LateText)]
        assert (text.call_id, text.deltas[0].text) == ("b", "printed too")


@check
async def taking_over_fences_the_holder_out(world: World) -> None:
    """The old turn is interrupted once; its holder's writes are refused; its text is kept once."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        turn = session.turn("first")
        await enter(turn)
        stream = turn.stream()
        reply = await enter(stream)
        reply.text("half an answer")
        async with (await other.session(session.id)).turn("second", if_busy="take_over") as second:
            stale = turn.record(Message("assistant", [Text("stale")]))
            await raises(errors.StaleFence, stale)
            await raises(errors.StaleFence, leave(stream))
            await second.record(Message("assistant", [Text("mine")]))
        await raises(errors.TurnEnded, leave(turn))
        turns = await session.turns()
        assert [(t.status, t.reason) for t in turns] == [
            ("interrupted", "taken_over"),
            ("completed", None),
        ]
        assert [text for _, _, text in await texts(session)] == [
            "first",
            "half an answer",
            "second",
            "mine",
        ]


@check
async def a_stop_is_durable_and_reaches_the_turn(world: World) -> None:
    """The holder's next call raises TurnStopped; the turn ends with the reason given."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        assert await session.stop() is False
        try:
            async with session.turn("go") as turn, turn.stream() as reply:
                reply.text("on and on")
                elsewhere = await other.session(session.id)
                assert await elsewhere.stop(turn.id, reason="enough") is True
                while True:
                    await turn.record(Message("assistant", [Text("more")]))
        except errors.TurnStopped as stopped:
            assert stopped.reason == "enough"
        (info,) = await session.turns()
        assert (info.status, info.reason) == ("interrupted", "enough")
        assert "stop_asked" in kinds(await session.entries())
        assert await session.stop(turn.id) is False
        await raises(errors.TurnNotFound, session.stop("turn_unknown"))


@check
async def a_dead_turn_is_closed_by_the_next_to_open_it(world: World) -> None:
    """Deltas become a partial message, results stay, one ending says crashed."""
    async with world.crashing(window_seconds=30.0) as store:
        session = await store.create_session()
        turn = session.turn("go")
        await enter(turn)
        reply = await enter(turn.stream())
        reply.text("half an answer ")
        for name in "ab":
            reply.tool_call(name, name="shell", arguments="{}")
        call = await enter(turn.tool("a"))
        await call.finish("A")
        await enter(turn.tool("b"))
    async with world.store() as store:
        session = await store.session(session.id)
        (info,) = await session.turns()
        assert (info.status, info.reason) == ("interrupted", "crashed")
        messages = await session.messages()
        assert [(m.role, m.state) for m in messages] == [
            ("user", "complete"),
            ("assistant", "partial"),
            ("tool", "complete"),
        ]
        assert messages[1].text == "half an answer "
        assert kinds(await session.entries()).count("turn_ended") == 1
        assert (await store.counts())["deltas"] == 0
        async with session.turn("next"):
            pass
        assert [t.status for t in await session.turns()] == ["interrupted", "completed"]


@check
async def starting_a_turn_recovers_too(world: World) -> None:
    """A session object from before the crash may start the next turn."""
    async with world.store() as survivor:
        session = await survivor.create_session()
        async with world.crashing() as doomed:
            await enter((await doomed.session(session.id)).turn("lost"))
        async with session.turn("next"):
            pass
        assert [t.status for t in await session.turns()] == ["interrupted", "completed"]
