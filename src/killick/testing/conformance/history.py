"""Changing history without losing it: compact, rewind, undo, hide, fork, and what is derived."""

from typing import Any

from killick import errors
from killick.model.entries import Usage
from killick.model.messages import Message, Text
from killick.model.sessions import Parent, Project
from killick.testing.conformance.world import Boom, World, check, enter, kinds, leave, raises, texts


async def exchange(session: Any, number: int, *, tool: bool = False) -> None:
    """One turn: a prompt, an answer that may use a tool, and what was spent."""
    async with session.turn(f"ask {number}") as turn:
        async with turn.stream(model="m", provider="openai", system="Be brief.") as reply:
            reply.text(f"answer {number}")
            if tool:
                reply.tool_call("call", name="look", arguments="{}")
            reply.finish(usage=Usage(input=10, output=2, cached=4, reasoning=1, cost=0.5))
        if tool:
            async with turn.tool("call") as call:
                await call.finish(f"result {number}")


async def said(session: Any) -> list[str]:
    return [message.text for message in await session.messages() if message.role != "tool"]


async def sent(session: Any) -> str:
    return str((await session.context("anthropic")).messages)


async def shown(session: Any) -> list[tuple[str, str]]:
    return [(item.kind, item.text) for item in await session.transcript()]


@check
async def a_compaction_replaces_what_a_model_is_sent_and_nothing_else(world: World) -> None:
    """The messages stay; a person sees a fold; undoing it sends them again."""
    async with world.store() as store:
        session = await store.create_session()
        for number in range(4):
            await exchange(session, number, tool=True)
        messages = await session.messages()
        receipt = await session.compact(
            "They asked twice.", through=messages[5].seq, tokens_before=900, tokens_after=30
        )
        text = await sent(session)
        assert "They asked twice." in text
        assert "answer 1" not in text
        assert "result 1" not in text, "a result goes with the message that asked for it"
        assert "ask 2" in text
        assert await session.messages() == messages
        fold, *rest = await session.transcript()
        assert (fold.kind, fold.text) == ("compaction", "They asked twice.")
        assert [item.text for item in fold.folded] == ["ask 0", "answer 0", "ask 1", "answer 1"]
        assert [item.text for item in rest] == ["ask 2", "answer 2", "ask 3", "answer 3"]
        assert (await session.context("anthropic")).system == "Be brief."
        await session.undo(receipt.seq)
        assert "answer 1" in await sent(session)


@check
async def chosen_messages_stay_and_nested_compactions_are_right(world: World) -> None:
    """A later summary stands for an earlier one; undoing it shows the earlier one again."""
    async with world.store() as store:
        session = await store.create_session()
        for number in range(4):
            await exchange(session, number)
        messages = await session.messages()
        await session.compact("first summary", through=messages[1].seq)
        second = await session.compact(
            "second summary", through=messages[5].seq, keep=[messages[4].seq]
        )
        text = await sent(session)
        assert "second summary" in text
        assert "first summary" not in text
        assert "ask 2" in text
        assert "answer 2" not in text
        outer = (await session.transcript())[0]
        assert outer.folded[0].kind == "compaction"
        await session.undo(second.seq)
        text = await sent(session)
        assert "first summary" in text
        assert "answer 2" in text


