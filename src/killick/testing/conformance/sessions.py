"""Sessions: names, lists, blobs, limits, one running turn at a time, erasing and examining."""

from datetime import timedelta
from typing import Any

from killick import errors
from killick.model import entries as e
from killick.model.messages import Image, Message, Text, ToolCall
from killick.model.sessions import Project, SessionNote
from killick.testing.conformance.history import exchange, said
from killick.testing.conformance.world import (
    World,
    check,
    enter,
    kinds,
    leave,
    open_store,
    raises,
    texts,
)


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
        assert kinds(await session.entries()).count("note") == 1
        await session.archive()
        assert await store.sessions() == []
        assert [info.id for info in await store.sessions(archived=True)] == [session.id]


@check
async def a_deleted_session_cannot_be_brought_back_by_a_writer(world: World) -> None:
    """Deleting ends what runs; its holder is refused; restoring shows everything again."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        turn = session.turn("go")
        await enter(turn)
        reply = await enter(turn.stream())
        reply.text("half")
        await other.delete_session(session.id)
        await raises(errors.SessionNotFound, turn.record(Message("assistant", [Text("x")])))
        await raises(errors.SessionNotFound, enter(session.turn("again")))
        await raises(errors.SessionNotFound, store.session(session.id))
        assert await store.sessions() == []
        assert (await store.counts())["deltas"] == 0
        restored = await store.restore_session(session.id)
        assert [info.status for info in await restored.turns()] == ["interrupted"]
        assert [info.id for info in await store.sessions()] == [session.id]


@check
async def what_was_streamed_before_a_deletion_is_there_after_restoring(world: World) -> None:
    """Text and output that its holder had handed over are kept, though no flush had come."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        turn = session.turn("go")
        await enter(turn)
        first = await enter(turn.stream())
        first.tool_call("c", name="shell", arguments="{}")
        await leave(first)
        tool = await enter(turn.tool("c"))
        reply = await enter(turn.stream())
        reply.text("half")
        tool.output("building")
        await other.delete_session(session.id)
        reply_error = await raises(errors.SessionDeleted, leave(reply))
        boom = RuntimeError("stopped by the caller")
        await tool.__aexit__(RuntimeError, boom, None)
        await turn.__aexit__(RuntimeError, boom, None)
        assert isinstance(reply_error, errors.SessionNotFound)
        assert await store.sessions() == []
        assert (await store.counts())["deltas"] == 0
        restored = await store.restore_session(session.id)
        assert ("assistant", "partial", "half") in await texts(restored)
        assert [info.cause for info in await restored.turns()] == ["deleted"]
        assert "building" in str(await restored.transcript())
        assert await store.examine_session(session.id) == []


@check
async def an_unknown_session_is_not_found(world: World) -> None:
    """Nothing is created by looking."""
    async with world.store() as store:
        await raises(errors.SessionNotFound, store.session("ses_unknown"))
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
            await raises(errors.SessionNotFound, other.session("same"))
            await other.create_session(id="same", title="theirs")
            assert [info.title for info in await other.sessions()] == ["theirs"]
        assert [info.title for info in await store.sessions()] == ["mine"]


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
            await raises(errors.InvalidEntry, turn.record(missing))
        assert await store.blob(name) == b"\x89PNG" * 100
        await raises(errors.BlobNotFound, store.blob("b2:missing"))


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
            await raises(errors.InvalidEntry, turn.record(many))
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
            await raises(errors.InvalidEntry, elsewhere.decide_approval(forged, approved=True))
            await elsewhere.decide_approval(asked, approved=True, by="ann")
        written = kinds(await session.entries())
        assert written.count("approval_asked") == written.count("approval_decided") == 1


