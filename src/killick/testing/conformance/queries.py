"""Reading: the same messages and entries, whole, in parts and as they come."""

from datetime import timedelta
from typing import Any

from killick import errors
from killick.model import entries as e
from killick.model.messages import Message, Reasoning, Text, ToolCall, ToolResult
from killick.model.sessions import Project
from killick.testing.conformance.world import World, check, open_store, raises


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
        assert [message async for message in session.iter_messages(after=cut)] == everything[30:]


@check
async def a_result_from_elsewhere_is_found_in_every_part(world: World) -> None:
    """A call that was never started is answered; reading a part shows it as reading all does."""
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
        assert [message async for message in session.iter_messages()] == everything


@check
async def a_streaming_message_can_be_read(world: World) -> None:
    """Flushed deltas are shown, marked as streaming."""
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


@check
async def many_streams_at_once_keep_their_own_text(world: World) -> None:
    """As it comes, from another opening too, when others end, and after the end."""
    async with world.store() as store, world.store() as other:
        sessions = [await store.create_session() for _ in range(20)]
        turns = [session.turn("go") for session in sessions]
        for turn in turns:
            await turn.begin()
        replies = [turn.stream() for turn in turns]
        for reply in replies:
            await reply.begin()
        for word in ("one", "two", "three"):
            for number, reply in enumerate(replies):
                reply.text(f"{word} {number} ")
            for number, session in enumerate(sessions):
                text = f"{word} {number} "
                follower = (await other.session(session.id)).follow()
                async for item in follower:
                    if isinstance(item, e.FollowedDelta) and item.text.endswith(text):
                        break
                await follower.aclose()
        for reply, turn in zip(replies[::2], turns[::2], strict=True):
            await reply.end()
            await turn.end()
        for number, session in enumerate(sessions):
            message = (await (await other.session(session.id)).messages())[-1]
            assert message.text == f"one {number} two {number} three {number} "
            assert message.state == ("streaming" if number % 2 else "complete")
            assert await store.examine_session(session.id) == []
        for reply, turn in zip(replies[1::2], turns[1::2], strict=True):
            await reply.end()
            await turn.end()
        assert (await store.counts())["deltas"] == 0


async def say(session: Any, *texts: str) -> str:
    """A turn with an answer for each of these texts; its id."""
    async with session.turn("go on") as turn:
        for text in texts:
            await turn.record(Message("assistant", [Text(text)]))
    return str(turn.id)


async def look(store: Any, words: str, **filters: Any) -> Any:
    """Search with patience: a machine may be busy."""
    return await store.search(words, **{"wait_seconds": 60, **filters})


async def found(store: Any, words: str, **filters: Any) -> list[str]:
    hits = await look(store, words, **filters)
    assert hits.behind == 0
    return [hit.marked("[", "]") for hit in hits]


@check
async def what_was_just_written_is_found(world: World) -> None:
    """A hit says where it is, and shows why."""
    async with world.store() as store:
        session = await store.create_session(title="Fix the build")
        async with session.turn("Why does the build fail?") as turn:
            await turn.record(Message("assistant", [Text("The linker is missing.")], "msg_mine"))
        hits = await look(store, "linker")
        assert (len(hits), hits.behind, hits.damaged) == (1, 0, ())
        hit = hits[0]
        message = (await session.messages())[1]
        assert (hit.session_id, hit.title) == (session.id, "Fix the build")
        assert (hit.seq, hit.message_id, hit.turn_id) == (message.seq, "msg_mine", turn.id)
        assert (hit.role, hit.state, hit.rewound, hit.hidden) == (
            "assistant",
            "complete",
            False,
            False,
        )
        assert hit.marked("<", ">") == "The <linker> is missing."
        assert [other.seq for other in hits] == [hit.seq]
        entry = (await session.entries(after=hit.seq - 1, limit=1))[0]
        assert hit.at == entry.at


@check
async def words_phrases_beginnings_and_operators_are_understood(world: World) -> None:
    """Without regard to case and accents; scripts without spaces are found in the middle."""
    async with world.store() as store:
        session = await store.create_session()
        await say(
            session, "The linker error", "an error of the linker", "Linking CRÈME", "東京都へ"
        )
        assert await found(store, "linker error") == [
            "an [error] of the [linker]",
            "The [linker] [error]",
        ]
        assert await found(store, '"linker error"') == ["The [linker error]"]
        assert await found(store, "link*") == [
            "[Linking] CRÈME",
            "an error of the [linker]",
            "The [linker] error",
        ]
        assert await found(store, "linker NOT of") == ["The [linker] error"]
        assert await found(store, "creme OR of") == ["Linking [CRÈME]", "an error [of] the linker"]
        assert await found(store, "京都") == ["東[京都]へ"]
        assert await found(store, "都") == ["東京[都へ]"]
        assert await found(store, "nowhere") == []


