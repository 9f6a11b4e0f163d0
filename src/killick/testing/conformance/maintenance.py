"""Looking after a store: ids, erasing, retention, examining."""

from datetime import timedelta
from typing import Any

from killick import errors
from killick.model.messages import Image, Text
from killick.testing.conformance.history import exchange, said
from killick.testing.conformance.world import World, check, enter, leave, raises


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
        assert receipt.verified
        assert receipt.unverified
        await raises(errors.SessionNotFound, store.session(session.id))
        await raises(errors.SessionNotFound, session.messages())
        await raises(errors.SessionNotFound, enter(session.turn("again")))
        await raises(errors.BlobNotFound, store.blob(mine))
        assert await store.blob(shared)
        assert await store.usage() == []
        assert [one.id for one in await store.sessions()] == [kept.id]
        again = await store.create_session(id=session.id)
        assert await said(again) == []


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
            found = await store.clean_up(**rules)
            return {x.title or "": (x.action, x.done, x.kept_because is None) for x in found}

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
        assert [one.title for one in await store.sessions(archived=None)] == ["1"]
        await raises(errors.SessionNotFound, store.restore_session(deleted.id))
        assert (await store.restore_session(idle.id)).id == idle.id


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
        found = await store.check_file()
        assert [one for one in found if one.kind != "server"] == [], "a server may be set to less"


@check
async def a_turn_whose_process_died_is_a_finding(world: World) -> None:
    """Opening the session closes it."""
    async with world.crashing() as store:
        session = await store.create_session()
        turn = session.turn("go")  # kept: a turn that nobody holds is ended
        await enter(turn)
    async with world.store() as store:
        (finding,) = await store.examine_session(session.id)
        assert finding.kind == "lease"
        await store.session(session.id)
        assert await store.examine_session(session.id) == []
