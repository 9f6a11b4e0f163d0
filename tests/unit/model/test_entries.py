"""Entries as values: their kind, version and time."""

from datetime import UTC, datetime

import pytest

from killick.model import entries as e
from killick.model.messages import ToolResult
from killick.model.sessions import moment


def test_the_kind_of_an_entry_is_the_tag_it_is_stored_with() -> None:
    entry = e.Entry(1, 0, e.ToolFinished(turn_id="t", message_id="m", result=_result()))
    assert entry.kind == "tool_result"


def test_the_kind_and_version_of_an_unknown_entry_are_those_it_was_stored_with() -> None:
    entry = e.Entry(1, 0, e.Unknown(name="dreamed", version=7, data=b"{}"))
    assert (entry.kind, entry.version) == ("dreamed", 7)


def test_no_two_kinds_share_a_tag() -> None:
    tags = [str(kind.__struct_config__.tag) for kind in e.KnownBody.__args__]
    assert len(tags) == len(set(tags))


def test_a_body_cannot_be_changed() -> None:
    body = e.Restored(id="x")
    with pytest.raises(AttributeError):
        body.id = "y"  # type: ignore[misc]


def test_a_time_is_exact_to_the_microsecond() -> None:
    assert moment(1_700_000_000_123_457) == datetime(2023, 11, 14, 22, 13, 20, 123457, tzinfo=UTC)


def test_a_followed_delta_shows_the_place_and_text_of_its_increment() -> None:
    seen = e.FollowedDelta(4, "t", "m", None, e.Delta(2, 5, "text", "abc"))
    assert (seen.kind, seen.part, seen.offset, seen.text) == ("delta", 2, 5, "abc")


def _result() -> ToolResult:
    return ToolResult("c", "done")