@check
async def no_query_is_a_syntax_error(world: World) -> None:
    """A query without words is refused with advice; any other is run."""
    async with world.store() as store:
        session = await store.create_session()
        await say(session, "text : with (NEAR) ^ + - { } signs")
        for nothing in ('"', "***", '"" * ', "NOT", "\0", ""):
            await raises(errors.InvalidQuery, look(store, nothing))
        await raises(errors.InvalidQuery, look(store, "NOT text"))
        for words in ("text:", "{text}", "NEAR(text)", "^text", "text + with", '"text', "text)"):
            assert len(await look(store, words)) == 1, words
        await raises(ValueError, look(store, "text", order="oldest"))
        await raises(ValueError, look(store, "text", limit=-1))
        await raises(errors.SessionNotFound, look(store, "text", session="ses_none"))


@check
async def all_that_was_said_and_done_is_found(world: World) -> None:
    """Prompts, text, reasoning, tools by name and arguments, results, summaries."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("prompted") as turn:
            async with turn.stream() as reply:
                reply.reasoning("pondered")
                reply.text("answered")
                reply.tool_call("a", name="compiler", arguments='{"flags": "x\\nverbose"}')
                reply.tool_call("b", name="other", arguments="{}")
            async with turn.tool("a") as call:
                await call.finish("resulted")
            await turn.record(Message("tool", [ToolResult("b", (Text("recorded"),))]))
        await session.compact("summarised", session.head)
        for word, role in {
            "prompted": "user",
            "pondered": "assistant",
            "answered": "assistant",
            "compiler": "assistant",
            "verbose": "assistant",
            "resulted": "tool",
            "recorded": "tool",
            "summarised": "summary",
        }.items():
            assert [hit.role for hit in await look(store, word)] == [role], word
        places = {message.id: message.seq for message in await session.messages()}
        (hit,) = await look(store, "resulted")
        assert hit.seq == places[hit.message_id]
        assert await found(store, "pondered", reasoning=False) == []
        assert await found(store, "answered", reasoning=False) == [
            "[answered] compiler flags x verbose other "
        ]


@check
async def a_partial_answer_is_found_and_marked(world: World) -> None:
    """Streamed text is found when its message ends; late text takes its place."""
    async with world.store() as store:
        session = await store.create_session()
        try:
            async with session.turn("go") as turn, turn.stream() as reply:
                reply.text("a halfway answer")
                assert await found(store, "halfway") == []
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        (hit,) = await look(store, "halfway")
        assert (hit.state, hit.message_id) == ("partial", reply.id)
        assert await found(store, "halfway", state="complete") == []
        await session.add_late_text(turn.id, reply.id, "a halfway answer, then the end")
        (late,) = await look(store, "end")
        assert (late.seq, late.message_id) == (hit.seq, hit.message_id)
        assert [other.seq for other in await look(store, "halfway")] == [hit.seq]


@check
async def a_search_of_very_many_words_is_answered(world: World) -> None:
    """A whole error message may be looked for: planning it takes no longer than finding it."""
    words = [f"word{number}" for number in range(150)]
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn(" ".join(words)):
            pass
        for query, count in (
            (" ".join(words), 1),
            (" ".join([*words, "other"]), 0),
            (" NOT ".join([" ".join(words), *(f"other{number}" for number in range(50))]), 1),
            (" ".join([*words[:149], "NOT", words[149]]), 0),
        ):
            hits = await store.search(query, wait_seconds=60)
            assert len(hits) == count, query[-20:]


@check
async def filters_narrow_a_search_down(world: World) -> None:
    """By session, role, state, time, project, and how the session's newest turn ended."""
    async with world.store() as store:
        first = await store.create_session(project=Project("/a"))
        second = await store.create_session(project=Project("/b"))
        await say(first, "needle one")
        try:
            async with second.turn("needle two") as turn:
                await turn.record(Message("assistant", [Text("needle three")]))
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass

        async def numbers(**filters: Any) -> list[str]:
            hits = await look(store, "needle", **filters)
            return [hit.snippet.split()[-1] for hit in hits]

        assert await numbers() == ["three", "two", "one"]
        assert await numbers(limit=2) == ["three", "two"]
        assert await numbers(limit=0) == []
        assert await numbers(session=first.id) == ["one"]
        assert await numbers(role="user") == ["two"]
        assert await numbers(role="tool") == []
        assert await numbers(project="/b") == ["three", "two"]
        assert await numbers(interrupted=True) == ["three", "two"]
        assert await numbers(interrupted=False) == ["one"]
        at = [hit.at for hit in await look(store, "needle")]
        assert await numbers(since=min(at)) == ["three", "two", "one"]
        assert await numbers(since=max(at) + timedelta(seconds=1)) == []
        assert await numbers(until=max(at) + timedelta(seconds=1)) == ["three", "two", "one"]
        assert await numbers(until=min(at)) == []