@check
async def a_closed_store_says_so(world: World) -> None:
    """Running turns are ended when their store is closed; its objects are useless afterwards."""
    store = open_store(world.face, world._make())
    async with store:
        session = await store.create_session()
        turn = session.turn("go")
        await enter(turn)
        reply = await enter(turn.stream())
        reply.text("half")
    await raises(errors.KillickError, turn.record(Message("assistant", [Text("x")])))
    async with world.store() as again:
        session = await again.session(session.id)
        (info,) = await session.turns()
        assert (info.status, info.reason) == ("interrupted", "store_closed")
        assert (await texts(session))[1:] == [("assistant", "partial", "half")]


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
            assert [prompt.id for prompt in await session.queued()] == [kept]
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
        assert await session.stop() is None
        try:
            async with session.turn("go") as turn, turn.stream() as reply:
                reply.text("on and on")
                elsewhere = await other.session(session.id)
                assert await elsewhere.stop(turn.id, reason="enough") == turn.id
                while True:
                    await turn.record(Message("assistant", [Text("more")]))
        except errors.TurnStopped as stopped:
            assert stopped.reason == "enough"
        (info,) = await session.turns()
        assert (info.status, info.reason, info.cause) == ("interrupted", "enough", "stopped")
        assert "stop_asked" in kinds(await session.entries())
        assert await session.stop(turn.id) is None
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


@check
async def a_session_knows_its_head_after_a_recovery(world: World) -> None:
    """Whether it was opened, began the next turn, or was refused one."""
    async with world.store() as survivor, world.store() as other:
        session = await survivor.create_session()
        refused, queued = [await other.session(session.id) for _ in range(2)]
        async with world.crashing() as doomed:
            turn = (await doomed.session(session.id)).turn("lost")
            await enter(turn)
            (await enter(turn.stream())).text("half")
        winner = await other.session(session.id)
        head = winner.head
        assert head == (await winner.entries())[-1].seq
        next_turn = session.turn("next")
        await enter(next_turn)
        head = session.head
        assert head == (await winner.entries())[-1].seq
        await raises(errors.SessionBusy, enter(refused.turn("no")))
        assert refused.head == head
        await raises(errors.PromptQueued, enter(queued.turn("later", if_busy="queue")))
        assert queued.head == head + 1
        await leave(next_turn)


@check
async def an_id_may_be_shortened(world: World) -> None:
    """To a prefix that is unique; otherwise the nearest are named."""
    async with world.store() as store:
        await store.create_session(id="alpha-1", title="The red house")
        await store.create_session(id="alpha-2")
        await store.create_session(id="beta")
        assert await store.resolve_id("be") == "beta"
        assert await store.resolve_id("alpha-1") == "alpha-1"
        both = await raises(errors.SessionAmbiguous, store.resolve_id("al"))
        assert isinstance(both, errors.SessionAmbiguous)
        assert both.candidates == ("alpha-1", "alpha-2")
        assert "alpha-1" in str(await raises(errors.SessionNotFound, store.resolve_id("red")))
        assert "alpha-" in str(await raises(errors.SessionNotFound, store.session("alpha-3")))
        await raises(errors.SessionNotFound, store.resolve_id(""))


@check
async def a_blob_that_only_a_note_names_is_kept(world: World) -> None:
    """As long as its session is there; a name that is no blob is refused."""
    async with world.store() as store:
        session = await store.create_session()
        kept, loose = await store.put_blob(b"kept"), await store.put_blob(b"loose")
        receipt = await session.note("screenshot", {"of": "the page"}, key="n", blobs=[kept])
        again = await session.note("screenshot", {"of": "the page"}, key="n", blobs=[kept])
        assert (again.seq, again.repeated) == (receipt.seq, True)
        before = await session.entries()
        await raises(errors.InvalidEntry, session.note("x", blobs=["b2:none"]))
        await raises(errors.InvalidEntry, session.note("x", blobs=kept))
        assert await session.entries() == before
    async with world.store() as store:
        await store.collect_blobs()
        assert await store.blob(kept) == b"kept"
        await raises(errors.BlobNotFound, store.blob(loose))
        note = (await (await store.session(session.id)).entries())[-1].body
        assert isinstance(note, e.Note)
        assert note.blobs == (kept,)
        await store.erase_session(session.id)
        await raises(errors.BlobNotFound, store.blob(kept))


