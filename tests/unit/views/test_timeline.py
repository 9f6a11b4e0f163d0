"""When what happened: durations, model calls and their attempts, tools, tokens."""

import msgspec
import pytest

from killick import Message, Session, Store, Usage
from killick.model import entries as e
from killick.stores.memory import MemoryDisk
from killick.views.timeline import TimedTurn, timeline
from tests.unit.journal.making import TURN, answered, begun, ended, late, ran
from tests.unit.views.talking import asks, dropped, send, stopped

SECOND = 1_000_000


def timed(*bodies: tuple[float, e.Body]) -> TimedTurn:
    """The one turn of a journal whose entries have these times, in seconds."""
    journal = [e.Entry(seq, int(at * SECOND), body) for seq, (at, body) in enumerate(bodies, 1)]
    (turn,) = timeline(journal)
    return turn


def asked(call_id: str = "k1", attempt: int = 1, retry_of: str | None = None) -> e.ModelCallStarted:
    return e.ModelCallStarted(
        id=call_id, turn_id=TURN, provider="p", model="m", attempt=attempt, retry_of=retry_of
    )


def got(call_id: str = "k1", error: str | None = None, **usage: int) -> e.ModelCallEnded:
    return e.ModelCallEnded(
        id=call_id,
        turn_id=TURN,
        usage=Usage(**usage) if usage else None,
        error=error,
        finish_reason=None if error else "stop",
    )


def test_a_turn_that_runs_has_no_duration() -> None:
    turn = timed((5, begun()), (6, asked()))
    assert (turn.id, turn.status, turn.seconds, turn.started_at_us) == (
        TURN,
        "running",
        None,
        5 * SECOND,
    )
    assert turn.model_calls[0].seconds is None


def test_a_turn_lasts_until_its_ending() -> None:
    turn = timed((5, begun()), (7.5, ended("failed", "ValueError")))
    assert (turn.status, turn.reason, turn.seconds) == ("failed", "ValueError", 2.5)


def test_a_model_call_lasts_until_it_ended() -> None:
    (call,) = timed((5, begun()), (6, asked()), (6.25, got(input=3))).model_calls
    assert (call.provider, call.model, call.seconds, call.finish_reason) == ("p", "m", 0.25, "stop")
    assert call.usage == Usage(input=3)


def test_a_model_call_says_how_long_its_first_piece_let_wait() -> None:
    first = msgspec.structs.replace(got(), first_at_us=6_100_000)
    (call,) = timed((5, begun()), (6, asked()), (6.25, first)).model_calls
    assert call.first_seconds == 0.1
    (call,) = timed((5, begun()), (6, asked()), (6.25, got())).model_calls
    assert call.first_seconds is None


def test_attempts_are_told_apart_and_their_tokens_summed() -> None:
    turn = timed(
        (1, begun()),
        (2, asked("k1")),
        (3, got("k1", error="503", input=10, output=1)),
        (4, asked("k2", attempt=2, retry_of="k1")),
        (6, got("k2", input=10, output=5, cached=8, reasoning=2)),
        (7, ended()),
    )
    first, second = turn.model_calls
    assert (first.attempt, first.error, first.seconds) == (1, "503", 1)
    assert (second.attempt, second.retry_of, second.error, second.seconds) == (2, "k1", None, 2)
    assert turn.usage == Usage(input=20, output=6, cached=8, reasoning=2)


def test_tokens_of_a_call_that_did_not_say_them_count_nothing() -> None:
    turn = timed((1, begun()), (2, asked()), (3, got()))
    assert turn.usage == Usage()


def test_costs_are_summed_where_they_are_known() -> None:
    priced = e.ModelCallEnded(id="k2", turn_id=TURN, usage=Usage(cost=0.25))
    turn = timed(
        (1, begun()), (2, asked("k1")), (3, got("k1", input=1)), (4, asked("k2")), (5, priced)
    )
    assert turn.usage.cost == 0.25


def test_a_tool_lasts_until_its_result() -> None:
    (tool,) = timed((1, begun()), (2, ran()), (5, answered())).tools
    assert (tool.call_id, tool.seconds, tool.is_error) == ("c1", 3, False)


def test_a_tool_without_a_result_has_no_duration() -> None:
    (tool,) = timed((1, begun()), (2, ran()), (3, ended("interrupted", "crashed"))).tools
    assert (tool.seconds, tool.is_error) == (None, None)


def test_a_late_result_ends_its_tool_and_not_its_turn() -> None:
    turn = timed((1, begun()), (2, ran()), (3, ended("interrupted", "crashed")), (9, late()))
    assert turn.seconds == 2
    assert turn.tools[0].seconds == 7


def test_no_duration_is_negative_though_the_clock_was_set_back() -> None:
    turn = timed((9, begun()), (8, asked()), (7, got()), (6, ran()), (5, answered()), (4, ended()))
    assert (turn.seconds, turn.model_calls[0].seconds, turn.tools[0].seconds) == (0, 0, 0)


def test_turns_are_in_the_order_in_which_they_started() -> None:
    times = iter([SECOND * 100 - step for step in range(1000)])
    with Store(MemoryDisk().open(), clock=lambda: next(times)) as store:
        session = store.create_session()
        for prompt in ("First.", "Second."):
            send(session, prompt)
        assert [one.id for one in session.timeline()] == [one.id for one in session.turns()]


def test_a_real_session_has_all_of_it(session: Session) -> None:
    with stopped(session) as turn:
        with dropped(turn):
            pass
        with turn.stream(attempt=2, model="m") as reply:
            reply.text("I look.")
            reply.finish(usage=Usage(input=7, output=2), finish_reason="tool_calls")
        asks(turn, "c1")
        with turn.tool("c1") as call:
            call.finish("Error 2", is_error=True)
    (timed_turn,) = session.timeline()
    assert (timed_turn.status, timed_turn.reason) == ("interrupted", "keyboard_interrupt")
    assert [one.attempt for one in timed_turn.model_calls] == [1, 2]
    assert timed_turn.model_calls[0].error is not None
    assert timed_turn.usage == Usage(input=7, output=2)
    assert [(one.call_id, one.is_error) for one in timed_turn.tools] == [("c1", True)]


def test_a_session_without_turns_has_an_empty_timeline(session: Session) -> None:
    assert session.timeline() == []


@pytest.mark.parametrize("prompt", [None, "Go."])
def test_messages_take_no_time_of_their_own(session: Session, prompt: str | None) -> None:
    with session.turn(prompt) as turn:
        turn.record(Message(role="assistant", parts=[]))
    (timed_turn,) = session.timeline()
    assert (timed_turn.model_calls, timed_turn.tools) == ([], [])
