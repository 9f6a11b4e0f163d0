"""Calls that adapters, proxies and workers need: open or create, begin and end, several at once."""

from enum import Enum, StrEnum
from typing import Any

from killick import errors
from killick.model import entries as e
from killick.model.messages import Message, Opaque, Role, Text, ToolCall, ToolResult
from killick.model.sessions import SessionNote
from killick.testing.conformance.world import Boom, World, check, kinds, raises, texts


def _said(text: str, **fields: Any) -> Message:
    return Message("assistant", [Text(text)], **fields)


@check
async def opening_a_session_creates_it_once(world: World) -> None:
    """The parameters are for a new one; one that exists is opened, whatever they are."""
    async with world.store() as store, world.store() as other:
        session = await store.open_session("mine", title="First", tags=["a"], extra={"of": "me"})
        async with session.turn("go"):
            pass
        again = await other.open_session("mine", title="Second", extra={"of": "you"})
        assert (again.id, again.title, again.head) == ("mine", "First", session.head)
        info = await again.info()
        assert (info.tags, info.extra) == (("a",), {"of": "me"})
        conflict = await raises(errors.IdConflict, store.create_session(id="mine"))
        assert "open_session" in str(conflict)
        await store.delete_session("mine")
        await raises(errors.SessionDeleted, store.open_session("mine"))
        await raises(errors.InvalidEntry, store.open_session(""))


@check
async def opening_a_session_closes_a_turn_whose_process_died(world: World) -> None:
    """As `store.session` does."""
    async with world.crashing() as store:
        session = await store.open_session("mine")
        turn = await session.turn("go").begin()
        reply = await turn.stream().begin()
        reply.text("half")
    async with world.store() as store:
        session = await store.open_session("mine")
        assert [(turn.status, turn.cause) for turn in await session.turns()] == [
            ("interrupted", "crashed")
        ]


@check
async def begin_and_end_do_what_the_block_does(world: World) -> None:
    """A turn, a stream and a tool, begun and ended by calls; a second end changes nothing."""
    async with world.store() as store:
        session = await store.create_session()
        turn = await session.turn("go").begin()
        reply = await turn.stream(model="m").begin()
        reply.text("Let me look.")
        reply.tool_call("c", name="shell", arguments="{}")
        await reply.end()
        await reply.end()
        call = await turn.tool("c").begin()
        call.output("compiling")
        await call.finish("done")
        await call.end()
        await turn.end()
        await turn.end(Boom("too late"))
        assert turn.status == "completed"
        assert await texts(session) == [
            ("user", "complete", "go"),
            ("assistant", "complete", "Let me look."),
            ("tool", "complete", ""),
        ]
        assert [info.status for info in await session.turns()] == ["completed"]
        assert kinds(await session.entries()).count("turn_ended") == 1
        assert (await store.counts())["deltas"] == 0


@check
async def ending_by_an_exception_keeps_what_came(world: World) -> None:
    """The answer is partial, the tool's result is the error, the turn has failed."""
    async with world.store() as store:
        session = await store.create_session()
        turn = await session.turn("go").begin()
        await turn.record(Message("assistant", [ToolCall("c", "shell", "{}")]))
        call = await turn.tool("c").begin()
        await call.end(Boom("broken"))
        reply = await turn.stream().begin()
        reply.text("half an ans")
        await reply.end(Boom())
        await turn.end(Boom("why"))
        messages = await session.messages()
        assert [message.state for message in messages] == ["complete"] * 3 + ["partial"]
        assert messages[2].parts == (ToolResult("c", "Boom: broken", is_error=True),)
        (info,) = await session.turns()
        assert (info.status, info.reason, info.cause) == ("failed", "Boom: why", "failed")