@check
async def an_erased_session_is_gone(world: World) -> None:
    """Rows, deltas, usage and its own blobs; others keep theirs, shared ones too."""
    async with world.store() as store:
        shared = await store.put_blob(b"shared" * 100)
        mine = await store.put_blob(b"mine" * 100)
        kept = await store.create_session()
        async with kept.turn([Text("look"), Image(shared, "image/png")]):
            pass
        session = await store.create_session()
        both = [Text("look"), Image(shared, "image/png"), Image(mine, "image/png")]
        async with session.turn(both):
            pass
        await exchange(session, 0)
        receipt = await store.erase_session(session.id)
        assert receipt.sessions == (session.id,)
        assert receipt.verified is not False
        assert (receipt.verified is None) == bool(receipt.to_do)
        assert receipt.unverified
        await raises(errors.SessionNotFound, store.session(session.id))
        await raises(errors.SessionNotFound, session.messages())
        await raises(errors.SessionNotFound, enter(session.turn("again")))
        await raises(errors.BlobNotFound, store.blob(mine))
        assert await store.blob(shared)
        assert await store.usage() == []
        assert [info.id for info in await store.sessions()] == [kept.id]
        again = await store.create_session(id=session.id)
        assert await said(again) == []


@check
async def a_search_goes_on_after_an_erasing(world: World) -> None:
    """The others are found, also one that has the erased one's id."""
    async with world.store() as store:
        for session_id in ("kept", "gone"):
            async with (await store.open_session(session_id)).turn("a word"):
                pass
        await store.erase_session("gone")
        assert [hit.session_id for hit in await store.search("word")] == ["kept"]
        async with (await store.open_session("gone")).turn("another word"):
            pass
        assert [hit.session_id for hit in await store.search("word")] == ["gone", "kept"]


@check
async def erasing_is_refused_while_others_depend_on_it(world: World) -> None:
    """A live turn, or forks that are not included."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        turn = session.turn("go")
        await enter(turn)
        await raises(errors.SessionBusy, other.erase_session(session.id))
        await leave(turn)
        fork = await session.fork()
        deeper = await fork.fork()
        refused = await raises(errors.SessionHasForks, store.erase_session(session.id))
        assert isinstance(refused, errors.SessionHasForks)
        assert set(refused.forks) == {fork.id, deeper.id}
        receipt = await store.erase_session(session.id, forks=True)
        assert set(receipt.sessions) == {session.id, fork.id, deeper.id}
        assert (await store.counts())["sessions"] == 0


@check
async def retention_removes_by_activity_and_reports_each(world: World) -> None:
    """A dry run first; pinned ones are exempt, and what forks are made of."""
    async with world.store() as store:
        made = [await store.create_session(title=str(n)) for n in range(5)]
        idle, pinned, deleted, source, archived = made
        await pinned.pin()
        await source.fork(title="fork")
        await archived.archive()
        await store.delete_session(deleted.id)
        await store.delete_session(source.id)
        now = timedelta(0)

        async def removals(**rules: Any) -> dict[str, tuple[str, bool, bool]]:
            removed = await store.clean_up(**rules)
            return {x.title or "": (x.action, x.done, x.kept_because is None) for x in removed}

        assert await removals() == {}, "nothing is old enough by default"
        dry = await removals(deleted_after=now, idle_after=now, archived_after=now)
        assert dry["2"] == ("erase", False, True)
        assert dry["0"] == dry["4"] == ("delete", False, True)
        assert dry["1"] == ("delete", False, False)
        assert (await store.counts())["sessions"] == 6
        done = await removals(deleted_after=now, idle_after=now, dry_run=False)
        assert done["2"] == ("erase", True, True)
        assert done["3"] == ("erase", False, False), "a fork is made of it"
        assert done["0"] == ("delete", True, True)
        assert [info.title for info in await store.sessions(archived=None)] == ["1"]
        await raises(errors.SessionNotFound, store.restore_session(deleted.id))
        assert (await store.restore_session(idle.id)).id == idle.id


@check
async def rules_of_retention_are_kept_and_leave_receipts(world: World) -> None:
    """The nearest folder's rule counts alone; nothing goes before it is asked for."""
    now = timedelta(0)
    async with world.store() as store:
        for name, root in (
            ("plain", None), ("near", "/src/a"), ("inside", "/src/a/b"), ("beside", "/src/ab"),
            ("kept", "/src/kept"),
        ):  # fmt: skip
            await store.create_session(id=name, project=root and Project(root))
        assert await store.retention() == []
        assert await store.apply_retention(dry_run=False) == []
        await store.set_retention(idle_after=timedelta(days=1))
        await store.set_retention("/src/kept/", deleted_after=timedelta(days=1))
        await store.set_retention("/src/a", idle_after=timedelta(days=1))
        await store.set_retention("/src/a", idle_after=now, deleted_after=now)
    async with world.store() as store:
        rules = {rule.project: rule for rule in await store.retention()}
        assert list(rules) == [None, "/src/a", "/src/kept"], "the tenant's own is first"
        assert rules["/src/a"].idle_after == now
        assert rules[None].deleted_after is None
        planned = {gone.session_id: gone for gone in await store.apply_retention()}
        assert planned.keys() == {"near", "inside"}
        assert planned["inside"].because == "idle, by the rule for /src/a"
        assert not any(gone.done for gone in planned.values())
        assert len(await store.sessions()) == 5
        done = await store.apply_retention(dry_run=False)
        assert {(gone.session_id, gone.action, gone.done) for gone in done} == {
            ("near", "delete", True), ("inside", "delete", True),
        }  # fmt: skip
        await store.erase_session("beside")
        done = await store.apply_retention(dry_run=False)
        assert {(gone.action, gone.done) for gone in done} == {("erase", True)}
        notes = {note.session_id: note for note in await store.erasures()}
        assert notes.keys() == {"beside", "near", "inside"}
        assert notes["beside"].because is None
        assert notes["near"].because == "retention: deleted, by the rule for /src/a"
        assert all(note.entries > 0 for note in notes.values())
        assert len(await store.erasures(limit=1)) == 1
        await store.drop_retention("/src/a")
        await raises(errors.UsageError, store.drop_retention("/src/a"))
        assert [rule.project for rule in await store.retention()] == [None, "/src/kept"]
        await raises(ValueError, store.set_retention(idle_after=timedelta(days=-1)))
        await raises(errors.UsageError, store.set_retention("", idle_after=now))