@check
async def what_arrives_while_a_summary_is_made_stays_outside_it(world: World) -> None:
    """Also the rest of an answer that was streaming, while its turn runs."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        await exchange(session, 0)
        turn = session.turn("ask 1")
        await enter(turn)
        reply = await enter(turn.stream())
        reply.text("the beginning, ")
        elsewhere = await other.session(session.id)
        through = elsewhere.head
        reply.text("the rest")
        await leave(reply)
        await turn.record(Message("assistant", [Text("afterwards")]))
        await elsewhere.compact("a summary", through=through)
        text = await sent(elsewhere)
        assert "a summary" in text
        assert "answer 0" not in text
        assert "the beginning, the rest" in text
        assert "afterwards" in text
        await leave(turn)


@check
async def what_was_not_finished_as_of_then_stays(world: World) -> None:
    """Though its turn has ended since, and though its place lies in the range."""
    async with world.store() as store:
        session = await store.create_session()
        await exchange(session, 0)
        async with session.turn("ask 1") as turn, turn.stream() as reply:
            reply.text("the beginning, ")
            as_of = through = session.head
            reply.text("the rest")
        await session.compact("a summary", through=through, as_of=as_of)
        assert "the beginning, the rest" in await sent(session)
        assert "answer 0" not in await sent(session)
        await raises(errors.InvalidEntry, session.compact("s", through=through, as_of=999))


@check
async def a_compaction_that_cannot_be_changes_nothing(world: World) -> None:
    """Nothing to compact, an empty summary, a range upside down, a seq that is not there."""
    async with world.store() as store:
        session = await store.create_session()
        await exchange(session, 0)
        messages = await session.messages()
        before = await session.entries()
        last = messages[-1].seq
        await raises(errors.InvalidEntry, session.compact("  ", through=last))
        await raises(errors.InvalidEntry, session.compact("s", through=1))
        await raises(errors.InvalidEntry, session.compact("s", through=999))
        await raises(errors.InvalidEntry, session.compact("s", through=3, first=5))
        await raises(errors.InvalidEntry, session.compact("s", through=last, keep=[999]))
        everything = [message.seq for message in messages]
        await raises(errors.InvalidEntry, session.compact("s", through=last, keep=everything))
        await raises(errors.UndoRefused, session.undo())
        await raises(errors.InvalidEntry, session.undo(2))
        assert await session.entries() == before


@check
async def a_rewind_keeps_what_began_by_then_whole(world: World) -> None:
    """A call keeps its result; the journal keeps everything; undo brings it back."""
    async with world.store() as store:
        session = await store.create_session()
        for number in range(3):
            await exchange(session, number, tool=True)
        messages = await session.messages()
        receipt = await session.rewind(through=messages[4].seq)
        assert [message.id for message in await session.messages()] == [
            message.id for message in messages[:6]
        ]
        text = await sent(session)
        assert "result 1" in text
        assert "ask 2" not in text
        assert [text for _, text in await shown(session)][-1] == "answer 1"
        await session.undo(receipt.seq)
        assert await session.messages() == messages


@check
async def a_rewind_is_undone_only_until_something_is_said(world: World) -> None:
    """Afterwards the hint is to fork, and the fork shows what was before."""
    async with world.store() as store:
        session = await store.create_session()
        await exchange(session, 0)
        await exchange(session, 1)
        receipt = await session.clear()
        assert await session.messages() == []
        assert await shown(session) == []
        await exchange(session, 2)
        assert await said(session) == ["ask 2", "answer 2"]
        refused = await raises(errors.UndoRefused, session.undo(receipt.seq))
        assert "fork" in str(refused)
        fork = await session.fork(at=receipt.seq - 1)
        assert await said(fork) == ["ask 0", "answer 0", "ask 1", "answer 1"]


@check
async def a_rewind_is_refused_while_a_turn_runs(world: World) -> None:
    """And for a seq that does not exist, or was rewound before; nothing changes."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        await exchange(session, 0)
        await exchange(session, 1)
        head = session.head
        await raises(errors.InvalidEntry, session.rewind(through=head + 1))
        await raises(errors.InvalidEntry, session.rewind(through=-1))
        await session.rewind(through=3)
        await raises(errors.InvalidEntry, session.rewind(through=head))
        await raises(errors.InvalidEntry, session.compact("s", through=head))
        turn = session.turn("go")
        await enter(turn)
        elsewhere = await other.session(session.id)
        before = await elsewhere.entries()
        await raises(errors.SessionBusy, elsewhere.rewind(through=3))
        assert await elsewhere.entries() == before
        await leave(turn)