@check
async def the_best_hit_comes_first_if_asked_for(world: World) -> None:
    """A text that is mostly the query comes before one that only mentions it."""
    async with world.store() as store:
        session = await store.create_session()
        await say(session, "needle needle", "a needle " + "in all of the hay " * 20, "hay")
        newest = await look(store, "needle")
        best = await look(store, "needle", order="best")
        assert [hit.seq for hit in best] == [hit.seq for hit in newest][::-1]


@check
async def deleted_sessions_are_not_found_and_archived_ones_are(world: World) -> None:
    """Restoring brings the hits back; another tenant's are never found."""
    async with world.store() as store:
        session = await store.create_session()
        await say(session, "needle")
        await session.archive()
        assert await found(store, "needle") == ["[needle]"]
        settings = {**world._settings, "tenant": "other"}
        async with open_store(world.face, world._make(), **settings) as other:
            assert await found(other, "needle") == []
        await store.delete_session(session.id)
        assert await found(store, "needle") == []
        await raises(errors.SessionNotFound, look(store, "needle", session=session.id))
        await store.restore_session(session.id)
        assert await found(store, "needle") == ["[needle]"]


@check
async def what_a_fork_has_inherited_is_found_once(world: World) -> None:
    """Under the session that said it; and under the fork when the fork is searched."""
    async with world.store() as store:
        session = await store.create_session()
        await say(session, "needle before")
        at = session.head
        fork = await session.fork()
        await say(session, "needle after")
        await say(fork, "needle apart")
        again = await fork.fork()
        assert await found(store, "needle") == [
            "[needle] apart",
            "[needle] after",
            "[needle] before",
        ]
        inside = await look(store, "needle", session=fork.id)
        assert [hit.snippet for hit in inside] == ["needle apart", "needle before"]
        assert {hit.session_id for hit in inside} == {fork.id}
        assert inside[1].seq <= at
        assert len(await look(store, "needle", session=again.id)) == 2
        assert await found(store, "needle", session=session.id) == [
            "[needle] after",
            "[needle] before",
        ]


@check
async def what_is_out_of_view_is_found_and_says_so(world: World) -> None:
    """Rewound and hidden messages are in the journal, so they are found."""
    async with world.store() as store:
        session = await store.create_session()
        await say(session, "needle kept")
        at = session.head
        await say(session, "needle rewound")
        await session.rewind(at)
        kept = (await session.messages())[-1]
        await session.hide(kept, model=False)
        hits = await look(store, "needle")
        assert [(hit.snippet, hit.rewound, hit.hidden) for hit in hits] == [
            ("needle rewound", True, False),
            ("needle kept", False, True),
        ]


@check
async def awkward_text_is_found_and_can_be_printed(world: World) -> None:
    """NUL, lone surrogates and marks of direction keep nothing from being found."""
    async with world.store() as store:
        session = await store.create_session()
        await say(session, "needle\0\ud800\u202e\x1b[2J\r\n end", "x" * 300_000 + " needle")
        hits = await look(store, "needle")
        assert len(hits) == 2
        assert all(hit.snippet.isprintable() for hit in hits)
        assert len(await look(store, '"needle \u202e 2j"')) == 1


@check
async def the_index_can_be_made_anew(world: World) -> None:
    """With the same hits; and with parts of words, where that is wanted."""
    async with world.store() as store:
        session = await store.create_session()
        await say(session, *(f"needle {number}" for number in range(30)))
        async with session.turn("go") as turn:
            call = ToolCall("a", "shell", '{"c": "mkdir Überbau"}')
            await turn.record(Message("assistant", [Reasoning("Undertaking"), call]))
        before = [hit.seq for hit in await look(store, "needle", limit=50)]
        assert len(before) == 30
        steps: list[tuple[int, int]] = []
        await store.rebuild_search(substrings=True, progress=lambda *done: steps.append(done))
        assert [hit.seq for hit in await look(store, "needle", limit=50)] == before
        assert not steps or steps[-1][0] == steps[-1][1]
        assert len(await look(store, "EEDLE 2", substring=True, limit=50)) == 11
        assert len(await look(store, "berbau", substring=True)) == 1
        assert len(await look(store, "dertak", substring=True)) == 1
        assert len(await look(store, "dertak", substring=True, reasoning=False)) == 0
        await raises(errors.InvalidQuery, look(store, "ee", substring=True))
        await say(session, "one more needle")
        assert len(await look(store, "more need", substring=True)) == 1
