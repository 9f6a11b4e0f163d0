"""What may follow what: each refusal, and what is let through."""

import pytest

from killick.errors import (
    CallNotFound,
    IdConflict,
    InvalidEntry,
    KillickError,
    MessageNotFound,
    ToolAlreadyStarted,
)
from killick.journal import rules
from killick.journal.kinds import KINDS
from killick.journal.turn_state import TurnState
from killick.model import entries as e
from killick.model.messages import ToolCall, ToolResult
from tests.unit.journal.making import (
    TURN,
    answered,
    closed,
    ended,
    late,
    opened,
    ran,
    said,
    turn_after,
)
from tests.unit.journal.test_kinds import STORED

CALL = ToolCall("c1", "shell", "{}")


def test_a_result_for_a_call_never_made_is_refused() -> None:
    with pytest.raises(CallNotFound, match="'c1'"):
        rules.admit(turn_after(), answered())


def test_a_result_for_a_call_cut_off_in_its_arguments_is_refused() -> None:
    turn = turn_after(opened(), closed(ToolCall("c1", "n", '{"'), state="partial"))
    with pytest.raises(CallNotFound, match="cut off"):
        rules.admit(turn, answered())


def test_a_start_of_a_call_never_made_is_refused() -> None:
    with pytest.raises(CallNotFound):
        rules.admit(turn_after(said()), ran())


def test_a_start_of_a_call_in_another_message_is_refused() -> None:
    with pytest.raises(CallNotFound):
        rules.admit(turn_after(said(CALL)), ran("c1", "m2"))


@pytest.mark.parametrize("before", [[ran()], [answered()], [ran(), answered()]])
def test_a_call_is_never_started_twice(before: list[e.Body]) -> None:
    with pytest.raises(ToolAlreadyStarted, match="let the model call it again"):
        rules.admit(turn_after(said(CALL), *before), ran())


def test_a_call_that_was_made_may_start() -> None:
    rules.admit(turn_after(said(CALL)), ran())


def test_the_end_of_a_message_that_never_started_is_refused() -> None:
    with pytest.raises(MessageNotFound, match="'m1' was never started"):
        rules.admit(turn_after(), closed())


def test_the_sealing_of_a_call_in_an_unknown_message_is_refused() -> None:
    sealed = e.ToolCalled(turn_id=TURN, message_id="m1", call_id="c1", name="n")
    with pytest.raises(MessageNotFound):
        rules.admit(turn_after(), sealed)


def test_the_end_of_a_model_call_that_is_not_open_is_refused() -> None:
    with pytest.raises(InvalidEntry, match="'x' is not open"):
        rules.admit(turn_after(), e.ModelCallEnded(id="x", turn_id=TURN))


def test_a_recorded_result_needs_its_call() -> None:
    with pytest.raises(CallNotFound):
        rules.admit(turn_after(), said(ToolResult("c1", "x")))


def test_a_recorded_result_may_come_with_its_call() -> None:
    rules.admit(turn_after(), said(CALL, ToolResult("c1", "x")))


def test_a_second_recorded_result_for_one_call_is_refused() -> None:
    turn = turn_after(said(CALL), answered())
    with pytest.raises(IdConflict, match="has its result already"):
        rules.admit(turn, said(ToolResult("c1", "x"), id="m2"))


def test_two_results_for_one_call_in_one_message_are_refused() -> None:
    with pytest.raises(IdConflict):
        rules.admit(
            turn_after(said(CALL)), said(ToolResult("c1", "x"), ToolResult("c1", "y"), id="m2")
        )


def test_nothing_of_a_running_turn_is_late() -> None:
    with pytest.raises(InvalidEntry, match="still running"):
        rules.admit(turn_after(said(CALL)), late())


def test_a_late_result_needs_a_call_of_its_turn() -> None:
    rules.admit(turn_after(said(CALL), ended()), late())
    with pytest.raises(CallNotFound):
        rules.admit(turn_after(ended()), late())


def test_a_late_text_needs_a_message_of_its_turn() -> None:
    text = e.LateText(turn_id=TURN, message_id="m1", deltas=())
    rules.admit(turn_after(opened(), ended()), text)
    with pytest.raises(MessageNotFound):
        rules.admit(turn_after(ended()), text)


def test_every_kind_has_a_rule() -> None:
    assert set(rules.ORDER) == set(KINDS)


@pytest.mark.parametrize("body", [body for body, *_ in STORED])
@pytest.mark.parametrize("turn", [turn_after(), turn_after(ended())])
def test_what_the_table_refuses_is_refused(turn: TurnState, body: e.Body) -> None:
    rule = rules.ORDER[type(body)]
    step = rule.running if turn.ended is None else rule.over
    if not isinstance(step, str):
        with pytest.raises(step):
            rules.admit(turn, body)
    elif rule.needs is None:
        rules.admit(turn, body)
    else:
        with pytest.raises(KillickError):
            rules.admit(turn, body)


def test_a_turn_that_did_not_complete_needs_a_reason() -> None:
    with pytest.raises(InvalidEntry, match="ended as failed without a reason"):
        rules.admit(turn_after(), ended("failed"))
    rules.admit(turn_after(), ended("failed", "broken"))
    rules.admit(turn_after(), ended())


def test_a_call_of_an_ended_turn_starts_in_a_turn_that_continues_it() -> None:
    over = turn_after(said(CALL), ended())
    rules.admit(over, ran(), TurnState(9, following(continues=TURN)))
    for running in (None, TurnState(9, following(continues=None))):
        with pytest.raises(InvalidEntry, match="continues that one"):
            rules.admit(over, ran(), running)
    with pytest.raises(InvalidEntry, match="continues that one"):
        rules.admit(turn_after(said(CALL)), ran(), TurnState(9, following(continues=TURN)))


def following(continues: str | None) -> e.TurnStarted:
    return e.TurnStarted(turn_id="turn_2", fence=2, holder="here", continues=continues)
