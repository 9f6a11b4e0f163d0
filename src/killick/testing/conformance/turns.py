"""A turn: what is said comes back, however the turn ends, and only once."""

from killick import errors
from killick.model.messages import Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from killick.testing.conformance.world import AWKWARD, Boom, World, check, enter, raises, texts


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
