"""The session itself: names, lists, tenants, deletion, blobs and limits."""

from killick import errors
from killick.model import entries as e
from killick.model.messages import Image, Message, Text, ToolCall
from killick.testing.conformance.world import World, check, enter, kinds, open_store, raises, texts


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
