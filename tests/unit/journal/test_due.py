"""Whether a turn that broke may be continued, entry by entry, and when."""

import msgspec

from killick.journal import due
from killick.journal.due import Due, backoff_us, ready_us
from killick.model import entries as e

SECOND = 1_000_000


def begun(resume: int = 2, **more: object) -> Due | None:
    body = e.TurnStarted(turn_id="t", fence=1, holder="h", resume=resume)
    return due.begun(None, body, imported=bool(more.get("imported")))


def after(known: Due | None, *bodies: e.Body, at_us: int = 10) -> Due | None:
    for body in bodies:
        if known is not None:
            known = due.step(known, at_us, body)
    return known


def broken(cause: str = "crashed", status: str = "interrupted") -> e.TurnEnding:
    return e.TurnEnding(turn_id="t", status=status, reason="r", cause=cause)  # type: ignore[arg-type]


def test_nothing_is_kept_of_a_turn_that_nobody_may_continue() -> None:
    assert begun(resume=0) is None
    assert begun(imported=True) is None


def test_it_is_ready_when_it_broke_by_accident() -> None:
    assert ready_us(begun()) is None, "it runs"
    assert ready_us(after(begun(), broken())) == 10
    for ending in (broken("stopped"), broken("failed", "failed"), broken("", "completed")):
        assert after(begun(), ending) is None


def test_what_was_taken_is_looked_at_when_its_time_is_over() -> None:
    taken = e.WorkTaken(id="w", turn_id="t", attempt=1, taker="h2", until_us=77)
    known = after(begun(), broken(), taken)
    assert known is not None
    assert (ready_us(known), known.taker, known.attempts) == (10 + SECOND, "h2", 1)
    asked = msgspec.structs.replace(known, resume_us=12)
    assert ready_us(asked) == 77, "until then it is the taker's, whatever a person says"
    second = e.TurnStarted(turn_id="t2", fence=2, holder="h2", continues="t", work="w")
    going_on = due.begun(known, second, imported=False)
    assert going_on is not None
    assert (going_on.attempts, going_on.allowed, going_on.token) == (1, 2, None)
    other = e.TurnStarted(turn_id="t3", fence=2, holder="p")
    assert due.begun(known, other, imported=False) is None


def test_a_later_start_is_unsettled_again() -> None:
    started = e.ToolStarted(turn_id="t", message_id="m", call_id="c")
    settled = e.Settled(id="s", turn_id="t", message_id="m", call_id="c", outcome="did_not_run")
    assert ready_us(after(begun(), started, broken())) is None
    assert ready_us(after(begun(), started, broken(), settled)) == 10
    assert ready_us(after(begun(), started, broken(), settled, started)) is None


def test_rests_grow_to_an_hour() -> None:
    assert [backoff_us(n) // SECOND for n in (0, 1, 2, 3, 13, 10**6)] == [0, 1, 2, 4, 3600, 3600]