@check
async def a_rewind_takes_a_summary_along_that_reaches_beyond_it(world: World) -> None:
    """It speaks of what was rewound; one that does not stays."""
    async with world.store() as store:
        session = await store.create_session()
        for number in range(3):
            await exchange(session, number)
        messages = await session.messages()
        await session.compact("short", through=messages[1].seq)
        await session.compact("long", through=messages[5].seq)
        await session.rewind(through=messages[3].seq)
        text = await sent(session)
        assert "short" in text
        assert "long" not in text
        assert "ask 1" in text
        assert "ask 2" not in text


@check
async def hiding_is_for_the_person_and_the_model_apart(world: World) -> None:
    """A later write never undoes it, in a fold neither; showing does."""
    async with world.store() as store:
        session = await store.create_session()
        await exchange(session, 0, tool=True)
        await exchange(session, 1)
        messages = await session.messages()
        await session.hide(messages[1], person=False)
        await session.hide(messages[0], model=False)
        text = await sent(session)
        assert "answer 0" not in text
        assert "result 0" not in text
        assert "ask 0" in text
        await exchange(session, 2)
        await session.compact("in short", through=messages[4].seq)
        fold = (await session.transcript())[0]
        assert [item.text for item in fold.folded] == ["answer 0", "ask 1", "answer 1"]
        await session.undo()
        await session.show(messages[0])
        await session.show(messages[1].seq)
        assert "answer 0" in await sent(session)
        assert ("message", "ask 0") in await shown(session)
        await raises(errors.InvalidEntry, session.hide(1))
        await raises(errors.InvalidEntry, session.hide(messages[0], person=False, model=False))


@check
async def a_hidden_result_keeps_its_place_and_loses_its_content(world: World) -> None:
    """A call must have a result, also where its text is not shown."""
    async with world.store() as store:
        session = await store.create_session()
        await exchange(session, 0, tool=True)
        messages = await session.messages()
        assert messages[2].role == "tool"
        await session.hide(messages[2])
        text = await sent(session)
        assert "tool_result" in text
        assert "result 0" not in text
        (tool,) = (await session.transcript())[1].tools
        assert (tool.state, tool.result) == ("finished", None)


@check
async def a_fork_shares_rows_and_goes_on_by_itself(world: World) -> None:
    """No row is copied; its entries continue at `at` + 1; neither sees the other's."""
    async with world.store() as store:
        session = await store.create_session(title="The first", tags=("a",))
        for number in range(3):
            await exchange(session, number, tool=True)
        messages, before = await session.messages(), (await store.counts())["entries"]
        at = [entry.seq for entry in await session.entries() if entry.kind == "turn_ended"][1]
        fork = await session.fork(at=at)
        assert (await store.counts())["entries"] == before + 1
        assert (fork.title, fork.head) == (None, at + 1)
        assert await fork.messages() == messages[:6]
        await exchange(fork, 9)
        assert (await said(fork))[-2:] == ["ask 9", "answer 9"]
        assert await session.messages() == messages
        entries = await fork.entries()
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert entries[:at] == (await session.entries())[:at]
        assert await fork.entries(after=at - 2, limit=4) == entries[at - 2 : at + 2]
        assert await fork.messages(last=3) == (await fork.messages())[-3:]
        assert await fork.messages(limit=7) == (await fork.messages())[:7]
        info = await fork.info()
        assert info.fork is not None
        assert (info.fork.session_id, info.fork.at) == (session.id, at)
        assert [info.id for info in await store.sessions(fork_of=session.id)] == [fork.id]


