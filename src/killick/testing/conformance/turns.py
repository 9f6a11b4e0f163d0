"""Turns and tools: everything comes back, each call is answered once, also late."""

from typing import Any

from killick import errors
from killick.model import entries as e
from killick.model.messages import Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from killick.testing.conformance.world import (
    AWKWARD,
    Boom,
    World,
    check,
    enter,
    kinds,
    raises,
    texts,
)


@check
async def a_whole_turn_reads_back_as_it_was_said(world: World) -> None:
    """Prompt, reasoning, text, call, result and answer come back in order, each once."""
    async with world.store() as store:
        session = await store.create_session(title="Fix the build")
        async with session.turn("Why does it fail?") as turn:
            async with turn.stream(model="m", provider="p", system="Be brief.") as reply:
                reply.reasoning("The log", signature="sig")
                reply.text("Let me ")
                reply.text("look.")
                reply.tool_call("call_1", name="shell", arguments='{"command"')
                reply.tool_call("call_1", arguments=': "make"}')
            async with turn.tool("call_1") as call:
                call.output("compiling\n")
                await call.finish("Error 2", is_error=True)
            await turn.record(Message("assistant", [Text("The linker is missing.")]))
        messages = await (await store.session(session.id)).messages()
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1].parts == (
        Reasoning("The log", signature="sig"),
        Text("Let me look."),
        ToolCall("call_1", "shell", '{"command": "make"}'),
    )
    assert messages[2].parts == (ToolResult("call_1", "Error 2", is_error=True),)
    assert [message.state for message in messages] == ["complete"] * 4
    assert {message.turn_id for message in messages} == {turn.id}
    assert [message.seq for message in messages] == sorted(message.seq for message in messages)


@check
async def seqs_are_dense_and_nothing_is_left_over(world: World) -> None:
    """Entries are numbered 1, 2, 3 … and a turn that ended leaves no delta behind."""
    async with world.store() as store:
        session = await store.create_session()
        for number in range(3):
            async with session.turn(f"prompt {number}") as turn, turn.stream() as reply:
                reply.text("answer" * 2_000)
        entries = await session.entries()
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert session.head == len(entries)
        assert (await store.counts())["deltas"] == 0


@check
async def an_exception_fails_the_turn_and_goes_on(world: World) -> None:
    """The turn is failed with a reason, the text so far is a partial message."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn, turn.stream() as reply:
                reply.text("half an ans")
                raise Boom
        except Boom:
            pass
        (info,) = await session.turns()
        assert (info.status, info.reason) == ("failed", "Boom")
        assert (await texts(session))[1:] == [("assistant", "partial", "half an ans")]


@check
async def an_interruption_ends_the_turn_as_interrupted(world: World) -> None:
    """KeyboardInterrupt, SystemExit, GeneratorExit and groups of them interrupt; all go on."""
    interruptions: list[BaseException] = [
        KeyboardInterrupt(),
        SystemExit(3),
        GeneratorExit(),
        BaseExceptionGroup("all", [KeyboardInterrupt(), GeneratorExit()]),
    ]
    async with world.store() as store:
        for interruption in interruptions:
            session = await store.create_session()
            try:
                async with session.turn("go") as turn, turn.stream() as reply:
                    reply.text("half")
                    raise interruption
            except BaseException as error:  # noqa: BLE001
                assert error is interruption
            (info,) = await session.turns()
            assert info.status == "interrupted"
            assert info.reason
            assert (await texts(session))[1:] == [("assistant", "partial", "half")]


@check
async def a_mixed_group_fails_the_turn(world: World) -> None:
    """One leaf that is no interruption makes the turn failed."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go"):
                raise BaseExceptionGroup("mixed", [KeyboardInterrupt(), Boom("x")])
        except BaseExceptionGroup:
            pass
        assert [turn.status for turn in await session.turns()] == ["failed"]