@check
async def ending_by_a_cause_keeps_what_came(world: World) -> None:
    """The answer is partial, the tool's outcome unknown or, with `failed`, an error."""
    async with world.store() as store:
        session = await store.create_session()
        turn = await session.turn("go").begin()
        await turn.record(Message("assistant", [ToolCall(name, "shell", "{}") for name in "ab"]))
        left, failed = await turn.tool("a").begin(), await turn.tool("b").begin()
        left.output("printed")
        await left.end(cause="client_gone")
        await failed.end(cause="failed")
        reply = await turn.stream().begin()
        reply.text("half")
        await raises(errors.UsageError, reply.end(cause="gone"))
        await reply.end(cause="client_gone")
        await turn.end(cause="client_gone")
        entries = await session.entries()
        assert "tool_output" in kinds(entries)
        (result,) = [x.body.result for x in entries if isinstance(x.body, e.ToolFinished)]
        assert (result.call_id, result.is_error) == ("b", True)
        assert (await session.messages())[-1].state == "partial"
        (info,) = await session.turns()
        assert (info.status, info.cause) == ("interrupted", "client_gone")


@check
async def several_messages_are_recorded_together(world: World) -> None:
    """In one commit and in order; each may need those before it; again, nothing changes."""
    async with world.store() as store:
        session = await store.create_session()
        batch = [
            Message("assistant", [ToolCall("c", "shell", "{}")], id="call"),
            Message("tool", [ToolResult("c", "done")], id="result"),
            _said("There.", id="answer"),
        ]
        async with session.turn("go") as turn:
            receipts = await turn.record_all(batch)
            assert [receipt.seq for receipt in receipts] == [4, 5, 6]
            assert session.head == 6
            again = await turn.record_all(batch)
            assert [(receipt.seq, receipt.repeated) for receipt in again] == [
                (seq, True) for seq in (4, 5, 6)
            ]
            assert await turn.record_all([]) == []
        entries = await session.entries()
        assert len({entry.at_us for entry in entries[3:6]}) == 1
        assert [message.id for message in await session.messages()][1:] == [m.id for m in batch]


