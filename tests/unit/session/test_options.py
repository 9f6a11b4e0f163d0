"""Keyword arguments to what they mean."""

import pytest

from killick.errors import InvalidEntry
from killick.model import entries as e
from killick.session.options import decision, model_call, session_created, turn_options


def test_a_session_begins_as_a_user_s_without_a_title() -> None:
    assert session_created({}) == (None, e.SessionCreated())


def test_a_title_given_at_the_beginning_is_a_person_s() -> None:
    assert session_created({"title": "T"})[1].titled_by == "person"
    assert session_created({"title": "T", "titled_by": "model"})[1].titled_by == "model"


def test_without_a_title_nobody_gave_one() -> None:
    assert session_created({"titled_by": "model"})[1].titled_by is None


def test_a_turn_refuses_to_wait_unless_told() -> None:
    options = turn_options({})
    assert (options.if_busy, options.key, options.wait_seconds) == ("refuse", None, None)


def test_an_empty_key_is_refused_before_anything_begins() -> None:
    with pytest.raises(InvalidEntry, match="key is empty"):
        turn_options({"key": ""})


def test_a_model_call_is_a_first_attempt_unless_told() -> None:
    call = model_call({})
    assert (call.attempt, call.retry_of, call.role, call.settings) == (1, None, "assistant", {})


def test_a_decision_is_bound_to_what_was_asked() -> None:
    asked = e.ApprovalAsked(id="a", turn_id="t", message_id="m", call_id="c", arguments_hash="h")
    made = decision(asked, approved=True, by="ann", reason="fine")
    assert made == e.ApprovalDecided(
        id="a", turn_id="t", arguments_hash="h", approved=True, by="ann", reason="fine"
    )
