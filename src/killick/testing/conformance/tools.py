"""Tools: started before they run, answered once, also late."""

from killick import errors
from killick.model import entries as e
from killick.model.messages import Message, Text, ToolCall, ToolResult
from killick.testing.conformance.world import Boom, World, check, enter, kinds, raises, texts


@check
async def a_tool_can_start_while_its_message_streams(world: World) -> None:
    """A call is durable as soon as it is whole; half a call cannot be started."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn, turn.stream() as reply:
            reply.tool_call("a", name="shell", arguments='{"x": "}')
            await raises(errors.CallNotFound, enter(turn.tool("a")))
            reply.tool_call("a", arguments='"}')
            async with turn.tool("a") as call:
                await call.finish("ran")
            reply.text("and on")
        messages = await session.messages()
        assert [message.role for message in messages] == ["user", "assistant", "tool"]
        assert messages[1].parts[1] == Text("and on")


@check
async def sibling_results_are_recorded_apart(world: World) -> None:
    """Two of three tools finished, the third was interrupted: both results are there."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn:
                async with turn.stream() as reply:
                    for name in "abc":
                        reply.tool_call(name, name="shell", arguments="{}")
                for name in "ab":
                    async with turn.tool(name) as call:
                        await call.finish(name.upper())
                async with turn.tool("c") as call:
                    call.output("so far")
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        results = [m.parts[0] for m in await session.messages() if m.role == "tool"]
        assert results == [ToolResult("a", "A"), ToolResult("b", "B")]
        bodies = [entry.body for entry in await session.entries()]
        assert [b.call_id for b in bodies if isinstance(b, e.ToolStarted)] == ["a", "b", "c"]
        assert [b.output for b in bodies if isinstance(b, e.ToolOutput)] == ["so far"]
        assert (await store.counts())["deltas"] == 0


@check
async def a_tool_that_raises_has_an_error_result(world: World) -> None:
    """The exception is the result, and goes on."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn:
                await turn.record(Message("assistant", [ToolCall("a", "shell", "{}")]))
                async with turn.tool("a"):
                    raise Boom("broken pipe")
        except Boom:
            pass
        (result,) = [m.parts[0] for m in await session.messages() if m.role == "tool"]
        assert result.is_error
        assert "broken pipe" in result.content


@check
async def leaving_a_tool_unfinished_is_a_usage_error(world: World) -> None:
    """There is no result, and the caller is told."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn:
                await turn.record(Message("assistant", [ToolCall("a", "shell", "{}")]))
                async with turn.tool("a"):
                    pass
        except errors.ToolNotFinished:
            pass
        assert [message.role for message in await session.messages()] == ["user", "assistant"]
        assert [turn.status for turn in await session.turns()] == ["failed"]


@check
async def a_second_result_must_be_the_same(world: World) -> None:
    """Again changes nothing; other content is a conflict; a call is not started twice."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            await turn.record(Message("assistant", [ToolCall("a", "shell", "{}")]))
            async with turn.tool("a") as call:
                first = await call.finish("one")
                again = await call.finish("one")
                assert (again.seq, again.repeated) == (first.seq, True)
                await raises(errors.IdConflict, call.finish("two"))
            await raises(errors.ToolAlreadyStarted, enter(turn.tool("a")))
            await raises(errors.CallNotFound, enter(turn.tool("never")))
            await raises(errors.CallNotFound, session.finish_tool(turn.id, "never", "x"))
        assert len([m for m in await session.messages() if m.role == "tool"]) == 1


@check
async def call_ids_may_repeat(world: World) -> None:
    """Providers repeat ids, in later turns and within one: each call has its own result."""
    async with world.store() as store:
        session = await store.create_session()
        for number in range(2):
            async with session.turn(f"go {number}") as turn:
                for step in range(2):
                    async with turn.stream() as reply:
                        reply.tool_call("call_0", name="shell", arguments="{}")
                    async with turn.tool("call_0") as call:
                        await call.finish(f"{number}.{step}")
        results = [m.parts[0].content for m in await session.messages() if m.role == "tool"]
        assert results == ["0.0", "0.1", "1.0", "1.1"]


@check
async def output_without_content_is_the_result(world: World) -> None:
    """finish() with nothing takes what the tool printed."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            await turn.record(Message("assistant", [ToolCall("a", "shell", "{}")]))
            async with turn.tool("a") as call:
                call.output("one\n")
                call.output("two\n")
                await call.finish()
        (result,) = [m.parts[0] for m in await session.messages() if m.role == "tool"]
        assert result == ToolResult("a", "one\ntwo\n")