@check
async def of_several_messages_all_are_recorded_or_none(world: World) -> None:
    """One that is refused, for whatever reason, takes the others with it; the turn goes on."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("go") as turn:
            await turn.record(_said("first", id="mine"))
            before = await session.entries()
            for refused, error in (
                (_said("other", id="mine"), errors.IdConflict),
                (Message("tool", [ToolResult("nothing", "x")]), errors.CallNotFound),
                (Message("assistant", [Text(b"x")]), errors.InvalidEntry),  # type: ignore[arg-type]
            ):
                await raises(error, turn.record_all([_said("new"), refused, _said("newer")]))
                assert await session.entries() == before
            await turn.record(_said("last"))
        assert [text for _, _, text in await texts(session)] == ["go", "first", "last"]


@check
async def notes_are_kept_together_and_read_back(world: World) -> None:
    """In order, by name, by key, or the last few; a repeated key changes nothing."""
    async with world.store() as store:
        session = await store.create_session()
        blob = await store.put_blob(b"state")
        notes = [
            SessionNote("mood", {"is": "fine"}, key="k"),
            SessionNote("state", 1, blobs=[blob]),
            SessionNote("mood", ["better"]),
        ]
        receipts = await session.note_all(notes)
        assert [receipt.seq for receipt in receipts] == [2, 3, 4]
        assert session.head == 4
        await session.note("mood", {"is": "fine"}, key="k")
        await raises(
            errors.IdConflict, session.note_all([SessionNote("new"), SessionNote("mood", 2, "k")])
        )
        kept = await session.notes()
        assert [(note.name, note.data, note.key, note.seq) for note in kept] == [
            ("mood", {"is": "fine"}, "k", 2),
            ("state", 1, None, 3),
            ("mood", ["better"], None, 4),
        ]
        assert kept[1].blobs == (blob,)
        assert await session.notes("mood") == [kept[0], kept[2]]
        assert await session.notes(key="k") == [kept[0]]
        assert await session.notes("state", key="k") == []
        assert await session.notes("mood", last=1) == [kept[2]]
        assert await session.notes(last=2) == kept[1:]
        assert await session.notes(last=0) == []
        assert await session.note_all([]) == []


@check
async def a_fork_has_inherited_the_notes(world: World) -> None:
    """By key too; a note of its own under that key is the one that it has then."""
    async with world.store() as store:
        session = await store.create_session()
        await session.note("mood", "fine", key="k")
        async with session.turn("go"):
            pass
        fork = await session.fork()
        assert [note.data for note in await fork.notes(key="k")] == ["fine"]
        await fork.note("mood", "better", key="k")
        assert [note.data for note in await fork.notes(key="k")] == ["better"]
        assert [note.data for note in await fork.notes()] == ["fine", "better"]
        assert [note.data for note in await session.notes(key="k")] == ["fine"]
        await session.rewind(0)
        assert [note.data for note in await session.notes()] == ["fine"]


@check
async def a_context_can_leave_a_turn_out(world: World) -> None:
    """With all that was said since, and a summary that knows of it; late results are there."""
    async with world.store() as store:
        session = await store.create_session()
        async with session.turn("first") as first, first.stream(system="old system") as reply:
            reply.tool_call("c", name="shell", arguments="{}")
        async with session.turn("second") as second, second.stream(system="new system") as reply:
            reply.text("answer")
        whole = await session.context("anthropic", before_turn=second.id)
        assert whole.system == "old system"
        assert whole.messages[0] == {
            "role": "user",
            "content": [{"type": "text", "text": "first"}],
        }
        assert "second" not in str(whole.messages)
        await session.finish_tool(first.id, "c", "the real result")
        late = await session.context("anthropic", before_turn=second.id)
        assert "the real result" in str(late.messages)
        await session.compact("all of it", through=session.head)
        assert (await session.context("anthropic", before_turn=second.id)).messages == late.messages
        assert (await session.context("anthropic", before_turn=first.id)).messages == []
        await session.hide((await session.messages())[0])
        hidden = await session.context("anthropic", before_turn=second.id)
        assert "first" not in str(hidden.messages)
        await raises(errors.TurnNotFound, session.context("anthropic", before_turn="none"))


def _calling(call_id: str, **fields: Any) -> Message:
    return Message("assistant", [ToolCall(call_id, "shell", "{}")], **fields)


def _asking(text: str, **fields: Any) -> Message:
    return Message("user", [Text(text)], **fields)


def _answering(call_id: str, content: str, **fields: Any) -> Message:
    return Message("tool", [ToolResult(call_id, content)], **fields)


@check
async def messages_from_elsewhere_are_turns_that_are_over(world: World) -> None:
    """Each user message begins one; what comes before one goes on with the newest."""
    async with world.store() as store:
        session = await store.create_session()
        added = await session.add_messages(
            [
                Message("system", [Text("Be brief.")]),
                _asking("first"),
                _calling("c"),
                _answering("c", "done"),
                _said("There."),
                _asking("second"),
            ],
            source="elsewhere",
        )
        assert (len(added.turns), added.unpaired, added.repeated) == (2, [], False)
        assert [receipt.seq for receipt in added.receipts] == [3, 4, 5, 6, 7, 10]
        more = await session.add_messages([_said("Later.")], source="elsewhere")
        turns = await session.turns()
        assert [turn.id for turn in turns] == added.turns + more.turns
        assert {(turn.status, turn.starts) for turn in turns} == {("completed", "unseen")}
        assert [turn.continues for turn in turns] == [None, None, added.turns[1]]
        assert session.head == (await session.entries())[-1].seq
        roles = ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
        messages = await session.messages()
        assert [message.role for message in messages] == roles
        assert [message.turn_id for message in messages] == (
            added.turns[:1] * 5 + added.turns[1:] + more.turns
        )
        assert (await session.context("openai-chat")).repairs == []
        async with session.turn("third"):
            busy = session.add_messages([_asking("x")], source="elsewhere")
            await raises(errors.SessionBusy, busy)


@check
async def the_same_messages_from_elsewhere_again_change_nothing(world: World) -> None:
    """Those with ids, or with a key for all of them; others are new each time."""
    async with world.store() as store:
        session = await store.create_session()
        batch = [_asking("yes", id="u"), _calling("c", id="a"), _answering("c", "done", id="t")]
        nameless = [_asking("yes"), _calling("c"), _answering("c", "done")]
        first = await session.add_messages(batch, source="s")
        keyed = await session.add_messages(nameless, source="s", key="k")
        before = await session.entries()
        assert (await session.add_messages(batch, source="s")).repeated
        again = await session.add_messages(nameless, source="s", key="k")
        assert again.repeated
        assert [receipt.seq for receipt in again.receipts] == [r.seq for r in keyed.receipts]
        assert await session.entries() == before
        longer = await session.add_messages([*batch, _said("more", id="b")], source="s")
        assert [receipt.repeated for receipt in longer.receipts] == [True, True, True, False]
        other = [_asking("new", id="n"), _asking("no", id="u")]
        head = session.head
        await raises(errors.IdConflict, session.add_messages(other, source="s"))
        assert (await session.entries())[-1].seq == head
        assert not (await session.add_messages(nameless, source="s")).repeated
        assert len(first.turns) == len(keyed.turns) == len(longer.turns) == 1
        assert (await session.add_messages([], source="s")).receipts == []


@check
async def a_result_from_elsewhere_finds_its_call(world: World) -> None:
    """The newest call of its id that has no result, in an earlier turn too, and once."""
    async with world.store() as store:
        session = await store.create_session()
        await session.add_messages(
            [_asking("one", id="1"), _calling("c", id="2"), _asking("two", id="3")], source="s"
        )
        await session.add_messages([_calling("c", id="4")], source="s")
        results = [_answering("c", "second", id="5"), _answering("c", "first", id="6")]
        added = await session.add_messages(results, source="s")
        assert (added.turns, added.unpaired) == ([], [])
        late = [x.body for x in await session.entries() if isinstance(x.body, e.LateResult)]
        assert [(body.message_id, body.result.content) for body in late] == [
            ("4", "second"),
            ("2", "first"),
        ]
        await session.add_messages([_calling("c", id="7")], source="s")
        before = await session.entries()
        assert (await session.add_messages(results, source="s")).repeated
        assert await session.entries() == before
        await session.add_messages([_answering("c", "third")], source="s")
        before = await session.entries()
        assert (await session.add_messages([_answering("c", "third")], source="s")).repeated
        assert await session.entries() == before


@check
async def results_in_one_batch_find_their_calls(world: World) -> None:
    """A call that was made twice takes two results, the newest first; a known result is known."""
    async with world.store() as store:
        session = await store.create_session()
        made = [_asking("go"), _calling("c", id="1"), _calling("c", id="2")]
        await session.add_messages([*made, _answering("c", "x"), _answering("c", "y")], source="s")
        bodies = [entry.body for entry in await session.entries()]
        (older,) = [body for body in bodies if isinstance(body, e.ToolFinished)]
        assert (older.message_id, older.result.content) == ("1", "y")
        again = await session.add_messages([_answering("c", "x")], source="s")
        assert (again.repeated, again.unpaired) == (True, [])


@check
async def a_result_without_a_call_is_kept_and_reported(world: World) -> None:
    """As opaque data, which no model is sent; its neighbours are added as they are."""
    async with world.store() as store:
        session = await store.create_session()
        batch = [
            Message("user", [ToolResult("lost", "kept"), Text("go on")], id="u"),
            _said("So be it.", id="a"),
        ]
        added = await session.add_messages(batch, source="s")
        assert added.unpaired == ["lost"]
        (kept, *_) = await session.messages()
        assert kept.role == "tool"
        assert isinstance(kept.parts[0], Opaque)
        assert b'"content":"kept"' in kept.parts[0].data
        again = await session.add_messages(batch, source="s")
        assert (again.repeated, again.unpaired) == (True, [])
        for format_ in ("openai-chat", "openai-responses", "anthropic", "gemini"):
            sent = str((await session.context(format_)).messages)
            assert "go on" in sent
            assert "kept" not in sent


@check
async def a_result_from_elsewhere_finds_no_call_that_was_rewound(world: World) -> None:
    """A turn out of view takes no result; a new turn does not go on with it either."""
    async with world.store() as store:
        session = await store.create_session()
        await session.add_messages([_asking("go"), _calling("c")], source="s")
        await session.clear()
        added = await session.add_messages([_answering("c", "x")], source="s")
        assert added.unpaired == ["c"]
        assert [turn.continues for turn in await session.turns()][1:] == [None]


@check
async def parts_are_followed_the_same_live_and_afterwards(world: World) -> None:
    """A start, deltas and an end for each part, as they come and when all is over."""
    async with world.store() as store, world.store() as other:
        session = await store.create_session()
        live = (await other.session(session.id)).part_events()
        seen: list[Any] = []

        async def see(*kinds: str) -> None:
            for kind in kinds:
                seen.append(await anext(live))
                assert seen[-1].kind == kind, seen[-1]

        turn = await session.turn("go").begin()
        await see("start", "delta", "end")
        reply = await turn.stream().begin()
        reply.text("Let me look.")
        await see("start", "delta")
        reply.tool_call("c", name="shell", arguments='{"a": ')
        await see("end", "start", "delta")
        reply.tool_call("c", arguments="1}")
        await see("delta", "end")
        await reply.end()
        call = await turn.tool("c").begin()
        await see("start")
        call.output("compiling")
        await see("delta")
        await call.finish("done")
        await see("end")
        await turn.end()
        shape = _joined(seen)
        afterwards = session.part_events()
        assert _joined([await anext(afterwards) for _ in shape]) == shape
        ids = [message.id for message in await session.messages()]
        assert list(dict.fromkeys(event.message_id for event in seen)) == ids
        assert seen[-1].part == ToolResult("c", "done")
        assert seen[9].part == ToolCall("c", "shell", '{"a": 1}')
        await live.aclose()
        await afterwards.aclose()


def _joined(events: list[Any]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for event in events:
        row = [event.kind, event.message_id, event.index, event.type, event.part]
        if event.kind == "delta" and rows and rows[-1][:-1] == row:
            rows[-1][-1] += event.text
        else:
            rows.append([*row, event.text])
    return rows


class _Words(str):
    """Text of a class of its own, as frameworks have it."""

    __slots__ = ()

    def __call__(self) -> str:
        return str(self)


class _Named(StrEnum):
    WORD = "a/named"


class _Mixed(str, Enum):  # noqa: UP042  (it formats as its name)
    WORD = "a/mixed"


@check
async def text_of_any_class_is_taken_as_its_text(world: World) -> None:
    """Everywhere: what is stored and found is the same as with a plain string."""
    for word in (_Words("a/words"), _Named.WORD, _Mixed.WORD):
        text = "".join([word])
        async with world.store() as store:
            session = await store.open_session(word, title=word, tags=[word], extra={"k": word})
            await _used(store, session, word, text)
        async with world.store() as store:
            plain = await store.session(text)
            assert (type(plain.id), type(plain.title), plain.title) == (str, str, text)
            assert [info.id for info in await store.sessions(tag=word, title=word)] == [text]
            for message in await plain.messages():
                assert type(message.id) is str
                assert [type(part.text) for part in message.parts if isinstance(part, Text)] in (
                    [],
                    [str],
                )


async def _used(store: Any, session: Any, word: str, text: str) -> None:
    assert type(session.id) is str
    async with session.turn(word, key=word) as turn:
        async with turn.stream(model=word, system=word) as reply:
            reply.reasoning(word)
            reply.text(word)
            reply.tool_call(word, name=word, arguments=_Words('{"a": '))
            reply.tool_call(word, arguments=_Words("1}"))
            reply.finish(finish_reason=word)
        async with turn.tool(word) as call:
            call.output(word)
            await call.finish(word)
        await turn.record(Message("assistant", [Text(word)], id=word))
        await turn.record(Message("assistant", [Text(text)], id=text))
    again = session.turn(text, key=text)
    async with again:
        assert again.repeated
    stopped = await session.turn(word).begin()
    await session.stop(reason=word)
    await stopped.end(cause="stopped")
    await session.note(word, {word: [word]}, key=word)
    assert [note.data for note in await session.notes(text, key=text)] == [{text: [text]}]
    await session.rename(word)
    entries = await session.entries()
    (finished,) = [x.body.result for x in entries if isinstance(x.body, e.ToolFinished)]
    assert finished == ToolResult(text, text)
    role = _Words("assistant")
    assert await store.search(f'"{text}"', session=word, role=role, wait_seconds=30.0)
    assert [(turn.status, turn.reason) for turn in await session.turns()] == [
        ("completed", None),
        ("interrupted", text),
    ]


@check
async def a_follower_holds_the_last_turn_of_what_it_brings_in(world: World) -> None:
    """It runs here as any turn does; what comes later goes on with it, and it ends once."""
    async with world.store() as store, world.store() as other:
        begun = _followed()
        await store.import_entries("mine", begun, hold=True)
        session = await other.session("mine")
        assert [turn.status for turn in await session.turns()] == ["running"]
        later = [
            e.Entry(4, 30, _message("m2", "t", "assistant", "Yes.")),
            e.Entry(5, 40, e.TurnEnding(turn_id="t", status="completed")),
        ]
        await raises(errors.SessionBusy, store.import_entries("mine", later))
        await raises(errors.SessionBusy, other.import_entries("mine", later, hold=True))
        await store.import_entries("mine", later[:1], hold=True)
        again = await store.import_entries("mine", later[:1], hold=True)
        assert again.repeated
        await store.import_entries("mine", later[1:], hold=True)
        assert [turn.status for turn in await session.turns()] == ["completed"]
        assert await texts(session) == [
            ("user", "complete", "go"), ("assistant", "complete", "Yes."),
        ]  # fmt: skip
        assert [entry.at_us for entry in await session.entries()] == [10, 10, 20, 30, 40]
        assert await store.examine_session("mine") == []
        await raises(errors.InvalidEntry, store.import_entries("whole", begun))


@check
async def a_turn_whose_follower_died_is_closed(world: World) -> None:
    """The next opening closes it as crashed, and can go on with a turn that continues it."""
    async with world.crashing() as store:
        await store.import_entries("mine", _followed(), hold=True)
    async with world.store() as store:
        session = await store.session("mine")
        assert [(turn.status, turn.cause) for turn in await session.turns()] == [
            ("interrupted", "crashed")
        ]
        begins = e.TurnStarted(turn_id="t2", fence=2, holder="x", continues="t", starts="unseen")
        rest: list[e.Body] = [begins, _message("m2", "t2", "assistant", "Yes.")]
        entries = [e.Entry(session.head + n, 50, body) for n, body in enumerate(rest, start=1)]
        await store.import_entries("mine", entries, hold=True)
        assert [turn.status for turn in await session.turns()] == ["interrupted", "running"]
        assert await store.examine_session("mine") == []


def _followed() -> list[e.Entry]:
    """A session whose turn has begun elsewhere."""
    return [
        e.Entry(1, 10, e.SessionCreated()),
        e.Entry(2, 10, e.TurnStarted(turn_id="t", fence=1, holder="x", starts="unseen")),
        e.Entry(3, 20, _message("m1", "t", "user", "go")),
    ]


def _message(own: str, turn_id: str, role: Role, text: str) -> e.MessageRecorded:
    return e.MessageRecorded(id=own, turn_id=turn_id, role=role, parts=(Text(text),))