@check
async def an_empty_partial_leaves_the_ending_alone(world: World) -> None:
    """A stream that was interrupted before its first word is no message."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn, turn.stream():
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        assert [message.role for message in await session.messages()] == ["user"]
        assert [turn.status for turn in await session.turns()] == ["interrupted"]


@check
async def a_turn_without_a_prompt_goes_on(world: World) -> None:
    """None adds no message and links to the turn that it continues."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as first:
            pass
        async with session.turn(None, continues=first.id) as second:
            await second.record(Message("assistant", [Text("and so")]))
        assert await texts(session) == [
            ("user", "complete", "go"),
            ("assistant", "complete", "and so"),
        ]
        assert (await session.turns())[1].continues == first.id


@check
async def a_turn_says_whether_its_recorder_sees_starts(world: World) -> None:
    """It is on its entry and in its facts; a start that is seen all the same is a start."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go", starts="unseen") as first:
            await first.record(Message("assistant", [ToolCall("a", "make", "{}")]))
            async with first.tool("a") as call:
                await call.finish("made")
        async with session.turn("on"):
            pass
        assert [turn.starts for turn in await session.turns()] == ["unseen", "seen"]
        started = [entry.body for entry in await session.entries() if entry.kind == "turn_started"]
        assert [body.starts for body in started] == ["unseen", "seen"]
        assert kinds(await session.entries()).count("tool_started") == 1
        try:
            session.turn("go", starts="sometimes")
        except ValueError as refused:
            assert "unseen" in str(refused)
        else:
            raise AssertionError("an unknown value was taken")


@check
async def writing_after_the_end_is_refused(world: World) -> None:
    """The turn has one ending; nothing is written through its handle afterwards."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn, turn.stream() as reply:
            reply.text("done")
        before = await session.entries()
        await raises(errors.TurnEnded, turn.record(Message("assistant", [Text("late")])))
        await raises(errors.TurnEnded, enter(turn.stream()))
        await raises(errors.TurnEnded, enter(turn.tool("call_1")))
        try:
            reply.text("late")
        except errors.HandleClosed:
            pass
        else:
            raise AssertionError("a delta to a closed stream was taken")
        assert await session.entries() == before


@check
async def a_repeated_message_changes_nothing_and_says_so(world: World) -> None:
    """The same id with the same content is there once; with other content it is a conflict."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            message = Message("assistant", [Text("once")], id="mine")
            first = await turn.record(message)
            again = await turn.record(message)
            assert (first.repeated, again.repeated) == (False, True)
            assert first.seq == again.seq
            other = Message("assistant", [Text("other")], id="mine")
            await raises(errors.IdConflict, turn.record(other))
        assert (await texts(session))[1:] == [("assistant", "complete", "once")]


@check
async def a_repeated_key_returns_the_turn_that_exists(world: World) -> None:
    """The same key never runs twice; with another prompt it is a conflict."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go", key="k") as turn:
            await turn.record(Message("assistant", [Text("ran")]))
        before = await session.entries()
        async with session.turn("go", key="k") as again:
            assert again.repeated
            assert again.id == turn.id
            assert again.status == "completed"
            await raises(errors.TurnEnded, again.record(Message("assistant", [Text("twice")])))
        await raises(errors.IdConflict, enter(session.turn("other", key="k")))
        assert await session.entries() == before


@check
async def creating_a_session_twice_gives_the_same_one(world: World) -> None:
    """An id of the caller's makes it idempotent; another beginning is a conflict."""
    async with world.store() as store:
        first = await store.create_session(id="mine", title="a")
        again = await store.create_session(id="mine", title="a")
        assert (first.id, first.head) == (again.id, again.head)
        await raises(errors.IdConflict, store.create_session(id="mine", title="b"))
        assert len(await store.sessions()) == 1


