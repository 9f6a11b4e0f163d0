"""What one turn's entries amount to."""

from killick.journal.turn_state import TurnState, fold_turn
from killick.model import entries as e
from killick.model.messages import Text, ToolCall, ToolResult
from tests.unit.journal.making import (
    TURN,
    answered,
    begun,
    closed,
    ended,
    entries,
    late,
    opened,
    ran,
    said,
    turn_after,
)

CALL = ToolCall("c1", "shell", "{}")


def tools(turn: TurnState) -> list[str]:
    return [call.call_id for call in turn.open_tools()]


def test_a_turn_begins_with_nothing_open() -> None:
    turn = turn_after()
    assert (turn.open_messages, turn.messages, turn.model_calls) == ({}, {}, {})
    assert (turn.ended, turn.stop, tools(turn)) == (None, None, [])


def test_a_message_is_open_from_its_start_to_its_end() -> None:
    turn = turn_after(opened())
    assert turn.open_messages == {"m1": 2}
    turn.apply(3, closed(Text("x")))
    assert turn.open_messages == {}
    assert turn.messages == {"m1": 2}


def test_a_call_in_a_recorded_message_is_a_call() -> None:
    call = turn_after(said(CALL)).find_call("c1")
    assert call is not None
    assert (call.message_id, call.name, call.started_seq, call.answered) == (
        "m1",
        "shell",
        None,
        False,
    )


def test_a_call_cut_off_in_its_arguments_is_no_call() -> None:
    turn = turn_after(opened(), closed(ToolCall("c1", "shell", '{"a'), state="partial"))
    assert turn.find_call("c1") is None


def test_a_whole_call_in_a_partial_message_is_a_call() -> None:
    turn = turn_after(opened(), closed(CALL, state="partial"))
    assert turn.find_call("c1") is not None


def test_a_custom_tool_s_free_text_in_a_complete_message_is_a_call() -> None:
    turn = turn_after(opened(), closed(ToolCall("c1", "edit", "not json", "custom")))
    assert turn.find_call("c1") is not None


def test_a_call_that_was_sealed_in_a_stream_is_a_call_before_the_message_ends() -> None:
    sealed = e.ToolCalled(turn_id=TURN, message_id="m1", call_id="c1", name="shell")
    call = turn_after(opened(), sealed).find_call("c1")
    assert call is not None
    assert call.message_id == "m1"


def test_the_end_of_a_message_does_not_make_a_sealed_and_started_call_anew() -> None:
    sealed = e.ToolCalled(turn_id=TURN, message_id="m1", call_id="c1", name="shell")
    call = turn_after(opened(), sealed, ran(), closed(CALL)).find_call("c1")
    assert call is not None
    assert call.started_seq == 4


def test_of_two_calls_with_one_id_the_newest_is_meant() -> None:
    turn = turn_after(said(CALL), said(CALL, id="m2"))
    call = turn.find_call("c1")
    assert call is not None
    assert call.message_id == "m2"
    older = turn.find_call("c1", "m1")
    assert older is not None
    assert older.message_id == "m1"


def test_a_tool_is_open_from_its_start_to_its_result() -> None:
    turn = turn_after(said(CALL), ran())
    assert tools(turn) == ["c1"]
    turn.apply(4, answered())
    assert tools(turn) == []


def test_a_tool_that_was_left_is_not_open_and_not_answered() -> None:
    output = e.ToolOutput(turn_id=TURN, message_id="m1", call_id="c1", output="…")
    turn = turn_after(said(CALL), ran(), output)
    call = turn.find_call("c1")
    assert tools(turn) == []
    assert call is not None
    assert not call.answered


def test_a_result_inside_a_recorded_message_answers_its_call() -> None:
    turn = turn_after(said(CALL), said(ToolResult("c1", "done"), id="m2"))
    call = turn.find_call("c1")
    assert call is not None
    assert call.answered


def test_a_late_result_answers_its_call() -> None:
    call = turn_after(said(CALL), ran(), ended(), late()).find_call("c1")
    assert call is not None
    assert call.answered


def test_a_model_call_is_open_until_it_ends() -> None:
    begun = e.ModelCallStarted(id="x", turn_id=TURN)
    assert turn_after(begun).model_calls == {"x": begun}
    assert turn_after(begun, e.ModelCallEnded(id="x", turn_id=TURN)).model_calls == {}


def test_the_first_request_to_stop_is_the_one_that_counts() -> None:
    first, second = (e.StopAsked(id=i, turn_id=TURN, reason=i) for i in "ab")
    assert turn_after(first, second).stop == first


def test_an_ending_closes_what_was_open() -> None:
    turn = turn_after(opened(), e.ModelCallStarted(id="x", turn_id=TURN), ended("failed", "why"))
    assert turn.ended == ended("failed", "why")
    assert (turn.open_messages, turn.model_calls) == ({}, {})


def test_entries_of_another_turn_change_nothing() -> None:
    other = e.MessageStarted(id="m9", turn_id="another")
    turn = turn_after(other, e.TurnEnding(turn_id="another", status="completed"))
    assert (turn.messages, turn.ended) == ({}, None)


def test_a_fold_finds_the_first_turn_in_a_journal() -> None:
    journal = entries(e.SessionCreated(), begun(), said(), ended())
    turn = fold_turn(journal)
    assert turn is not None
    assert (turn.id, turn.seq, turn.messages) == (TURN, 2, {"m1": 3})
    assert turn.ended is not None


def test_a_journal_without_a_turn_folds_to_none() -> None:
    assert fold_turn(entries(e.SessionCreated())) is None


def test_a_question_waits_until_it_is_decided() -> None:
    asked = e.ApprovalAsked(
        id="a", turn_id=TURN, message_id="m1", call_id="c1", arguments_hash="b2:0"
    )
    decided = e.ApprovalDecided(id="a", turn_id=TURN, approved=True, arguments_hash="b2:0")
    assert turn_after(said(), asked).waiting == {"a"}
    assert turn_after(said(), asked, decided).waiting == set()
