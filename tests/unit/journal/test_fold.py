"""What a journal means: messages in their places, turns with their endings."""

import pytest

from killick.journal.fold import Messages, fold_messages, fold_turns
from killick.journal.kinds import identity
from killick.model import entries as e
from killick.model.entries import Delta
from killick.model.messages import Message, Text, ToolCall, ToolResult
from tests.unit.journal.making import (
    TURN,
    answered,
    begun,
    closed,
    ended,
    entries,
    late,
    no_deltas,
    opened,
    ran,
    said,
)

CALL = ToolCall("c1", "shell", "{}")
SECOND = ToolCall("c2", "shell", "{}")


def fold(*bodies: e.Body, first: int = 1) -> list[Message]:
    return fold_messages(entries(*bodies, first=first), no_deltas)


def places(messages: list[Message]) -> list[tuple[int, str]]:
    return [(message.seq, message.id) for message in messages]


def test_a_streamed_message_stands_where_it_started() -> None:
    messages = fold(opened("a"), said(id="b"), closed(Text("x"), id="a"))
    assert places(messages) == [(1, "a"), (2, "b")]
    assert (messages[0].state, messages[0].parts) == ("complete", (Text("x"),))


def test_a_message_that_still_streams_is_shown_with_what_has_come() -> None:
    messages = fold_messages(entries(opened()), lambda seq: [Delta(0, 0, "text", f"at {seq}")])
    assert [(m.state, m.text) for m in messages] == [("streaming", "at 1")]


def test_a_message_with_nothing_in_it_is_not_shown_after_its_turn_has_ended() -> None:
    assert fold(begun(), opened(), ended("interrupted", "x")) == []


def test_a_partial_message_is_shown_as_partial() -> None:
    (message,) = fold(opened(), closed(Text("so"), state="partial"))
    assert (message.state, message.text) == ("partial", "so")


def test_a_result_stands_where_its_tool_started() -> None:
    messages = fold(
        said(CALL, SECOND),
        ran("c1"),
        ran("c2"),
        answered("2", "c2", started=3),
        answered("1", "c1", started=2),
    )
    assert [(m.seq, m.role, m.parts[0]) for m in messages[1:]] == [
        (2, "tool", ToolResult("c1", "1")),
        (3, "tool", ToolResult("c2", "2")),
    ]


def test_a_started_tool_without_a_result_shows_no_message() -> None:
    assert places(fold(said(CALL), ran())) == [(1, "m1")]


def test_a_late_result_stands_where_its_tool_started() -> None:
    messages = fold(begun(), said(CALL), ran(), ended(), said(id="next"), late("real", started=3))
    assert [(m.seq, m.id) for m in messages] == [(2, "m1"), (3, "m1/c1"), (5, "next")]
    assert messages[1].parts == (ToolResult("c1", "real"),)


def test_a_result_for_a_call_nobody_started_stands_in_its_own_place() -> None:
    messages = fold(said(CALL), said(id="other"), answered())
    assert [m.seq for m in messages] == [1, 2, 3]


def test_one_call_id_in_two_messages_gives_two_results_in_two_places() -> None:
    messages = fold(
        said(CALL),
        ran("c1", "m1"),
        answered("first", "c1", "m1", started=2),
        said(CALL, id="m2"),
        ran("c1", "m2"),
        answered("second", "c1", "m2", started=5),
    )
    assert [m.parts[0] for m in messages if m.role == "tool"] == [
        ToolResult("c1", "first"),
        ToolResult("c1", "second"),
    ]
    assert len({m.id for m in messages}) == 4


def test_late_text_goes_on_where_the_partial_message_stopped() -> None:
    rest = e.LateText(turn_id=TURN, message_id="m1", deltas=(Delta(0, 2, "text", " far"),))
    (message,) = fold(begun(), opened(), closed(Text("so"), state="partial"), ended(), rest)
    assert (message.seq, message.state, message.text) == (2, "partial", "so far")


def test_late_text_that_is_the_whole_answer_completes_the_message() -> None:
    rest = e.LateText(turn_id=TURN, message_id="m1", deltas=(Delta(0, 2, "text", "!"),), whole=True)
    (message,) = fold(begun(), opened(), closed(Text("so"), state="partial"), ended(), rest)
    assert (message.state, message.text) == ("complete", "so!")


def test_late_text_shows_a_message_that_had_nothing_in_it() -> None:
    rest = e.LateText(turn_id=TURN, message_id="m1", deltas=(Delta(0, 0, "text", "all"),))
    (message,) = fold(begun(), opened(), ended("interrupted", "x"), rest)
    assert (message.state, message.text) == ("partial", "all")


def test_a_tail_shows_what_began_in_it_and_nothing_of_what_began_before() -> None:
    messages = fold(
        closed(Text("old"), id="old"),
        answered("old", "c9", "m9", started=40),
        opened("new"),
        closed(Text("new"), id="new"),
        first=50,
    )
    assert places(messages) == [(52, "new")]


def test_a_late_text_in_a_tail_without_its_message_changes_nothing() -> None:
    rest = e.LateText(turn_id=TURN, message_id="gone", deltas=(Delta(0, 0, "text", "x"),))
    assert fold(rest, first=50) == []


@pytest.mark.parametrize("cut", range(8))
def test_every_tail_agrees_with_the_whole_on_what_began_in_it(cut: int) -> None:
    journal = entries(
        begun(),
        said(CALL, SECOND),
        ran("c1"),
        ran("c2"),
        answered("b", "c2", started=4),
        opened("m2"),
        answered("a", "c1", started=3),
        closed(Text("x"), id="m2"),
        ended(),
    )
    whole = fold_messages(journal, no_deltas)
    tail = fold_messages(journal[cut:], no_deltas)
    assert tail == [message for message in whole if message.seq > cut]


def test_what_can_still_change_a_message_is_named_by_its_key() -> None:
    """So that a page of the first messages need not read the whole journal."""
    messages = Messages()
    for entry in entries(begun(), said(CALL), ran(), opened("m2")):
        messages.take(entry)
    rest = e.LateText(turn_id=TURN, message_id="m2", deltas=())
    may_follow: list[e.Body] = [answered(started=3), closed(id="m2"), ended(), rest]
    assert set(messages.awaiting()) == {identity(body) for body in may_follow}


def test_nothing_more_can_change_messages_that_are_complete() -> None:
    messages = Messages()
    for entry in entries(
        begun(), said(CALL), ran(), answered(started=3), opened("m2"), closed(id="m2")
    ):
        messages.take(entry)
    assert messages.awaiting() == []
    assert messages.count() == 3


def test_an_unknown_entry_changes_no_message() -> None:
    assert fold(e.Unknown(name="dreamed", version=1, data=b"{}"), said()) == fold(said(), first=2)


def test_turns_come_in_order_with_how_they_ended() -> None:
    other = e.TurnStarted(turn_id="t2", fence=2, holder="h", continues=TURN)
    first, second = fold_turns(entries(begun(), ended("failed", "why"), other))
    assert (first.id, first.seq, first.status, first.reason) == (TURN, 1, "failed", "why")
    assert (first.started_at_us, first.ended_at_us) == (1, 2)
    assert (second.status, second.reason, second.ended_at) == ("running", None, None)
    assert second.continues == TURN


def test_an_ending_without_its_start_is_passed_over() -> None:
    assert fold_turns(entries(ended())) == []