@check
async def awkward_strings_are_stored_exactly(world: World) -> None:
    """Quotes, NUL, lone surrogates and right-to-left marks survive, in ids too."""
    async with world.store() as store:
        for text in AWKWARD:
            session = await store.create_session(id=text, title=text)
            async with session.turn(text, key=text) as turn:
                async with turn.stream() as reply:
                    reply.text(text)
                    reply.tool_call(text, name=text, arguments="{}")
                async with turn.tool(text) as call:
                    call.output(text)
                    await call.finish(text)
                await turn.record(Message("assistant", [Text(text)], id=text))
                await turn.record(
                    Message("assistant", [Opaque(text, text.encode("utf-8", "surrogatepass"))])
                )
        async with world.store() as other:
            for text in AWKWARD:
                session = await other.session(text)
                assert session.title == text
                messages = await session.messages()
                assert messages[0].parts == (Text(text),)
                assert messages[1].parts == (Text(text), ToolCall(text, text, "{}"))
                assert messages[2].parts == (ToolResult(text, text),)
                assert messages[3].id == text
                assert messages[4].parts[0].data.decode("utf-8", "surrogatepass") == text


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
async def what_a_tool_did_belongs_to_the_call_that_was_started(world: World) -> None:
    """Also when the model has used the same id again since: its result, and what it printed."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            for left in (False, True):
                first = await turn.record(Message("assistant", [ToolCall("a", "rm", "{}")]))
                tool = turn.tool("a")
                await enter(tool)
                second = await turn.record(Message("assistant", [ToolCall("a", "rm", "{}")]))
                tool.output("half")
                if left:
                    await tool.__aexit__(KeyboardInterrupt, KeyboardInterrupt(), None)
                else:
                    await tool.finish("done")
                assert first.seq < second.seq
        entries = [entry.body for entry in await session.entries()]
        made = [body.id for body in entries if isinstance(body, e.MessageRecorded)][1:]
        finished = [body.message_id for body in entries if isinstance(body, e.ToolFinished)]
        printed = [body.message_id for body in entries if isinstance(body, e.ToolOutput)]
        assert (finished, printed) == ([made[0]], [made[2]])


@check
async def a_model_is_told_what_became_true_of_a_tool(world: World) -> None:
    """Started since, and unknown; so is a call whose start was unseen, behind a summary too."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn:
                await turn.record(Message("assistant", [ToolCall("a", "rm", "{}")]))
                async with turn.stream() as judge:
                    judge.text("fine")
                async with turn.tool("a") as call:
                    call.output("1 of 3")
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        sent = str((await session.context("anthropic")).messages)
        assert "did not run" in sent
        assert "above was started and left no result, so its outcome is unknown" in sent
        assert "1 of 3" in sent
        async with session.turn("on", starts="unseen") as turn:
            await session.compact("much was done", through=session.head)
            await turn.record(Message("assistant", [ToolCall("b", "rm", "{}")]))
        await raises(OSError, _failing(session))
        sent = str((await session.context("anthropic")).messages)
        assert "whether it ran was not seen" in sent
        assert "did not run" not in sent
        assert "OSError" in sent
        assert "/srv/db" not in sent
        assert "/srv/db" in str((await session.context("anthropic", errors="text")).messages)


async def _failing(session: Any) -> None:
    async with session.turn("fail"):
        raise OSError("/srv/db is locked")


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
async def a_denied_call_is_not_run_and_is_told_as_denied(world: World) -> None:
    """Starting it is refused by type, in its turn and later; the model and a person are told."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            async with turn.stream() as reply:
                for name in "ab":
                    reply.tool_call(name, name="rm", arguments="{}")
            for name in "ab":
                asked = await turn.ask_approval(name, "{}")
                await session.decide_approval(asked, approved=False, reason="too dangerous")
            refused = await raises(errors.ToolNotApproved, enter(turn.tool("a")))
            assert isinstance(refused, errors.ToolNotApproved)
            assert refused.denied
            assert "too dangerous" in str(refused)
            refusal = ToolResult("b", "The user refused.", is_error=True)
            await turn.record(Message("tool", [refusal]))
        async with session.turn(None, continues=turn.id) as later:
            await raises(errors.ToolNotApproved, enter(later.tool("a", of=turn.id)))
        assert "tool_started" not in kinds(await session.entries())
        tools = [tool for shown in await session.transcript() for tool in shown.tools]
        assert [tool.state for tool in tools] == ["denied"] * 2
        sent = str((await session.context("anthropic")).messages)
        assert "denied" in sent
        assert "too dangerous" in sent
        assert "The user refused." in sent


@check
async def tools_that_are_run_pass_over_a_denied_call(world: World) -> None:
    """The turn goes on without it, and completes."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            async with turn.stream() as reply:
                for name in "abc":
                    reply.tool_call(name, name="rm", arguments="{}")
            denied = await turn.ask_approval("a", "{}")
            await session.decide_approval(denied, approved=False)
            async with turn.run_tools(reply, {"rm": lambda: "gone"}, in_order=True) as running:
                pass
            assert sorted(running.results) == ["b", "c"]
        assert [turn.status for turn in await session.turns()] == ["completed"]


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


