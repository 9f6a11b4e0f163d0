"""What every store must do, on both faces.

Run it for a store of your own::

    from holdfast.testing.conformance import CHECKS, World
    from holdfast.testing.faces import FACES

    @pytest.mark.parametrize("face", FACES)
    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check, face, tmp_path):
        World(face, lambda: MyDatabase(tmp_path)).run(check)

The function given to `World` opens the same database again each time it is called. A check is a
sentence that must be true; its docstring says it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from holdfast import errors
from holdfast.model import entries as e
from holdfast.model.messages import Message
from holdfast.model.parts import Image, Opaque, Reasoning, Text, ToolCall, ToolResult
from holdfast.stores.base import Database
from holdfast.testing.crash import crash
from holdfast.testing.faces import Face, open_store, run_scenario, unwrap

AWKWARD = [
    "quotes ' \" `",
    "nul \0 inside",
    "lone \ud800 surrogate \udfff",
    "right-to-left \u202e mark",
    "line\u2028separator\nand\r\nbreaks",
    "emoji \U0001f980 and combining e\u0301",
]


class World:
    """One face on one database, as often opened as a check likes."""

    def __init__(self, face: Face, make: Callable[[], Database], **settings: Any) -> None:
        self.face = face
        self._make = make
        self._settings = {"window_seconds": 0.02, **settings}

    def run(self, check: "Check") -> None:
        run_scenario(self.face, lambda: _awaited(check(self)))

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Any]:
        """An opening of the database, closed at the end."""
        async with open_store(self.face, self._make(), **self._settings) as store:
            yield store

    @asynccontextmanager
    async def crashing(self, **settings: Any) -> AsyncIterator[Any]:
        """An opening whose process dies at the end of the block."""
        store = open_store(self.face, self._make(), **{**self._settings, **settings})
        yield store
        crash(unwrap(store))


Check = Callable[[World], Awaitable[None]]
CHECKS: list[Check] = []


async def _awaited(check: Awaitable[None]) -> None:
    await check


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


class _Boom(Exception):
    """A failure of the caller's own."""


async def _raises(kind: type[BaseException], awaitable: Awaitable[Any]) -> BaseException:
    try:
        await awaitable
    except kind as error:
        assert str(error), "an error says what is wrong"
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def _kinds(entries: list[e.Entry]) -> list[str]:
    return [entry.kind for entry in entries]


async def _texts(session: Any) -> list[tuple[str, str, str]]:
    return [(m.role, m.state, m.text) for m in await session.messages()]


async def _enter(turn: Any) -> Any:
    return await turn.__aenter__()


async def _leave(turn: Any) -> None:
    await turn.__aexit__(None, None, None)


# -- a turn ------------------------------------------------------------------------------------


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
                raise _Boom
        except _Boom:
            pass
        (info,) = await session.turns()
        assert (info.status, info.reason) == ("failed", "_Boom")
        assert (await _texts(session))[1:] == [("assistant", "partial", "half an ans")]


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
            assert (await _texts(session))[1:] == [("assistant", "partial", "half")]


@check
async def a_mixed_group_fails_the_turn(world: World) -> None:
    """One leaf that is no interruption makes the turn failed."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go"):
                raise BaseExceptionGroup("mixed", [KeyboardInterrupt(), _Boom("x")])
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
        assert await _texts(session) == [
            ("user", "complete", "go"),
            ("assistant", "complete", "and so"),
        ]
        assert (await session.turns())[1].continues == first.id


@check
async def writing_after_the_end_is_refused(world: World) -> None:
    """The turn has one ending; nothing is written through its handle afterwards."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn, turn.stream() as reply:
            reply.text("done")
        before = await session.entries()
        await _raises(errors.TurnEnded, turn.record(Message("assistant", [Text("late")])))
        await _raises(errors.TurnEnded, _enter(turn.stream()))
        await _raises(errors.TurnEnded, _enter(turn.tool("call_1")))
        try:
            reply.text("late")
        except errors.HandleClosed:
            pass
        else:
            raise AssertionError("a delta to a closed stream was taken")
        assert await session.entries() == before


