"""What a stream tells of its calls, how it is cut off, and where its parts end."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from killick import HandleClosed, Message, Reasoning, Session, Store, Text, ToolCall, TurnStopped
from killick.model import entries as e
from killick.stores import engine as ops
from killick.stores.engine.state import Op


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Store(tmp_path / "work.db") as store:
        yield store.create_session()


def test_a_call_is_told_when_it_is_whole_and_once(session: Session) -> None:
    told: list[ToolCall] = []
    with session.turn("go") as turn, turn.stream() as reply:
        reply.on_call(told.append)
        reply.tool_call("a", name="shell", arguments='{"x"')
        assert told == []
        reply.tool_call("a", arguments=": 1}")
        reply.tool_call("a", arguments=" ")
        reply.tool_call("b", name="patch", arguments="text", tool_type="custom", done=True)
        assert reply.tool_calls == told
    assert told == [ToolCall("a", "shell", '{"x": 1}'), ToolCall("b", "patch", "text", "custom")]


def test_calls_that_are_whole_are_told_to_whoever_asks_later(session: Session) -> None:
    told: list[ToolCall] = []
    with session.turn("go") as turn:
        with turn.stream() as reply:
            reply.tool_call("a", name="shell", arguments="{}")
        reply.on_call(told.append)
    assert [call.id for call in told] == ["a"]


@pytest.mark.parametrize(("cut", "expected"), [(False, ["a"]), (True, [])])
def test_a_complete_message_makes_its_calls_whole(
    session: Session, cut: bool, expected: list[str]
) -> None:
    with session.turn("go") as turn:
        with turn.stream() as reply:
            reply.tool_call("a", name="shell", arguments="{not json")
            if cut:
                reply.cut_off("lost")
            assert reply.tool_calls == []
        assert [call.id for call in reply.tool_calls] == expected


def test_an_answer_that_is_cut_off_is_partial_and_the_call_says_why(session: Session) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        reply.text("Half of ")
        reply.cut_off("the provider went away")
    message = session.messages()[-1]
    assert (message.text, message.state) == ("Half of ", "partial")
    ended = next(x.body for x in session.entries() if isinstance(x.body, e.ModelCallEnded))
    assert ended.error == "the provider went away"
    assert session.turns()[0].status == "completed"


def test_what_follows_the_end_of_a_part_is_another_one(session: Session) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        reply.text("a")
        reply.text("b")
        reply.end_part()
        reply.text("c")
        reply.reasoning("d")
        reply.end_part()
        reply.end_part()
        reply.reasoning("e")
    parts = list(session.messages()[-1].parts)
    assert parts == [Text("ab"), Text("c"), Reasoning("d"), Reasoning("e")]
    with pytest.raises(HandleClosed):
        reply.end_part()


def test_a_turn_keeps_blobs(session: Session) -> None:
    with session.turn("go") as turn:
        name = turn.put_blob(b"bytes")
        assert turn.put_blob(b"bytes") == name


def test_a_stream_that_is_made_before_its_turn_is_entered_is_one_of_that_turn(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        turn = session.turn("go")
        reply = turn.stream()
        with turn, reply:
            reply.text("said")
        assert [one.status for one in session.turns()] == ["completed"]
        bodies = [one.body for one in session.entries()]
        assert {body.turn_id for body in bodies if isinstance(body, e.ModelCallEnded)} == {turn.id}
        assert store.examine_session(session.id) == []


def test_what_has_ended_in_another_way_already_keeps_no_turn_from_its_ending(
    tmp_path: Path,
) -> None:
    """As an earlier version left it behind: the end of a model call that names no turn."""
    with Store(tmp_path / "work.db") as store:
        session = store.create_session()
        core = session._core
        with session.turn("go") as turn:
            stream = turn.stream().__enter__()
            body = e.ModelCallEnded(id=stream.model_call_id, turn_id="")
            op = Op(lambda engine: ops.about(engine, core.key, body, 1))
            core.runtime().writer.submit(op).wait()
            op.result()
            stream.text("kept")
        assert [one.status for one in session.turns()] == ["completed"]
        assert session.messages()[-1].text == "kept"


def test_a_stop_that_was_told_of_ends_the_turn_whoever_caught_it(session: Session) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        reply.text("Once ")
        session.stop(reason="enough")
        with pytest.raises(TurnStopped):
            reply.text("upon a time")
    (info,) = session.turns()
    assert (info.status, info.reason) == (turn.status, turn.reason) == ("interrupted", "enough")
    message = session.messages()[-1]
    assert (message.state, message.text) == ("partial", "Once ")


def test_a_turn_that_nobody_has_told_of_the_stop_is_completed(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(Message("assistant", [Text("Yes.")]))
        session.stop()
    assert [info.status for info in session.turns()] == ["completed"]


def ended_calls(session: Session) -> list[e.ModelCallEnded]:
    bodies = [entry.body for entry in session.entries()]
    return [body for body in bodies if isinstance(body, e.ModelCallEnded)]


@pytest.mark.parametrize("broken", [False, True])
def test_the_end_of_a_call_says_when_its_first_piece_came(tmp_path: Path, broken: bool) -> None:
    now = [1_000]
    with Store(tmp_path / "work.db", clock=lambda: now[0]) as store:
        session = store.create_session()
        with contextlib.suppress(KeyboardInterrupt), session.turn("go") as turn:
            with turn.stream():
                pass
            with turn.stream() as reply:
                now[0] = 2_000
                reply.reasoning("Hm. ")
                now[0] = 3_000
                reply.text("Yes.")
                now[0] = 4_000
                if broken:
                    raise KeyboardInterrupt
        assert [call.first_at_us for call in ended_calls(session)] == [None, 2_000]
