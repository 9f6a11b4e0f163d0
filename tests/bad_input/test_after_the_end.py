"""Writes after the end, and deltas to what is closed."""

# ruff: noqa: PT012  (the block that an exception leaves is what is tested)

from collections.abc import Callable
from pathlib import Path

import pytest

from killick import (
    HandleClosed,
    Opaque,
    Session,
    Store,
    Stream,
    ToolNotFinished,
    TurnEnded,
    TurnStopped,
    UsageError,
)
from killick.stores.memory import MemoryDisk
from tests.bad_input.helpers import calling, is_usable, nothing_stored, saying, texts, until


def test_nothing_is_written_in_a_turn_that_has_ended(store: Store, session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
    with nothing_stored(session, store):
        with pytest.raises(TurnEnded, match="has ended; start a new turn"):
            turn.record(saying("x"))
        with pytest.raises(TurnEnded), turn.stream():
            pass
        with pytest.raises(TurnEnded), turn.tool("c1"):
            pass
        with pytest.raises(TurnEnded):
            turn.ask_approval("c1", "{}")


def test_a_turn_that_was_never_entered_takes_nothing(store: Store, session: Session) -> None:
    turn = session.turn("go")
    with nothing_stored(session, store), pytest.raises(UsageError, match="has not begun"):
        turn.record(saying("x"))


def test_leaving_a_turn_twice_ends_it_once(session: Session) -> None:
    with session.turn("go") as turn:
        pass
    with nothing_stored(session):
        turn.__exit__(None, None, None)


def test_entering_a_turn_that_has_ended_does_not_run_it_again(session: Session) -> None:
    with session.turn("go") as turn:
        first = turn.id
    with turn:
        assert turn.id != first
    assert [one.status for one in session.turns()] == ["completed", "completed"]


def test_a_turn_that_was_stopped_can_be_entered_again_as_another(session: Session) -> None:
    turn = session.turn("go")
    with pytest.raises(TurnStopped), turn:
        session.stop()
        turn.record(saying("too late"))
    with turn:
        assert (turn.status, turn.stop_asked) == ("running", None)
        turn.record(saying("in time"))
    assert [one.status for one in session.turns()] == ["interrupted", "completed"]


@pytest.mark.parametrize("nested", [False, True], ids=["afterwards", "inside"])
def test_a_stream_is_entered_once(session: Session, nested: bool) -> None:
    with session.turn("go") as turn:
        reply = turn.stream()
        with reply:
            reply.text("one")
            if nested:
                with nothing_stored(session), pytest.raises(HandleClosed, match="entered once"):
                    reply.__enter__()
            reply.text(" two")
        with nothing_stored(session), pytest.raises(HandleClosed, match="entered once"):
            reply.__enter__()
    assert session.messages()[-1].text == "one two"


def text(reply: Stream) -> None:
    reply.text("late")


def reasoning(reply: Stream) -> None:
    reply.reasoning("late")


def tool_call(reply: Stream) -> None:
    reply.tool_call("c", name="n", arguments="{}")


def part(reply: Stream) -> None:
    reply.part(Opaque("p", b"x"))


def finish(reply: Stream) -> None:
    reply.finish(finish_reason="stop")


def cut_off(reply: Stream) -> None:
    reply.cut_off("too long")


@pytest.mark.parametrize("hand_over", [text, reasoning, tool_call, part, finish, cut_off])
def test_a_delta_to_a_closed_stream_is_refused(
    session: Session, hand_over: Callable[[Stream], None]
) -> None:
    with session.turn("go") as turn:
        with turn.stream() as reply:
            reply.text("in time")
        with nothing_stored(session), pytest.raises(HandleClosed, match="inside its block"):
            hand_over(reply)
    assert texts(session)[-1] == "in time"


def test_a_delta_before_the_stream_is_entered_is_refused(session: Session) -> None:
    with session.turn("go") as turn, pytest.raises(HandleClosed):
        turn.stream().text("early")


def test_a_stream_whose_turn_was_ended_by_another_is_told_and_its_text_is_kept(
    path: Path, session: Session
) -> None:
    with pytest.raises(TurnEnded), session.turn("go") as turn, turn.stream() as reply:
        reply.text("before")
        with Store(path) as other, other.session("s").turn("mine", if_busy="take_over"):
            pass
        until(lambda: session.turns()[-1].status == "completed")
    assert texts(session) == ["go", "before", "mine"]
    assert session.turns()[0].reason == "taken_over"


def test_output_after_finish_is_refused(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            call.finish("done")
            with nothing_stored(session), pytest.raises(HandleClosed, match=r"before finish\(\)"):
                call.output("more")


def test_a_tool_block_left_without_finish_is_a_usage_error_and_its_outcome_unknown(
    session: Session,
) -> None:
    with pytest.raises(ToolNotFinished, match="recorded as unknown"), session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            call.output("so far")
    assert session.turns()[-1].status == "failed"
    assert [message.role for message in session.messages()] == ["user", "assistant"]
    assert [e.kind for e in session.entries()][-2:] == ["tool_output", "turn_ended"]


def test_a_closed_store_refuses_and_says_what_to_do(path: Path) -> None:
    store = Store(path)
    session = store.create_session(id="s")
    store.close()
    with pytest.raises(HandleClosed, match="open it again"):
        store.create_session()
    with pytest.raises(HandleClosed, match="open it again"):
        session.entries()
    with pytest.raises(HandleClosed), session.turn("go"):
        pass
    store.close()


def test_closing_the_store_in_a_turn_ends_the_turn_and_refuses_the_rest(path: Path) -> None:
    store = Store(path)
    session = store.create_session(id="s")
    with pytest.raises((TurnEnded, HandleClosed)), session.turn("go") as turn:
        store.close()
        turn.record(saying("x"))
    with Store(path) as again:
        reopened = again.session("s")
        (ended,) = reopened.turns()
        assert (ended.status, ended.reason) == ("interrupted", "store_closed")
        assert is_usable(reopened)


def test_a_stop_for_a_turn_that_is_over_does_not_stop_the_next(session: Session) -> None:
    with session.turn("first") as first:
        pass
    with nothing_stored(session):
        assert session.stop(first.id) is None
    with session.turn("second") as second:
        assert session.stop(first.id) is None
        second.record(saying("it goes on"))
    assert second.status == "completed"
    assert "stop_asked" not in [entry.kind for entry in session.entries()]


def test_a_turn_whose_store_was_closed_is_left_quietly() -> None:
    """Closing has ended it as interrupted; the block that is left has nothing more to write."""
    disk = MemoryDisk()
    store = Store(disk.open())
    session = store.create_session()
    with session.turn("go"):
        store.close()
    with Store(disk.open()) as again:
        (turn,) = again.session(session.id).turns()
        assert (turn.status, turn.cause) == ("interrupted", "terminated")
