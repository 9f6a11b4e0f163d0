"""Content checks, the claim and a deleted session: each refusal, and what is let through."""

import pytest

from killick.errors import (
    InvalidEntry,
    SessionDeleted,
    StaleFence,
    TurnEnded,
)
from killick.journal import checks
from killick.model import entries as e
from killick.model.limits import ID_BYTES_MAX, PARTS_MAX, TITLE_CHARS_MAX
from killick.model.messages import Text, ToolCall, ToolResult
from tests.unit.journal.making import (
    TURN,
    ended,
    said,
    turn_after,
)


def test_as_many_parts_as_fit_are_let_through() -> None:
    checks.check_content(said(*[Text("x")] * PARTS_MAX))


def test_one_part_too_many_is_refused_with_the_number_that_fits() -> None:
    with pytest.raises(InvalidEntry, match=rf"{PARTS_MAX + 1} parts.*{PARTS_MAX}.*several"):
        checks.check_content(said(*[Text("x")] * (PARTS_MAX + 1)))


def test_the_longest_id_is_let_through() -> None:
    checks.check_id("x" * ID_BYTES_MAX, "key")
    checks.check_id("é" * (ID_BYTES_MAX // 2), "key")


@pytest.mark.parametrize("text", ["x" * (ID_BYTES_MAX + 1), "é" * (ID_BYTES_MAX // 2 + 1)])
def test_an_id_is_measured_in_bytes(text: str) -> None:
    with pytest.raises(InvalidEntry, match="the key is longer than"):
        checks.check_id(text, "key")


def test_an_id_of_surrogates_is_measured_as_it_is_stored() -> None:
    with pytest.raises(InvalidEntry, match="longer than"):
        checks.check_id("\ud800" * 400, "key")


def test_an_empty_id_is_refused() -> None:
    with pytest.raises(InvalidEntry, match="the key is empty"):
        checks.check_id("", "key")


@pytest.mark.parametrize("part", [ToolCall("", "n"), ToolResult("", "x")])
def test_a_part_with_an_empty_call_id_is_refused(part: ToolCall | ToolResult) -> None:
    with pytest.raises(InvalidEntry, match="tool call id is empty"):
        checks.check_content(said(part))


@pytest.mark.parametrize(
    "body",
    [
        e.Renamed(id="x", title="t" * (TITLE_CHARS_MAX + 1)),
        e.SessionCreated(title="t" * (TITLE_CHARS_MAX + 1)),
    ],
)
def test_a_title_that_is_too_long_is_refused(body: e.Body) -> None:
    with pytest.raises(InvalidEntry, match=f"at most {TITLE_CHARS_MAX}"):
        checks.check_content(body)


@pytest.mark.parametrize("key", ["", "k" * (ID_BYTES_MAX + 1)])
def test_a_bad_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidEntry, match="key"):
        checks.check_content(e.TurnStarted(turn_id="t", fence=1, holder="h", key=key))


def test_a_blob_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "BODY_BYTES_MAX", 3)
    checks.check_blob(b"abc")
    with pytest.raises(InvalidEntry, match="4 bytes; at most 3"):
        checks.check_blob(b"abcd")


def test_a_deleted_session_is_refused_and_the_error_says_how_to_restore_it() -> None:
    with pytest.raises(SessionDeleted, match=r"'s'.*restore_session"):
        raise checks.session_deleted("s")


def test_the_holder_of_the_running_turn_has_its_claim() -> None:
    turn = turn_after()
    assert checks.check_claim(turn, turn_id=TURN, fence=1, newest_fence=1) is turn


def test_a_claim_on_an_ended_turn_is_refused() -> None:
    with pytest.raises(TurnEnded, match="start a new turn") as caught:
        checks.check_claim(turn_after(ended()), turn_id=TURN, fence=1, newest_fence=1)
    assert not isinstance(caught.value, StaleFence)


def test_a_claim_when_nothing_runs_is_refused() -> None:
    with pytest.raises(TurnEnded):
        checks.check_claim(None, turn_id=TURN, fence=1, newest_fence=1)


def test_a_claim_with_an_old_fence_is_refused_as_stale() -> None:
    with pytest.raises(StaleFence, match="fence 2"):
        checks.check_claim(turn_after(), turn_id="another", fence=1, newest_fence=2)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_does_not_have_is_refused_and_no_other(value: float) -> None:
    checks.check_json({"a": [1.5, -0.0, 1e300]}, "note")
    with pytest.raises(InvalidEntry, match="which JSON does not have"):
        checks.check_json({"a": [1.5, value]}, "note")


@pytest.mark.parametrize(
    "body",
    [
        e.Note(id="n", name="n", data={"a": float("nan")}),
        e.Imported(id="i", source="s", origin="o", report={"a": float("nan")}),
    ],
    ids=["note", "import"],
)
def test_data_of_every_kind_of_entry_is_looked_at(body: e.Body) -> None:
    with pytest.raises(InvalidEntry, match="which JSON does not have"):
        checks.check_content(body)
