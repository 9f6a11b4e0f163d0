"""What may follow what: each refusal, and what is let through."""

import pytest

from killick.errors import (
    CallNotFound,
    IdConflict,
    InvalidEntry,
    MessageNotFound,
    SessionDeleted,
    StaleFence,
    ToolAlreadyStarted,
    TurnEnded,
)
from killick.journal import rules
from killick.model import entries as e
from killick.model.limits import ID_BYTES_MAX, PARTS_MAX, TITLE_CHARS_MAX
from killick.model.messages import Text, ToolCall, ToolResult
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

CALL = ToolCall("c1", "shell", "{}")


def test_as_many_parts_as_fit_are_let_through() -> None:
    rules.check_content(said(*[Text("x")] * PARTS_MAX))


def test_one_part_too_many_is_refused_with_the_number_that_fits() -> None:
    with pytest.raises(InvalidEntry, match=rf"{PARTS_MAX + 1} parts.*{PARTS_MAX}.*several"):
        rules.check_content(said(*[Text("x")] * (PARTS_MAX + 1)))


def test_the_longest_id_is_let_through() -> None:
    rules.check_id("x" * ID_BYTES_MAX, "key")
    rules.check_id("é" * (ID_BYTES_MAX // 2), "key")


@pytest.mark.parametrize("text", ["x" * (ID_BYTES_MAX + 1), "é" * (ID_BYTES_MAX // 2 + 1)])
def test_an_id_is_measured_in_bytes(text: str) -> None:
    with pytest.raises(InvalidEntry, match="the key is longer than"):
        rules.check_id(text, "key")


def test_an_id_of_surrogates_is_measured_as_it_is_stored() -> None:
    with pytest.raises(InvalidEntry, match="longer than"):
        rules.check_id("\ud800" * 400, "key")


def test_an_empty_id_is_refused() -> None:
    with pytest.raises(InvalidEntry, match="the key is empty"):
        rules.check_id("", "key")


@pytest.mark.parametrize("part", [ToolCall("", "n"), ToolResult("", "x")])
def test_a_part_with_an_empty_call_id_is_refused(part: ToolCall | ToolResult) -> None:
    with pytest.raises(InvalidEntry, match="tool call id is empty"):
        rules.check_content(said(part))


@pytest.mark.parametrize(
    "body",
    [
        e.Renamed(id="x", title="t" * (TITLE_CHARS_MAX + 1)),
        e.SessionCreated(title="t" * (TITLE_CHARS_MAX + 1)),
    ],
)
def test_a_title_that_is_too_long_is_refused(body: e.Body) -> None:
    with pytest.raises(InvalidEntry, match=f"at most {TITLE_CHARS_MAX}"):
        rules.check_content(body)


@pytest.mark.parametrize("key", ["", "k" * (ID_BYTES_MAX + 1)])
def test_a_bad_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidEntry, match="key"):
        rules.check_content(e.TurnStarted(turn_id="t", fence=1, holder="h", key=key))


def test_a_blob_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "BODY_BYTES_MAX", 3)
    rules.check_blob(b"abc")
    with pytest.raises(InvalidEntry, match="4 bytes; at most 3"):
        rules.check_blob(b"abcd")


def test_a_deleted_session_is_refused_and_the_error_says_how_to_restore_it() -> None:
    with pytest.raises(SessionDeleted, match=r"'s'.*restore_session"):
        rules.check_live(session_id="s", deleted=True)
    rules.check_live(session_id="s", deleted=False)


def test_the_holder_of_the_running_turn_has_its_claim() -> None:
    turn = turn_after()
    assert rules.check_claim(turn, turn_id=TURN, fence=1, newest_fence=1) is turn


def test_a_claim_on_an_ended_turn_is_refused() -> None:
    with pytest.raises(TurnEnded, match="start a new turn") as caught:
        rules.check_claim(turn_after(ended()), turn_id=TURN, fence=1, newest_fence=1)
    assert not isinstance(caught.value, StaleFence)


def test_a_claim_when_nothing_runs_is_refused() -> None:
    with pytest.raises(TurnEnded):
        rules.check_claim(None, turn_id=TURN, fence=1, newest_fence=1)


def test_a_claim_with_an_old_fence_is_refused_as_stale() -> None:
    with pytest.raises(StaleFence, match="fence 2"):
        rules.check_claim(turn_after(), turn_id="another", fence=1, newest_fence=2)


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
        rules.admit_late(turn_after(said(CALL)), late())


def test_a_late_result_needs_a_call_of_its_turn() -> None:
    rules.admit_late(turn_after(said(CALL), ended()), late())
    with pytest.raises(CallNotFound):
        rules.admit_late(turn_after(ended()), late())


def test_a_late_text_needs_a_message_of_its_turn() -> None:
    text = e.LateText(turn_id=TURN, message_id="m1", deltas=())
    rules.admit_late(turn_after(opened(), ended()), text)
    with pytest.raises(MessageNotFound):
        rules.admit_late(turn_after(ended()), text)
