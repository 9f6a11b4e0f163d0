"""Lines of the feed: which entries add one, and what the fold of a journal amounts to."""

import pytest

from killick import Message, Store, ToolCall
from killick.journal.news import GONE_ON_WITH, Answers, Line, answers_of, fold_news, lines_of
from killick.journal.turn_state import TurnState
from killick.model import entries as e
from killick.model.causes import CAUSES
from killick.stores.memory import MemoryDisk

PEOPLE = {"stopped", "taken_over", "deleted", "forked", "failed", "other"}


@pytest.mark.parametrize("cause", CAUSES)
def test_an_interrupted_turn_waits_unless_a_person_wished_it(cause: str) -> None:
    body = e.TurnEnding(turn_id="t", status="interrupted", reason="r", cause=cause)
    assert lines_of(None, body) == [Line("turn_ended", cause, waits=cause not in PEOPLE)]


def test_a_failed_turn_waits_and_a_completed_one_does_not() -> None:
    failed = e.TurnEnding(turn_id="t", status="failed", reason="r", cause="failed")
    assert lines_of(None, failed)[0].waits
    assert not lines_of(None, e.TurnEnding(turn_id="t", status="completed"))[0].waits


def test_a_limit_that_was_reached_waits_in_place_of_the_ending() -> None:
    body = e.TurnEnding(
        turn_id="t", status="failed", reason="r", cause="failed", error_type="LimitReached"
    )
    assert lines_of(None, body) == [
        Line("turn_ended", "failed"),
        Line("limit_reached", "failed", waits=True),
    ]


def test_another_turn_s_unknown_outcome_is_not_told_with_this_ending() -> None:
    turn = TurnState(1, e.TurnStarted(turn_id="t", fence=1, holder="h"))
    turn.apply(2, e.ToolCalled(turn_id="t", message_id="m", call_id="c", name="pay"))
    turn.apply(3, e.ToolStarted(turn_id="t", message_id="m", call_id="c"))
    ending = e.TurnEnding(turn_id="t", status="interrupted", reason="r", cause="crashed")
    assert [line.kind for line in lines_of(turn, ending)] == ["turn_ended", "outcome_unknown"]
    other = e.TurnEnding(turn_id="other", status="interrupted", reason="r", cause="crashed")
    assert [line.kind for line in lines_of(turn, other)] == ["turn_ended"]


def test_a_turn_after_a_completed_one_answers_nothing() -> None:
    start = e.TurnStarted(turn_id="t", fence=1, holder="h")
    assert answers_of(start, "completed") is None
    assert answers_of(start, "interrupted") == Answers(GONE_ON_WITH)


def test_the_fold_is_what_the_store_has() -> None:
    """After a tool of an earlier turn was started again, and left again."""
    disk = MemoryDisk()
    with Store(disk.open()) as store:
        session = store.create_session(id="s")
        turn = session.turn("go").begin()
        turn.record(Message("assistant", [ToolCall("c", "look", "{}")]))
        turn.tool("c", effect="none").begin().end(KeyboardInterrupt())
        turn.end(KeyboardInterrupt())
        again = session.turn(None, continues=turn.id)
        with pytest.raises(KeyboardInterrupt), again, again.tool("c", of=turn.id):
            raise KeyboardInterrupt
        told = [told for _, told in disk.news.values()]
        assert fold_news(session.entries()) == told
        assert [(line.kind, line.waits) for _, _, line in told] == [
            *(("turn_ended", False), ("outcome_unknown", True)),
            *(("turn_ended", True), ("outcome_unknown", True)),
        ]
        session.settle(turn.id, "c", outcome="did_not_run")
        assert fold_news(session.entries()) == [told for _, told in disk.news.values()]
        assert not any(t.line.waits for _, t in disk.news.values() if t.line.kind != "turn_ended")
