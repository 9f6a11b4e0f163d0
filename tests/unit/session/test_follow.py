"""A session as it happens: what was shown always makes the text, without gap or repeat."""

import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from killick import FollowedDelta, Session, Store
from killick.journal.assembly import assemble
from killick.model.entries import Entry
from killick.model.messages import Message, Opaque, Part, Reasoning, Text, ToolCall
from killick.session.follow import Followed, FollowedItem, Follower


def poll(session: Session, follower: Follower) -> list[Followed]:
    seen: list[FollowedItem] = session._core.runtime().read(follower.poll)
    return [one.item for one in seen]


def seqs(shown: list[Followed]) -> list[int]:
    return [item.seq for item in shown if isinstance(item, Entry)]


def parts_shown(shown: list[Followed], message_id: str) -> tuple[Part, ...]:
    return assemble(
        item.delta
        for item in shown
        if isinstance(item, FollowedDelta) and item.message_id == message_id
    )


def output_shown(shown: list[Followed]) -> str:
    return "".join(item.text for item in shown if isinstance(item, FollowedDelta) and item.call_id)


def flush(store: Store) -> None:
    """Wait until what was handed over is on the disk."""
    pause = threading.Event()
    before = store.counts()["deltas"]
    for _ in range(20):
        if store.counts()["deltas"] > before:
            return
        pause.wait(0.001)


def flushed(store: Store) -> None:
    """Wait until something that was handed over is on the disk."""
    pause = threading.Event()
    for _ in range(10_000):
        if store.counts()["deltas"]:
            return
        pause.wait(0.001)
    raise AssertionError("nothing was written")


def test_a_follower_shows_every_entry_once_and_in_order(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        follower = Follower(session._core.key, 0)
        shown = poll(session, follower)
        with session.turn("go"):
            shown += poll(session, follower)
        shown += poll(session, follower)
        assert seqs(shown) == list(range(1, session.head + 1))
        assert poll(session, follower) == []
        assert follower.live


def test_a_follower_begins_after_the_seq_it_was_given(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        session.note("a")
        session.note("b")
        assert seqs(poll(session, Follower(session._core.key, 2))) == [3]


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_the_deltas_shown_make_the_message_wherever_the_polls_fall(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("store") / "work.db"
    with Store(path, window_seconds=0.001, durability="normal") as store:
        session = store.create_session()
        follower = Follower(session._core.key, 0)
        shown: list[Followed] = []
        with session.turn("go") as turn, turn.stream() as reply:
            for step in data.draw(st.lists(st.sampled_from("trcopf"), max_size=10)):
                match step:
                    case "t":
                        reply.text("text ")
                    case "r":
                        reply.reasoning("thought", signature="s")
                    case "c":
                        reply.tool_call("c1", name="n", arguments=" ")
                    case "o":
                        reply.part(Opaque("p", b"x"))
                    case "p":
                        shown += poll(session, follower)
                    case _:
                        flush(store)
        shown += poll(session, follower)
        stored = session.messages()[-1].parts
        seen = parts_shown(shown, reply.id)
        assert seen in (stored, ())
        assert seqs(shown) == list(range(1, session.head + 1))


def test_the_output_shown_makes_the_whole_output(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db", window_seconds=0.001) as store:
        session = store.create_session()
        follower = Follower(session._core.key, 0)
        shown: list[Followed] = []
        with session.turn("go") as turn:
            turn.record(Message(role="assistant", parts=[ToolCall("c1", "shell", "{}")]))
            with turn.tool("c1") as call:
                call.output("one ")
                flushed(store)
                shown += poll(session, follower)
                call.output("two")
                call.finish("done")
        shown += poll(session, follower)
        assert output_shown(shown) == "one two"


def test_a_follower_that_begins_in_the_middle_of_a_stream_sees_all_of_its_text(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "work.db", window_seconds=0.001) as store:
        session = store.create_session()
        with session.turn("go") as turn, turn.stream() as reply:
            reply.text("so ")
            flushed(store)
            follower = Follower(session._core.key, session.head)
            shown = poll(session, follower)
            reply.text("far")
        shown += poll(session, follower)
        assert parts_shown(shown, reply.id) == (Text("so far"),)


def test_reasoning_and_its_signature_are_shown_once(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db", window_seconds=0.001) as store:
        session = store.create_session()
        follower = Follower(session._core.key, 0)
        with session.turn("go") as turn, turn.stream() as reply:
            reply.reasoning("a")
            flushed(store)
            shown = poll(session, follower)
            reply.reasoning("b", signature="sig")
        shown += poll(session, follower)
        assert parts_shown(shown, reply.id) == (Reasoning("ab", signature="sig"),)


def test_a_follower_that_goes_away_stops_nothing(tmp_path: Path) -> None:
    """A dropped connection is not Stop."""
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        with session.turn("go") as turn:
            following = session.follow()
            next(following)
            following.close()
            turn.record(Message("assistant", [Text("it goes on")]))
        assert turn.status == "completed"
        assert "stop_asked" not in [entry.kind for entry in session.entries()]