# -- identity ----------------------------------------------------------------------------------


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
            await _raises(errors.IdConflict, turn.record(other))
        assert (await _texts(session))[1:] == [("assistant", "complete", "once")]


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
            await _raises(errors.TurnEnded, again.record(Message("assistant", [Text("twice")])))
        await _raises(errors.IdConflict, _enter(session.turn("other", key="k")))
        assert await session.entries() == before


@check
async def creating_a_session_twice_gives_the_same_one(world: World) -> None:
    """An id of the caller's makes it idempotent; another beginning is a conflict."""
    async with world.store() as store:
        first = await store.create_session(id="mine", title="a")
        again = await store.create_session(id="mine", title="a")
        assert (first.id, first.head) == (again.id, again.head)
        await _raises(errors.IdConflict, store.create_session(id="mine", title="b"))
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


# -- tools -------------------------------------------------------------------------------------


@check
async def a_tool_can_start_while_its_message_streams(world: World) -> None:
    """A call is durable as soon as it is whole; half a call cannot be started."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn, turn.stream() as reply:
            reply.tool_call("a", name="shell", arguments='{"x": "}')
            await _raises(errors.CallNotFound, _enter(turn.tool("a")))
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
                    raise _Boom("broken pipe")
        except _Boom:
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
                await _raises(errors.IdConflict, call.finish("two"))
            await _raises(errors.ToolAlreadyStarted, _enter(turn.tool("a")))
            await _raises(errors.CallNotFound, _enter(turn.tool("never")))
            await _raises(errors.CallNotFound, session.finish_tool(turn.id, "never", "x"))
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
                    raise _Boom
            except _Boom:
                pass
            await _raises(errors.CallNotFound, _enter(turn.tool("a")))
        (partial,) = [m for m in await session.messages() if m.role == "assistant"]
        assert partial.state == "partial"
        assert partial.parts == (ToolCall("a", "shell", '{"command": "rm'),)


# -- late --------------------------------------------------------------------------------------


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
        await _raises(errors.IdConflict, session.finish_tool(turn.id, "a", "something else"))
        roles = [(message.role, message.turn_id) for message in await session.messages()]
        assert [role for role, _ in roles] == ["user", "assistant", "tool", "user"]
        assert _kinds(await session.entries())[-1] == "late_result"


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
        await _raises(errors.IdConflict, wrong)
        assert (await _texts(session))[1:] == [("assistant", "complete", "The answer is 42.")]
        assert _kinds(await session.entries()).count("late_text") == 1


# -- one running turn --------------------------------------------------------------------------


@check
async def a_busy_session_refuses_and_names_the_holder(world: World) -> None:
    """refuse is the default, from the same opening and from another."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        async with session.turn("go") as turn:
            for handle in (session, await other.session(session.id)):
                busy = await _raises(errors.SessionBusy, _enter(handle.turn("no")))
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
            queued = await _raises(
                errors.PromptQueued, _enter(session.turn("second", if_busy="queue"))
            )
            assert isinstance(queued, errors.PromptQueued)
            await session.queue("third", key="k")
            await session.queue("third", key="k")
        async with session.turn("fourth"):
            pass
        async with session.turn(None):
            pass
        prompts = [text for _, _, text in await _texts(session)]
        assert prompts == ["first", "second", "third", "fourth"]