@check
async def a_cut_off_call_is_kept_and_is_no_call(world: World) -> None:
    """Arguments that were cut off stay in the partial message; no tool can be started for them."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            try:
                async with turn.stream() as reply:
                    reply.tool_call("a", name="shell", arguments='{"command": "rm')
                    raise Boom
            except Boom:
                pass
            await raises(errors.CallNotFound, enter(turn.tool("a")))
        (partial,) = [m for m in await session.messages() if m.role == "assistant"]
        assert partial.state == "partial"
        assert partial.parts == (ToolCall("a", "shell", '{"command": "rm'),)


@check
async def a_result_after_the_end_is_late_and_in_its_place(world: World) -> None:
    """The real result is kept once, linked to its call, where the call was started."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn:
                await turn.record(Message("assistant", [ToolCall("a", "shell", "{}")]))
                async with turn.tool("a") as call:
                    call.output("some ")
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        async with session.turn("next"):
            pass
        receipt = await session.finish_tool(turn.id, "a", "done after all")
        again = await session.finish_tool(turn.id, "a", "done after all")
        assert (receipt.repeated, again.repeated) == (False, True)
        await raises(errors.IdConflict, session.finish_tool(turn.id, "a", "something else"))
        roles = [(message.role, message.turn_id) for message in await session.messages()]
        assert [role for role, _ in roles] == ["user", "assistant", "tool", "user"]
        assert kinds(await session.entries())[-1] == "late_result"


@check
async def the_rest_of_an_answer_is_late_once(world: World) -> None:
    """Only what goes beyond the partial is kept; the text is there once."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn, turn.stream() as reply:
                reply.text("The answer")
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        await session.add_late_text(turn.id, reply.id, "The answer is 42.")
        wrong = session.add_late_text(turn.id, reply.id, "Something else")
        await raises(errors.IdConflict, wrong)
        assert (await texts(session))[1:] == [("assistant", "complete", "The answer is 42.")]
        assert kinds(await session.entries()).count("late_text") == 1


@check
async def a_call_that_a_person_was_asked_about_is_started_after_a_yes(world: World) -> None:
    """Not before the decision, not after a no; the newest question counts; others are not asked."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            calls = [ToolCall(name, "rm", "{}") for name in "abc"]
            await turn.record(Message("assistant", calls))
            first, second = await turn.ask_approval("a", "{}"), await turn.ask_approval("b", "{}")
            before = kinds(await session.entries()).count("tool_started")
            await raises(errors.ToolNotApproved, enter(turn.tool("a")))
            await session.decide_approval(first, approved=False, reason="too dangerous")
            await raises(errors.ToolNotApproved, enter(turn.tool("a")))
            await raises(errors.ToolNotApproved, enter(turn.tool("b")))
            assert kinds(await session.entries()).count("tool_started") == before
            await session.decide_approval(second, approved=True)
            again = await turn.ask_approval("a", "{}")
            await raises(errors.ToolNotApproved, enter(turn.tool("a")))
            await session.decide_approval(again, approved=True)
            for name in "abc":
                async with turn.tool(name) as call:
                    await call.finish("done")
        assert await store.examine_session(session.id) == []


@check
async def a_call_is_started_in_a_turn_that_continues_its_own(world: World) -> None:
    """Once, only if it was never started, and its result belongs to the call."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn:
                await turn.record(Message("assistant", [ToolCall("a", "rm", "{}")]))
                asked = await turn.ask_approval("a", "{}")
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        (info,) = await session.turns()
        assert (info.status, info.reason) == ("interrupted", "awaiting_approval")
        async with session.turn("another") as other:
            await raises(errors.InvalidEntry, enter(other.tool("a", of=turn.id)))
        async with session.turn(None, continues=turn.id) as later:
            await raises(errors.ToolNotApproved, enter(later.tool("a", of=turn.id)))
            await session.decide_approval(asked, approved=True)
            async with later.tool("a", of=turn.id) as call:
                await call.finish("gone")
            await raises(errors.ToolAlreadyStarted, enter(later.tool("a", of=turn.id)))
        results = [m.parts[0] for m in await session.messages() if m.role == "tool"]
        assert results == [ToolResult("a", "gone")]
        assert kinds(await session.entries()).count("late_result") == 1
        assert await store.examine_session(session.id) == []
