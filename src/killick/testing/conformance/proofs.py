"""Links of entries, what was sent to models, and limits of what they may spend."""

from typing import Any

from killick import errors
from killick.maintenance.prove import ExpectedLink
from killick.model import entries as e
from killick.model.messages import Message, Text
from killick.model.sessions import Limits, Parent
from killick.testing.conformance.world import AWKWARD, Boom, World, check, kinds, raises


async def _call(turn: Any, text: str = "yes", usage: e.Usage | None = None) -> None:
    async with turn.stream(model="m") as reply:
        reply.text(text)
        reply.finish(usage=usage)


async def _proved(store: Any, session_id: str) -> Any:
    verified = await store.verify_session(session_id)
    assert verified.findings == []
    assert verified.unlinked == 0
    return verified


def _named(verified: Any) -> list[tuple[str, int]]:
    return [(finding.kind, finding.seq) for finding in verified.findings]


# -- links ---------------------------------------------------------------------------------------


@check
async def every_entry_has_a_link_that_fits(world: World) -> None:
    """Whatever is in it, and whichever process wrote it; large bodies too."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session(id=AWKWARD[1], title=AWKWARD[2])
        for text in (*AWKWARD, "large" * 300_000):
            async with session.turn(text) as turn:
                await _call(turn, text)
                await turn.record_all([Message("assistant", [Text(text)])] * 3)
            await (await other.session(session.id)).rename("from elsewhere")
        verified = await _proved(other, session.id)
        assert verified.head == verified.linked > 50
        linked = await store.linked_entries(session.id, limit=1_000)
        assert [entry.link for entry in linked][:-1] == [entry.before for entry in linked][1:]
        assert linked[0].before is None
        assert linked[-1].link.hex() == verified.link


@check
async def a_repeated_write_changes_no_link(world: World) -> None:
    """Nor does one that was refused, in whatever commit."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go", key="once") as turn:
            answer = Message("assistant", [Text("yes")], id="m")
            await turn.record(answer)
            before = (await store.verify_session(session.id)).link
            await turn.record(answer)
            other = Message("assistant", [Text("no")], id="m")
            await raises(errors.IdConflict, turn.record(other))
            assert (await _proved(store, session.id)).link == before


@check
async def a_link_outlives_a_crash(world: World) -> None:
    """The entries that close a dead turn follow on it."""
    async with world.crashing() as store:
        session = await store.create_session(id="s")
        turn = await session.turn("go").begin()
        await turn.record(Message("assistant", [Text("yes")]))
    async with world.store() as store:
        await store.session("s")
        await _proved(store, "s")


@check
async def a_fork_follows_on_its_parents_link(world: World) -> None:
    """Its first entry is linked to the entry at which it was forked."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            await _call(turn)
        fork = await session.fork(at=4)
        linked = await store.linked_entries(session.id)
        assert (await store.linked_entries(fork.id, after=4))[0].before == linked[3].link
        await _proved(store, fork.id)
        await _proved(store, session.id)


@check
async def a_link_that_was_kept_elsewhere_is_compared(world: World) -> None:
    """A session that has grown still has it; another link, or one that is gone, is verified."""
    async with world.store() as store:
        session = await store.create_session()
        then = await store.verify_session(session.id)
        async with session.turn("go"):
            pass
        kept = ExpectedLink(session.id, then.head, then.link)
        assert not (await store.verify_session(session.id, expect=kept)).findings
        other = ExpectedLink(session.id, then.head, "0" * 64)
        verified = await store.verify_session(session.id, expect=other)
        assert [(finding.kind, finding.seq) for finding in verified.findings] == [
            ("link", then.head)
        ]
        cut = ExpectedLink(session.id, 99, then.link)
        verified = await store.verify_session(session.id, expect=cut)
        assert _named(verified) == [("link", 99)]
        unlinked = ExpectedLink(session.id, 99, None)
        verified = await store.verify_session(session.id, expect=unlinked)
        assert _named(verified) == [("link", 99)], "an end that was cut, of entries without links"
        assert not await store.was_erased(session.id)
        await store.erase_session(session.id)
        assert await store.was_erased(session.id)
        await raises(errors.SessionNotFound, store.verify_session(session.id))


@check
async def imported_entries_keep_their_links(world: World) -> None:
    """Where they follow on the same link; else a chain of their own begins."""
    async with world.store() as store:
        source = await store.create_session(id="a")
        async with source.turn("go") as turn:
            await _call(turn)
        entries = await store.linked_entries("a", limit=100)
        await store.erase_session("a")
        await store.import_entries("a", entries)
        kept = await store.linked_entries("a", limit=100)
        assert [entry.link for entry in kept] == [entry.link for entry in entries]
        await _proved(store, "a")
        await store.import_entries("b", [e.Entry(n.seq, n.at_us, n.body) for n in entries])
        await _proved(store, "b")


# -- what was sent -------------------------------------------------------------------------------


@check
async def what_was_sent_is_computed_again(world: World) -> None:
    """Equal, not recorded, or with a counter of the caller's that cannot be computed again."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            for options in ({}, {"max_tokens": 500, "count_tokens": len}):
                context = await session.context("anthropic", **options)
                async with turn.stream(request={"messages": context.messages}) as reply:
                    reply.text("yes")
            async with turn.stream(request={"messages": ["of my own"]}) as reply:
                reply.text("yes")
            await raises(errors.InvalidEntry, turn.stream(request={"nothing": 1}).begin())
        verified = await _proved(store, session.id)
        assert verified.requests == {"equal": 1, "counter": 1, "not recorded": 1}