@check
async def a_stop_ends_the_waiting_for_an_approval_whatever_its_words(world: World) -> None:
    """Only the cause decides: a turn whose process ended waits on, a stopped one does not."""
    async with world.store() as store:
        for cause, words in [
            *(("stopped", words) for words in ("cancelled", "crashed", "left", "store_closed")),
            *((cause, "enough") for cause in ("shut_down", "terminated", "client_gone")),
        ]:
            session = await store.create_session()
            try:
                async with session.turn("go") as turn:
                    await turn.record(Message("assistant", [ToolCall("a", "rm", "{}")]))
                    await turn.ask_approval("a", "{}")
                    given = {} if cause == "stopped" else {"cause": cause}
                    await session.stop(turn.id, reason=words, **given)
                    while True:
                        await turn.record(Message("assistant", [Text("more")]))
            except errors.TurnStopped:
                pass
            waits = [asked.call_id for asked in await session.approvals()]
            assert waits == ([] if cause == "stopped" else ["a"]), (cause, words)
            (info,) = await session.turns()
            assert (info.status, info.cause) == ("interrupted", cause)
            assert info.reason == ("awaiting_approval" if waits else words)


@check
async def a_turn_can_be_ended_with_a_cause_before_its_block_is_left(world: World) -> None:
    """One ending, which has the cause; leaving the block afterwards does nothing more."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn, turn.stream() as reply:
                reply.text("so far")
                try:
                    raise KeyboardInterrupt
                except KeyboardInterrupt as error:
                    await turn.end(error, cause="client_gone")
                    raise
        except KeyboardInterrupt:
            pass
        assert (turn.status, turn.cause) == ("interrupted", "client_gone")
        async with session.turn("go") as turn:
            await turn.end(cause="timed_out")
            await raises(errors.TurnEnded, turn.record(Message("assistant", [Text("more")])))
        async with session.turn("go") as turn:
            await turn.end()
        async with session.turn("go") as turn:
            await raises(errors.UsageError, turn.end(cause="canceled"))
        await raises(errors.UsageError, session.stop(cause="canceled"))
        assert [(info.status, info.cause) for info in await session.turns()] == [
            ("interrupted", "client_gone"),
            ("interrupted", "timed_out"),
            ("completed", None),
            ("completed", None),
        ]
        assert kinds(await session.entries()).count("turn_ended") == 4
        assert ("assistant", "partial", "so far") in await texts(session)


@check
async def a_finished_tool_leaves_no_output_behind(world: World) -> None:
    """Its result has the output that was flushed while it ran, and nothing else has it."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            await turn.record(Message("assistant", [ToolCall("a", "make", "{}")]))
            async with turn.tool("a") as call:
                call.output("compiling " * 1_000)
                async for item in session.follow():
                    if isinstance(item, e.FollowedDelta):
                        break
                assert (await store.counts())["deltas"] > 0
                await call.finish("done")
            assert (await store.counts())["deltas"] == 0
        assert (await store.counts())["deltas"] == 0


@check
async def a_decided_approval_keeps_its_turn_waiting_no_longer(world: World) -> None:
    """A turn that is interrupted after the decision says why, and no question is left."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn:
                await turn.record(Message("assistant", [ToolCall("a", "rm", "{}")]))
                asked = await turn.ask_approval("a", "{}")
                await session.decide_approval(asked, approved=True)
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        (info,) = await session.turns()
        assert (info.status, info.cause) == ("interrupted", "cancelled")
        assert info.reason != "awaiting_approval"
        assert await session.approvals() == []
