"""How a turn is closed: what is kept of what was open, and what nothing may claim."""

from collections.abc import Sequence

import msgspec
import pytest

from killick.journal.closing import closing, keeps_waiting, open_streams
from killick.model import entries as e
from killick.model.entries import Delta
from killick.model.messages import Text, ToolCall
from tests.unit.journal.making import (
    TURN,
    answered,
    closed,
    ended,
    no_deltas,
    opened,
    ran,
    said,
    turn_after,
)

CALL = ToolCall("c1", "shell", "{}")
INTERRUPTED = ended("interrupted", "crashed")


def deltas(seq: int) -> Sequence[Delta]:
    """The stream at seq 2 has text, every later one is a tool that has printed."""
    return {2: [Delta(0, 0, "text", "so f"), Delta(0, 4, "text", "ar")]}.get(
        seq, [Delta(0, 0, "output", "compiling")]
    )


def test_a_turn_with_nothing_open_gets_its_ending_alone() -> None:
    assert closing(turn_after(said()), INTERRUPTED, deltas) == [INTERRUPTED]


def test_a_message_that_streams_becomes_partial_with_what_came() -> None:
    made = closing(turn_after(opened()), INTERRUPTED, deltas)
    assert made == [closed(Text("so far"), state="partial"), INTERRUPTED]


def test_a_partial_with_nothing_in_it_leaves_the_ending_alone() -> None:
    assert closing(turn_after(opened()), INTERRUPTED, no_deltas) == [INTERRUPTED]


def test_a_message_that_has_ended_is_not_closed_again() -> None:
    turn = turn_after(opened(), closed(Text("x")))
    assert closing(turn, INTERRUPTED, deltas) == [INTERRUPTED]


def test_an_unfinished_tool_keeps_its_output_and_gets_no_result() -> None:
    made = closing(turn_after(said(CALL), ran()), INTERRUPTED, deltas)
    output = e.ToolOutput(turn_id=TURN, message_id="m1", call_id="c1", output="compiling")
    assert made == [output, INTERRUPTED]


def test_an_unfinished_tool_that_printed_nothing_adds_nothing() -> None:
    turn = turn_after(said(CALL), ran())
    assert closing(turn, INTERRUPTED, no_deltas) == [INTERRUPTED]


def test_a_finished_tool_and_a_call_never_started_add_nothing() -> None:
    other = ToolCall("c2", "shell", "{}")
    turn = turn_after(said(CALL, other), ran(), answered())
    assert closing(turn, INTERRUPTED, deltas) == [INTERRUPTED]


def test_a_tool_that_was_left_before_is_not_written_twice() -> None:
    left = e.ToolOutput(turn_id=TURN, message_id="m1", call_id="c1", output="x")
    turn = turn_after(said(CALL), ran(), left)
    assert closing(turn, INTERRUPTED, deltas) == [INTERRUPTED]


def test_an_open_model_call_is_ended_with_the_turn_s_reason() -> None:
    turn = turn_after(e.ModelCallStarted(id="x", turn_id=TURN))
    call = e.ModelCallEnded(id="x", turn_id=TURN, error="crashed")
    assert closing(turn, INTERRUPTED, deltas) == [call, INTERRUPTED]


def test_the_ending_comes_last_whatever_is_open() -> None:
    turn = turn_after(opened(), ran_in_stream(), ran(), e.ModelCallStarted(id="x", turn_id=TURN))
    made = closing(turn, INTERRUPTED, deltas)
    assert made[-1] == INTERRUPTED
    assert sum(isinstance(body, e.TurnEnding) for body in made) == 1


@pytest.mark.parametrize(("cause", "waits"), [("stopped", False), ("shut_down", True)])
def test_a_turn_that_was_stopped_and_then_crashed_waits_no_more(cause: str, *, waits: bool) -> None:
    asked = e.ApprovalAsked(
        id="a", turn_id=TURN, message_id="m1", call_id="c1", arguments_hash="b2:x"
    )
    stop = e.StopAsked(id="s", turn_id=TURN, reason="enough", cause=cause)
    crashed = msgspec.structs.replace(INTERRUPTED, cause="crashed")
    [ending] = closing(turn_after(said(CALL), asked, stop), crashed, deltas)
    assert isinstance(ending, e.TurnEnding)
    assert keeps_waiting(ending) is waits
    assert ending.detail == "crashed"
    if not waits:
        assert (ending.cause, ending.reason) == ("stopped", "enough")


def test_the_open_streams_are_open_messages_and_running_tools() -> None:
    turn = turn_after(opened(), ran_in_stream(), ran(), opened("m2"))
    assert open_streams(turn) == [2, 5, 4]


def ran_in_stream() -> e.ToolCalled:
    return e.ToolCalled(turn_id=TURN, message_id="m1", call_id="c1", name="shell")
