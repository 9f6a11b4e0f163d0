"""Following part by part: the same events live, resumed at any point, and after the end."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from killick import Image, Message, Session, Store, Text, ToolCall, ToolResult
from killick.session.parts import PartEvent, PartFollower, PartItem
from killick.stores.memory import MemoryDisk
from tests.waiting import until


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(MemoryDisk().open(), window_seconds=0.001) as opened:
        yield opened


def is_flushed(turn: Any) -> bool:
    return all(buffer._added == buffer._written for buffer in turn._buffers.values())


class Watching:
    """A live reader that looks after every step."""

    def __init__(self, session: Session, after: int | str = 0) -> None:
        self.session = session
        self.follower = PartFollower(session._core.key, after)
        self.seen: list[PartItem] = []

    def look(self) -> "Watching":
        runtime = self.session._core.runtime()
        until(lambda: all(is_flushed(turn) for turn in runtime._running_turns()))
        while True:
            self.seen += runtime.read(self.follower.poll)
            if self.follower.live:
                return self

    def events(self) -> list[PartEvent]:
        return [item.item for item in self.seen]


def joined(events: list[PartEvent]) -> list[tuple[Any, ...]]:
    """The events, with the neighbouring deltas of a part as one, each message by itself."""
    whole: dict[tuple[int, str, str | None], list[list[Any]]] = {}
    for event in events:
        call_id = event.call_id if event.role == "tool" else None
        of_message = whole.setdefault((event.seq, event.message_id, call_id), [])
        facts = [event.kind, event.type, event.index, event.call_id, event.part, event.late]
        if event.kind == "delta" and of_message and of_message[-1][:-1] == facts:
            of_message[-1][-1] += event.text
        else:
            of_message.append([*facts, event.text])
    return [(name, *map(tuple, rows)) for name, rows in whole.items()]


def talk(store: Store, session: Session, watching: Watching) -> None:
    """A turn with everything in it, looked at after each step."""
    look = watching.look
    with session.turn("go") as turn:
        look()
        with turn.stream() as reply:
            steps: list[Callable[[], None]] = [
                lambda: reply.reasoning("hm"),
                lambda: reply.reasoning("m", signature="sig"),
                lambda: reply.text("Let "),
                lambda: reply.text("me look."),
                lambda: reply.tool_call("a", name="shell", arguments='{"x": '),
                lambda: reply.tool_call("b", name="shell", arguments='{"y"'),
                lambda: reply.tool_call("a", arguments="1}"),
                lambda: reply.tool_call("a", arguments="  "),
                lambda: reply.tool_call("b", arguments=": 2}"),
                lambda: reply.tool_call("own", name="edit", arguments="+ 1", tool_type="custom"),
                lambda: reply.tool_call("own", done=True),
                lambda: reply.part(Image(store.put_blob(b"png"), "image/png")),
                lambda: reply.text("So."),
            ]
            for step in steps:
                step()
                look()
        look()
        with turn.tool("a") as tool:
            look()
            tool.output("com")
            look()
            tool.output("piling")
            look()
            tool.finish("done")
        look()
        with turn.tool("b") as tool:
            tool.output("all of it")
            look()
            tool.finish()
        turn.record(Message("assistant", [Text("There."), ToolCall("c", "shell", "{}")]))
        look()
        turn.record(Message("tool", [ToolResult("c", "fine")]))
    look()


def interrupt(session: Session, watching: Watching) -> None:
    """A turn that is left in the middle of an answer and of a tool; a result comes late."""
    look = watching.look
    try:
        with session.turn("again") as turn:
            turn.record(Message("assistant", [ToolCall("d", "shell", "{}")]))
            look()
            with turn.tool("d") as tool:
                tool.output("half")
                look()
                with turn.stream() as reply:
                    reply.tool_call("e", name="shell", arguments='{"cut')
                    look()
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        look()
    session.finish_tool(turn.id, "d", "late")
    look()


def test_live_resumed_and_afterwards(store: Store) -> None:
    """Whatever was seen last, the rest is what is missing: nothing twice, nothing left out."""
    session = store.create_session()
    live = Watching(session).look()
    talk(store, session, live)
    interrupt(session, live)
    whole = joined(live.events())
    after = Watching(session).look()
    assert joined(after.events()) == whole
    for reader in (live, after):
        for count, item in enumerate(reader.seen, start=1):
            rest = Watching(session, item.cursor).look()
            assert joined(reader.events()[:count] + rest.events()) == whole, item


def test_a_part_starts_grows_and_ends(store: Store) -> None:
    """Each part has one start and one end; its deltas make up its text."""
    session = store.create_session()
    live = Watching(session).look()
    talk(store, session, live)
    message = session.messages()[1]
    events = [event for event in live.events() if event.message_id == message.id]
    for index, part in enumerate(message.parts):
        own = [event for event in events if event.index == index]
        assert [event.kind for event in own if event.kind != "delta"] == ["start", "end"]
        assert (own[0].kind, own[-1].kind) == ("start", "end")
        text = "".join(event.text for event in own)
        if isinstance(part, ToolCall):
            assert text == part.arguments.rstrip()
            assert own[0].part == ToolCall(
                part.id, "shell" if index < 4 else "edit", "", part.tool_type
            )
        else:
            assert own[-1].part == part
            assert text == getattr(part, "text", "")
    assert [event.index for event in events] == sorted(event.index for event in events)


def test_a_part_is_shown_before_its_message_ends(store: Store) -> None:
    """The end of a call that is whole does not wait for the rest of the answer."""
    session = store.create_session()
    live = Watching(session).look()
    with session.turn("go") as turn, turn.stream() as reply:
        reply.text("Look")
        assert [event.kind for event in live.look().events()[-2:]] == ["start", "delta"]
        reply.tool_call("a", name="shell", arguments="{}")
        kinds = [(event.kind, event.type) for event in live.look().events()[-4:]]
        assert kinds == [
            ("end", "text"),
            ("start", "tool_call"),
            ("delta", "tool_call"),
            ("end", "tool_call"),
        ]
        assert live.events()[-1].part == ToolCall("a", "shell", "{}")


def test_a_reader_that_knows_a_seq_only_misses_nothing_after_it(store: Store) -> None:
    """A message that began before and ends after is shown whole, with its place."""
    session = store.create_session()
    with session.turn("go") as turn:
        with turn.stream() as reply:
            seq = session.head
            reply.text("all of it")
        events = Watching(session, seq).look().events()
    assert [(event.kind, event.seq, event.text) for event in events] == [
        ("start", seq, ""),
        ("delta", seq, "all of it"),
        ("end", seq, ""),
    ]


def test_late_text_is_shown_as_late(store: Store) -> None:
    session = store.create_session()
    with session.turn("go") as turn, turn.stream() as reply:
        reply.text("half")
        reply.cut_off("gone")
    live = Watching(session).look()
    count = len(live.seen)
    session.add_late_text(turn.id, reply.id, "half and half")
    events = live.look().events()[count:]
    assert [(event.kind, event.late, event.text) for event in events] == [
        ("start", True, ""),
        ("delta", True, " and half"),
        ("end", True, ""),
    ]


def test_the_face_goes_on_from_its_cursor(store: Store) -> None:
    session = store.create_session()
    with session.turn("go") as turn:
        turn.record(Message("assistant", [Text("There.")]))
    events = session.part_events()
    first = [next(events) for _ in range(4)]
    rest = session.part_events(after=events.cursor)
    assert [event.kind for event in first] == ["start", "delta", "end", "start"]
    assert [next(rest).kind for _ in range(2)] == ["delta", "end"]
    events.close()
    rest.close()
    assert [event.kind for event in events] == ["delta", "end"]  # found before it was closed