@check
async def a_fork_of_a_running_turn_has_what_began_whole(world: World) -> None:
    """In the fork the turn is interrupted; what streams, or runs, is there as far as it came."""
    async with world.store() as store:
        session = await store.create_session()
        turn = session.turn("go")
        await enter(turn)
        async with turn.stream() as reply:
            reply.text("calling")
            reply.tool_call("done", name="look", arguments="{}")
            reply.tool_call("open", name="look", arguments="{}")
        async with turn.tool("done") as call:
            await call.finish("finished")
        running = await enter(turn.tool("open"))
        fork = await session.fork(at=(await session.messages())[1].seq)
        (info,) = await fork.turns()
        assert (info.status, info.reason) == ("interrupted", "forked")
        text = await sent(fork)
        assert "finished" in text
        assert "unknown" in text
        await running.finish("later")
        await leave(running)
        await leave(turn)
        assert "later" not in await sent(fork)
        assert await store.examine_session(fork.id) == []


@check
async def an_ending_that_a_fork_inherits_keeps_its_time_and_cause(world: World) -> None:
    """So do the message and the call it ends; the fork is the newest session all the same."""
    async with world.store() as store:
        session = await store.create_session()
        turn = session.turn("go")
        await enter(turn)
        reply = await enter(turn.stream())
        reply.text("half")
        boom = Boom("it broke")
        await reply.__aexit__(Boom, boom, None)
        await turn.__aexit__(Boom, boom, None)
        later = await store.create_session()
        reach = (await session.messages())[1].seq
        fork = await session.fork(at=reach)
        ends = {"message_ended", "model_call_ended", "turn_ended"}
        theirs = {x.kind: x.at for x in await session.entries() if x.kind in ends}
        ours = {x.kind: x.at for x in await fork.entries(after=reach) if x.kind in ends}
        assert ours == theirs
        (info,) = await fork.turns()
        (source,) = await session.turns()
        assert (info.status, info.cause) == ("failed", "failed")
        assert info.reason == source.reason
        assert [info.id for info in await store.sessions()] == [fork.id, later.id, session.id]
        assert await store.examine_session(fork.id) == []


@check
async def a_fork_of_a_fork_reads_through_both(world: World) -> None:
    """And outlives the deletion of what it came from."""
    async with world.store() as store:
        first = await store.create_session()
        await exchange(first, 0)
        second = await first.fork()
        await exchange(second, 1)
        third = await second.fork()
        await exchange(third, 2)
        await store.delete_session(first.id)
        await store.delete_session(second.id)
        again = await store.session(third.id)
        assert await said(again) == ["ask 0", "answer 0", "ask 1", "answer 1", "ask 2", "answer 2"]
        assert [turn.status for turn in await again.turns()] == ["completed"] * 3
        assert await again.entries(after=2, limit=3) == (await again.entries())[2:5]
        await raises(errors.SessionDeleted, second.fork())