@check
async def a_sound_session_has_no_findings(world: World) -> None:
    """Running, interrupted or deleted; it is whole, and so is what is derived."""
    async with world.store() as store:
        session = await store.create_session()
        await exchange(session, 0, tool=True)
        turn = session.turn("go")
        await enter(turn)
        reply = await enter(turn.stream())
        reply.text("streaming")
        assert await store.examine_session(session.id) == []
        await store.delete_session(session.id)
        assert await store.examine_session(session.id, rebuild=True) == []
        salvaged = await store.salvage(session.id)
        assert salvaged.whole
        assert salvaged.entries[-1].kind == "deleted"
        findings = await store.check_file()
        damage = [finding for finding in findings if finding.kind != "server"]
        assert damage == [], "a server may be set to less"


@check
async def a_turn_whose_process_died_is_a_finding(world: World) -> None:
    """Opening the session closes it."""
    async with world.crashing() as store:
        session = await store.create_session()
        turn = session.turn("go")  # kept: a turn without references is ended
        await enter(turn)
    async with world.store() as store:
        (finding,) = await store.examine_session(session.id)
        assert finding.kind == "lease"
        await store.session(session.id)
        assert await store.examine_session(session.id) == []


@check
async def writes_of_a_batch_are_made_together(world: World) -> None:
    """A session, its first turn and what ends another turn; what is refused is refused alone."""
    async with world.store() as store, world.store() as other:
        first = await store.create_session()
        running = first.turn("go")
        await enter(running)
        batch = store.batch()
        begun = batch.create_session(title="New")
        turn = begun.turn("Why?")
        batch.note_all(begun, [SessionNote("seen")])
        refused = batch.finish_tool(first, running.id, "none", "x").unless(errors.CallNotFound)
        batch.record_all(running, [Message("assistant", [Text("done")])])
        batch.end(running)
        batch.begin(turn, [Message("user", [Text("Now.")])])
        assert not await other.has_session(begun.id)
        await batch.write()
        assert isinstance(refused.refusal, errors.CallNotFound)
        assert [turn.status for turn in await (await other.session(first.id)).turns()] == [
            "completed"
        ]
        asked = await (await other.session(begun.id)).messages()
        assert [message.text for message in asked] == ["Why?", "Now."]
        await raises(errors.SessionBusy, enter(begun.turn("more")))
        await turn.end()
        batch.end(turn)
        await batch.write()  # its one ending stands
        assert [note.name for note in await begun.notes()] == ["seen"]