@check
async def a_key_that_was_queued_never_runs_again(world: World) -> None:
    """The turn that took the prompt is the one that the key stands for."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("first"):
            asking = session.turn("second", key="k", if_busy="queue")
            await _raises(errors.PromptQueued, _enter(asking))
        async with session.turn(None) as taker:
            pass
        async with session.turn("second", key="k", if_busy="queue") as again:
            assert again.repeated
            assert again.id == taker.id
        await _raises(errors.IdConflict, _enter(session.turn("other", key="k")))
        assert [text for _, _, text in await _texts(session)] == ["first", "second"]


@check
async def what_a_fenced_out_tool_printed_is_kept(world: World) -> None:
    """Output that was not on the disk when the turn was taken over is kept as late, once."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        turn = session.turn("first")
        await _enter(turn)
        await turn.record(Message("assistant", [ToolCall(name, "shell", "{}") for name in "ab"]))
        finished, left = await _enter(turn.tool("a")), turn.tool("b")
        await _enter(left)
        async with (await other.session(session.id)).turn("second", if_busy="take_over"):
            finished.output("printed ")
            left.output("printed too")
            receipt = await finished.finish("done")
            assert not receipt.repeated
            interruption = KeyboardInterrupt()
            await left.__aexit__(KeyboardInterrupt, interruption, None)
        await _raises(errors.StaleFence, _leave(turn))
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
        await _enter(turn)
        stream = turn.stream()
        reply = await _enter(stream)
        reply.text("half an answer")
        async with (await other.session(session.id)).turn("second", if_busy="take_over") as second:
            stale = turn.record(Message("assistant", [Text("stale")]))
            await _raises(errors.StaleFence, stale)
            await _raises(errors.StaleFence, _leave(stream))
            await second.record(Message("assistant", [Text("mine")]))
        await _raises(errors.TurnEnded, _leave(turn))
        turns = await session.turns()
        assert [(t.status, t.reason) for t in turns] == [
            ("interrupted", "taken_over"),
            ("completed", None),
        ]
        assert [text for _, _, text in await _texts(session)] == [
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
        assert "stop_asked" in _kinds(await session.entries())
        assert await session.stop(turn.id) is False
        await _raises(errors.TurnNotFound, session.stop("turn_unknown"))


# -- recovery ----------------------------------------------------------------------------------


@check
async def a_dead_turn_is_closed_by_the_next_to_open_it(world: World) -> None:
    """Deltas become a partial message, results stay, one ending says crashed."""
    async with world.crashing(window_seconds=30.0) as store:
        session = await store.create_session()
        turn = session.turn("go")
        await _enter(turn)
        reply = await _enter(turn.stream())
        reply.text("half an answer ")
        for name in "ab":
            reply.tool_call(name, name="shell", arguments="{}")
        call = await _enter(turn.tool("a"))
        await call.finish("A")
        await _enter(turn.tool("b"))
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
        assert _kinds(await session.entries()).count("turn_ended") == 1
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
            await _enter((await doomed.session(session.id)).turn("lost"))
        async with session.turn("next"):
            pass
        assert [t.status for t in await session.turns()] == ["interrupted", "completed"]


# -- the session itself ------------------------------------------------------------------------


@check
async def unfenced_entries_may_come_while_a_turn_runs(world: World) -> None:
    """Rename, archive and note come from anywhere; a generated title never replaces a person's."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        async with session.turn("go") as turn:
            elsewhere = await other.session(session.id)
            await elsewhere.rename("by a model", by="model")
            await elsewhere.rename("by a person")
            await elsewhere.rename("by a model again", by="model")
            await elsewhere.note("seen", {"by": "me"}, key="n")
            await elsewhere.note("seen", {"by": "me"}, key="n")
            await turn.record(Message("assistant", [Text("still mine")]))
        assert (await store.session(session.id)).title == "by a person"
        assert _kinds(await session.entries()).count("note") == 1
        await session.archive()
        assert await store.sessions() == []
        assert [info.id for info in await store.sessions(archived=True)] == [session.id]


@check
async def a_deleted_session_cannot_be_brought_back_by_a_writer(world: World) -> None:
    """Deleting ends what runs; its holder is refused; restoring shows everything again."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        turn = session.turn("go")
        await _enter(turn)
        reply = await _enter(turn.stream())
        reply.text("half")
        await other.delete_session(session.id)
        await _raises(errors.SessionNotFound, turn.record(Message("assistant", [Text("x")])))
        await _raises(errors.SessionNotFound, _enter(session.turn("again")))
        await _raises(errors.SessionNotFound, store.session(session.id))
        assert await store.sessions() == []
        assert (await store.counts())["deltas"] == 0
        restored = await store.restore_session(session.id)
        assert [info.status for info in await restored.turns()] == ["interrupted"]
        assert [info.id for info in await store.sessions()] == [session.id]


@check
async def an_unknown_session_is_not_found(world: World) -> None:
    """Nothing is created by looking."""
    async with world.store() as store:
        await _raises(errors.SessionNotFound, store.session("ses_unknown"))
        assert (await store.counts())["sessions"] == 0


@check
async def sessions_are_listed_newest_first_in_pages(world: World) -> None:
    """Empty sessions are listed; a page continues after its last session."""
    async with world.store() as store:
        made = [(await store.create_session(title=str(n))).id for n in range(7)]
        pages: list[str] = []
        before = None
        while page := await store.sessions(limit=3, before=before):
            pages += [info.id for info in page]
            before = page[-1]
        assert pages == made[::-1]


@check
async def tenants_do_not_see_each_other(world: World) -> None:
    """The same id may exist for two tenants."""
    async with world.store() as store:
        await store.create_session(id="same", title="mine")
        settings = {**world._settings, "tenant": "other"}
        async with open_store(world.face, world._make(), **settings) as other:
            await _raises(errors.SessionNotFound, other.session("same"))
            await other.create_session(id="same", title="theirs")
            assert [info.title for info in await other.sessions()] == ["theirs"]
        assert [info.title for info in await store.sessions()] == ["mine"]


# -- reading -----------------------------------------------------------------------------------


@check
async def messages_can_be_read_in_parts(world: World) -> None:
    """after, last and limit cut the same list."""
    async with world.store() as store:
        session = await store.create_session()
        for number in range(20):
            async with session.turn(f"prompt {number}") as turn:
                async with turn.stream() as reply:
                    reply.text(f"answer {number}")
                    reply.tool_call("a", name="shell", arguments="{}")
                async with turn.tool("a") as call:
                    await call.finish(f"result {number}")
        everything = await session.messages()
        assert len(everything) == 60
        assert await session.messages(last=7) == everything[-7:]
        assert await session.messages(last=1_000) == everything
        assert await session.messages(limit=7) == everything[:7]
        cut = everything[29].seq
        assert await session.messages(after=cut) == everything[30:]
        assert await session.messages(after=cut, limit=4) == everything[30:34]


@check
async def a_result_from_elsewhere_is_found_in_every_part(world: World) -> None:
    """A call that nobody started is answered; reading a part shows it as reading all does."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            await turn.record(Message("assistant", [ToolCall("a", "shell", "{}")]))
            called = session.head
            await session.finish_tool(turn.id, "a", "from elsewhere")
        everything = await session.messages()
        assert [message.role for message in everything] == ["user", "assistant", "tool"]
        assert await session.messages(after=called) == everything[2:]
        assert await session.messages(last=1) == everything[2:]


@check
async def the_first_messages_are_whole_however_late_they_were_ended(world: World) -> None:
    """limit looks up what ends its messages further on, over more than one page."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn:
                await turn.record(Message("assistant", [ToolCall("a", "shell", "{}")]))
                async with turn.tool("a"):
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        async with session.turn("next") as other:
            for number in range(1_100):
                await session.note("filler", number)
            await other.record(Message("assistant", [Text("far away")]))
        await session.finish_tool(turn.id, "a", "at last")
        everything = await session.messages()
        assert [message.role for message in everything] == [
            "user",
            "assistant",
            "tool",
            "user",
            "assistant",
        ]
        for limit in range(6):
            assert await session.messages(limit=limit) == everything[:limit]


@check
async def a_streaming_message_can_be_read(world: World) -> None:
    """What was flushed is shown, marked as streaming."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn, turn.stream() as reply:
            reply.text("x" * 10_000)
            reply.tool_call("a", name="shell", arguments="{}")
            async with turn.tool("a") as call:
                await call.finish("done")
            message = (await session.messages())[1]
            assert message.state == "streaming"
            assert message.text == "x" * 10_000


@check
async def following_shows_everything_once_and_in_order(world: World) -> None:
    """Entries by seq, deltas by offset, the deltas make the text, from another opening too."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        watched = await other.session(session.id)
        items: list[Any] = []
        async with session.turn("go") as turn, turn.stream() as reply:
            reply.text("one ")
            reply.tool_call("a", name="shell", arguments="{}")
            async with turn.tool("a") as call:
                await call.finish("r")
            follower = watched.follow()
            async for item in follower:
                items.append(item)
                if isinstance(item, e.FollowedDelta) and item.delta.type == "arguments":
                    break
            await follower.aclose()
        async for item in watched.follow():
            items.append(item)
            if item.kind == "turn_ended":
                break
        deltas = [item for item in items if isinstance(item, e.FollowedDelta)]
        assert "".join(d.text for d in deltas if d.delta.type == "text") == "one "
        seqs = [item.seq for item in items if isinstance(item, e.Entry)]
        first_run = seqs[: seqs.index(1, 1)]
        assert first_run == list(range(1, len(first_run) + 1))
        second_run = seqs[len(first_run) :]
        assert second_run == list(range(1, len(second_run) + 1))


# -- blobs and limits --------------------------------------------------------------------------


@check
async def blobs_are_stored_once_and_must_exist(world: World) -> None:
    """An image names a blob; a name that is not stored is refused."""
    async with world.store() as store:
        session = await store.create_session()
        name = await store.put_blob(b"\x89PNG" * 100)
        assert await store.put_blob(b"\x89PNG" * 100) == name
        assert (await store.counts())["blobs"] == 1
        async with session.turn([Text("look"), Image(name, "image/png")]) as turn:
            missing = Message("assistant", [Image("b2:missing", "image/png")])
            await _raises(errors.InvalidEntry, turn.record(missing))
        assert await store.blob(name) == b"\x89PNG" * 100
        await _raises(errors.BlobNotFound, store.blob("b2:missing"))


@check
async def a_large_body_reads_back_equal(world: World) -> None:
    """Over a megabyte, in a message, a stream and a result."""
    large = "0123456789abcdef" * 100_000
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn(large) as turn:
            async with turn.stream() as reply:
                for start in range(0, len(large), 300_000):
                    reply.text(large[start : start + 300_000])
                    await turn.record(Message("assistant", [Text("between")]))
                reply.tool_call("a", name="shell", arguments="{}")
            async with turn.tool("a") as call:
                await call.finish(large)
        messages = await session.messages()
        assert messages[0].text == large
        assert messages[1].text == large
        assert messages[-1].parts[0].content == large


@check
async def too_many_parts_are_refused(world: World) -> None:
    """Nothing is half stored."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            before = await session.entries()
            many = Message("assistant", [Text("x")] * 10_000)
            await _raises(errors.InvalidEntry, turn.record(many))
            assert await session.entries() == before


@check
async def approvals_are_bound_to_the_arguments(world: World) -> None:
    """A decision for other arguments is refused; deciding needs no fence."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        async with session.turn("go") as turn:
            await turn.record(Message("assistant", [ToolCall("a", "rm", '{"path": "x"}')]))
            asked = await turn.ask_approval("a", '{"path": "x"}')
            elsewhere = await other.session(session.id)
            forged = e.ApprovalAsked(
                id=asked.id,
                turn_id=asked.turn_id,
                message_id=asked.message_id,
                call_id="a",
                arguments_hash="b2:other",
            )
            await _raises(errors.InvalidEntry, elsewhere.decide_approval(forged, approved=True))
            await elsewhere.decide_approval(asked, approved=True, by="ann")
        kinds = _kinds(await session.entries())
        assert kinds.count("approval_asked") == kinds.count("approval_decided") == 1


@check
async def a_closed_store_says_so(world: World) -> None:
    """Running turns are ended when their store is closed; its objects are useless afterwards."""
    store = open_store(world.face, world._make())
    async with store:
        session = await store.create_session()
        turn = session.turn("go")
        await _enter(turn)
        reply = await _enter(turn.stream())
        reply.text("half")
    await _raises(errors.HoldfastError, turn.record(Message("assistant", [Text("x")])))
    async with world.store() as again:
        session = await again.session(session.id)
        (info,) = await session.turns()
        assert (info.status, info.reason) == ("interrupted", "store_closed")
        assert (await _texts(session))[1:] == [("assistant", "partial", "half")]