@check
async def the_same_id_forks_once(world: World) -> None:
    """A given id makes it idempotent; an inherited id cannot be recorded anew."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            await turn.record(Message("assistant", [Text("mine")], id="mine"))
        fork = await session.fork(id="the-fork")
        assert (await session.fork(fork.head - 1, id="the-fork")).id == fork.id
        async with fork.turn("go on") as turn:
            assert (await turn.record(Message("assistant", [Text("mine")], id="mine"))).repeated
            other = Message("assistant", [Text("other")], id="mine")
            await raises(errors.IdConflict, turn.record(other))


@check
async def usage_is_counted_once(world: World) -> None:
    """By session, model, project and day; forks and compactions count nothing twice."""
    async with world.store() as store:
        session = await store.create_session(project=Project("/work"))
        await exchange(session, 0)
        await exchange(session, 1)
        fork = await session.fork()
        await exchange(fork, 2)
        spent = Usage(input=100, output=10)
        through = (await session.messages())[-1].seq
        await session.compact("s", through=through, model="small", usage=spent)
        (total,) = await store.usage("all")
        assert (total.calls, total.input, total.output) == (4, 130, 16)
        assert (total.cached, total.reasoning, total.cost) == (12, 3, 1.5)
        by_model = {row.name: row.calls for row in await store.usage("model")}
        assert by_model == {"m": 3, "small": 1}
        by_session = {row.name: row.input for row in await store.usage("session")}
        assert by_session == {session.id: 120, fork.id: 10}
        assert [row.name for row in await store.usage("project", session=session.id)] == ["/work"]
        assert len(await store.usage("day")) == 1
        assert await store.usage("all", model="unknown") == []


@check
async def an_interrupted_call_is_counted(world: World) -> None:
    """A call that never told its tokens is counted too."""
    async with world.crashing() as store:
        session = await store.create_session()
        turn = session.turn("go")
        await enter(turn)
        await enter(turn.stream(model="m"))
    async with world.store() as store:
        await store.session(session.id)
        (total,) = await store.usage()
        assert (total.name, total.calls, total.input) == ("m", 1, 0)


@check
async def sessions_are_listed_by_what_is_known_of_them(world: World) -> None:
    """Type, project, tag, model, interrupted, title, parent, pinned, time."""
    async with world.store() as store:
        plain = await store.create_session(title="Straße und Wald")
        other = await store.create_session(
            type="subagent", project=Project("/p"), parent=Parent(plain.id, "turn_1")
        )
        await exchange(plain, 0)
        async with other.turn("go"):
            pass
        await other.tag("red", "blue")
        await other.tag("green", remove=["blue"])
        await other.pin()
        await other.move(Project("/q", "/q/sub"))

        async def listed(**filters: Any) -> list[str]:
            return [info.id for info in await store.sessions(**filters)]

        assert await listed(type="subagent") == [other.id]
        assert await listed(project="/q") == [other.id]
        assert await listed(project="/p") == []
        assert await listed(tag="green") == [other.id]
        assert await listed(tag="blue") == []
        assert await listed(model="m") == [plain.id]
        assert await listed(title="STRASSE") == [plain.id]
        assert await listed(parent=plain.id) == [other.id]
        assert await listed(pinned=True) == [other.id]
        assert await listed(interrupted=True) == []
        info = await other.info()
        assert (info.tags, info.pinned, info.status) == (("red", "green"), True, "completed")
        since = info.updated_at
        assert other.id in await listed(since=since)
        assert other.id not in await listed(until=since)
        await raises(errors.InvalidEntry, other.tag("x" * 10_000))
        await raises(errors.InvalidEntry, other.tag())
        await raises(errors.InvalidEntry, other.tag(remove="red"))
        await raises(errors.InvalidEntry, store.create_session(tags="red"))
        await raises(ValueError, store.sessions(limit=1.5))
        await raises(ValueError, store.sessions(limit=2**70))
        await raises(ValueError, store.sessions(title=5))


@check
async def an_interrupted_session_is_listed_as_such(world: World) -> None:
    """Until a turn completes."""
    async with world.crashing() as store:
        session = await store.create_session()
        turn = session.turn("go")  # kept: a turn without references is ended
        await enter(turn)
    async with world.store() as store:
        session = await store.session(session.id)
        assert [info.id for info in await store.sessions(interrupted=True)] == [session.id]
        assert await store.sessions(interrupted=False) == []
        await exchange(session, 0)
        assert await store.sessions(interrupted=True) == []
        assert "turn_ended" in kinds(await session.entries())
        assert (await texts(session))[0][0] == "user"


@check
async def the_words_of_a_stop_tell_a_model_nothing_else(world: World) -> None:
    """A person may write "crashed" or "forked" as the reason; it was a stop all the same."""
    async with world.store() as store:
        for words in ("crashed", "forked", "deleted", "awaiting_approval"):
            session = await store.create_session()
            try:
                async with session.turn("go") as turn:
                    await session.stop(turn.id, reason=words)
                    while True:
                        await turn.record(Message("assistant", [Text("more")]))
            except errors.TurnStopped:
                pass
            context = await session.context("openai-chat")
            last = str(context.messages[-1]["content"])
            assert f"it was stopped ({words})" in last, (words, last)