@check
async def a_context_that_was_changed_is_not_the_views(world: World) -> None:
    """A caller may mark its messages for a cache: then no view made them, and nothing is amiss."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            context = await session.context("anthropic")
            context.messages[0]["cache_control"] = {"type": "ephemeral"}
            async with turn.stream(request={"messages": context.messages}) as reply:
                reply.text("yes")
            for wrong in ("text", 7, [1], {"messages": b"text"}):
                await raises(errors.InvalidEntry, turn.stream(request=wrong).begin())
        verified = await _proved(store, session.id)
        assert verified.requests == {"not recorded": 1}


# -- limits --------------------------------------------------------------------------------------


@check
async def a_limit_is_looked_at_when_a_call_begins(world: World) -> None:
    """One call may go over; the next is refused, the turn fails, and an entry says so."""
    async with world.store() as store:
        session = await store.create_session(limits=Limits(tokens=100))
        hit = None
        try:
            async with session.turn("go") as turn:
                await _call(turn, usage=e.Usage(input=60, output=30))
                await _call(turn, usage=e.Usage(input=600, output=30))
                await _call(turn)
        except errors.LimitReached as error:
            hit = error
        assert hit is not None
        assert (hit.limit, hit.amount, hit.spent, hit.of) == ("tokens", 100, 720, session.id)
        (ended,) = await session.turns()
        assert (ended.status, ended.cause) == ("failed", "failed")
        entries = await session.entries()
        assert kinds(entries).count("model_call_started") == 2
        assert kinds(entries)[-2:] == ["limit_reached", "turn_ended"]
        assert await store.examine_session(session.id) == []


@check
async def a_limit_can_be_changed(world: World) -> None:
    """By an entry, from any process; without any it is lifted."""
    async with world.store() as store, world.store() as other:
        session = await store.open_session("s", limits=Limits(calls=1))
        async with session.turn("go") as turn:
            await _call(turn)
            await raises(errors.LimitReached, turn.stream().begin())
            await (await other.session("s")).limit(calls=2)
            await _call(turn)
            await raises(errors.LimitReached, turn.stream().begin())
            await session.limit()
            await _call(turn)
            await _call(turn)
        assert kinds(await session.entries()).count("limits") == 2
        again = await other.open_session("s", limits=Limits(calls=0))
        assert (await again.info()).about.limits is None, "they are for a new one"


@check
async def a_turn_has_limits_of_its_own(world: World) -> None:
    """The next turn begins from nothing."""
    async with world.store() as store:
        session = await store.create_session()
        hit: Any
        for _ in range(2):
            async with session.turn("go", limits=Limits(calls=1)) as turn:
                await _call(turn)
                hit = await raises(errors.LimitReached, turn.stream().begin())
                assert hit.of is None
        async with session.turn("go", limits=Limits(seconds=0)) as turn:
            hit = await raises(errors.LimitReached, turn.stream().begin())
            assert hit.limit == "seconds"


@check
async def children_count_towards_their_parent(world: World) -> None:
    """Also those of a child, and in whichever of them the call begins."""
    async with world.store() as store:
        parent = await store.create_session(limits=Limits(cost=1.0))
        child = await store.create_session(parent=Parent(parent.id, "t"))
        grandchild = await store.create_session(parent=Parent(child.id, "t"))
        async with grandchild.turn("go") as turn:
            await _call(turn, usage=e.Usage(input=1, cost=0.6))
        async with child.turn("go") as turn:
            await _call(turn, usage=e.Usage(input=1, cost=0.6))
        for session in (parent, child, grandchild):
            async with session.turn("go") as turn:
                hit: Any = await raises(errors.LimitReached, turn.stream().begin())
                assert (hit.limit, hit.of, hit.session_id) == ("cost", parent.id, session.id)
        other = await store.create_session()
        async with other.turn("go") as turn:
            await _call(turn)


@check
async def a_call_without_usage_counts_by_an_estimate(world: World) -> None:
    """That of the call before it, and what was kept of its answer; it is marked."""
    async with world.store() as store:
        session = await store.create_session(limits=Limits(tokens=300))
        try:
            async with session.turn("go") as turn:
                await _call(turn, usage=e.Usage(input=90, output=10))
                async with turn.stream() as reply:
                    reply.text("x" * 400)
                    raise Boom("cut")
        except Boom:
            pass
        async with session.turn("on") as turn:
            hit: Any = await raises(errors.LimitReached, turn.stream().begin())
            assert (hit.limit, hit.estimated) == ("tokens", 1)
            assert 300 <= hit.spent < 330


@check
async def a_first_call_that_is_cut_counts_what_was_said(world: World) -> None:
    """One token for each four bytes, over and over: a call that always dies comes to an end."""
    async with world.store() as store:
        session = await store.create_session(limits=Limits(tokens=1_000))
        hit: Any = None
        for _ in range(10):
            try:
                async with session.turn("x" * 400) as turn, turn.stream():
                    raise Boom("cut")
            except errors.LimitReached as reached:
                hit = reached
                break
            except Boom:
                pass
        assert (hit.estimated, hit.spent > 1_000) == (4, True)


@check
async def a_call_without_cost_counts_by_the_price_so_far(world: World) -> None:
    """Whether it was cut or its provider told none; before there is a price, cut ones are free."""
    async with world.store() as store:
        session = await store.create_session(limits=Limits(cost=0.7))
        for _ in range(2):
            try:
                async with session.turn("go") as turn, turn.stream() as reply:
                    reply.text("x" * 400)
                    raise Boom("cut")
            except Boom:
                pass
        async with session.turn("go") as turn:
            await _call(turn, usage=e.Usage(input=900, output=100, cost=0.2))
            await _call(turn, usage=e.Usage(input=1_900, output=100))
            await _call(turn, usage=e.Usage(input=400, output=100, cost=0.1))
            hit: Any = await raises(errors.LimitReached, turn.stream().begin())
        assert (hit.limit, hit.estimated) == ("cost", 3)
        assert 0.7 < hit.spent < 0.8


@check
async def seconds_of_children_count_once(world: World) -> None:
    """Those in which a child ran while its parent did not; no second counts twice."""
    ticks = iter(range(0, 10**9, 1_000_000))
    world = World(world.face, world._make, clock=lambda: next(ticks))
    async with world.store() as store:
        parent = await store.create_session()
        async with parent.turn("go") as turn:
            child = await store.create_session(parent=Parent(parent.id, turn.id))
            async with child.turn("go") as inner:
                await _call(inner)
        async with child.turn("on") as inner:
            await _call(inner)
            await _call(inner)
            await parent.limit(seconds=1)
            hit: Any = await raises(errors.LimitReached, inner.stream().begin())
        (alone,) = [x.at_us for x in await parent.entries() if x.kind == "turn_ended"]
        entries = await child.entries()
        began = [x.at_us for x in entries if x.kind == "turn_started"][1]
        within = next(x.at_us for x in await parent.entries() if x.kind == "turn_started")
        last = next(x.at_us for x in entries if x.kind == "limit_reached")
        assert hit.spent == (alone - within + last - began) / 1_000_000


@check
async def a_limit_of_cost_needs_costs(world: World) -> None:
    """Where the journal has none, the call is refused at its start, and says what to do."""
    async with world.store() as store:
        session = await store.create_session(limits=Limits(cost=5))
        async with session.turn("go") as turn:
            await _call(turn, usage=e.Usage(input=1))
            refused = await raises(errors.UsageError, turn.stream().begin())
            assert "limit tokens" in str(refused)


@check
async def a_limit_is_a_number_from_zero_on(world: World) -> None:
    """Anything else is refused, and nothing is stored."""
    async with world.store() as store:
        session = await store.create_session()
        head = session.head
        await raises(errors.InvalidEntry, store.create_session(limits=Limits(calls=-1)))
        await raises(errors.InvalidEntry, session.limit(cost=float("nan")))
        await raises(TypeError, session.limit(tokens="many"))
        await raises(TypeError, store.create_session(limits={"calls": 1}))
        assert (await store.session(session.id)).head == head
