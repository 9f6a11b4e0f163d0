"""What a person is shown: messages and their state, what became of each tool, endings."""

from datetime import UTC, datetime

import pytest

from killick import Message, Session, Store, Text, ToolCall
from killick.model import entries as e
from killick.stores.memory import MemoryDisk
from killick.views.transcript import ShownTool, transcript
from tests.unit.journal.making import (
    TURN,
    answered,
    begun,
    closed,
    ended,
    late,
    no_deltas,
    opened,
    ran,
    said,
)
from tests.unit.journal.making import entries as journal
from tests.unit.views.talking import asks, dropped, send, stopped

CALL = ToolCall("c1", "shell", "{}")


def tool(*bodies: e.Body) -> ShownTool:
    """The one tool that is shown of this journal."""
    (found,) = [
        one for shown in transcript(journal(begun(), *bodies), no_deltas) for one in shown.tools
    ]
    return found


# -- tools -------------------------------------------------------------------------------------


def test_a_tool_that_was_not_started() -> None:
    assert tool(said(CALL)).state == "not started"
    assert tool(said(CALL), ended("interrupted", "crashed")).state == "not started"


def test_a_tool_that_runs() -> None:
    assert tool(said(CALL), ran()).state == "running"


def test_a_tool_that_finished() -> None:
    shown = tool(said(CALL), ran(), answered("done"))
    assert (shown.state, shown.result and shown.result.content) == ("finished", "done")
    assert (shown.call_id, shown.name, shown.arguments) == ("c1", "shell", "{}")


def test_a_tool_that_failed(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        with turn.tool("c1") as call:
            call.finish("Error 2", is_error=True)
    assert session.transcript()[1].tools[0].state == "failed"


def test_a_tool_whose_outcome_is_unknown() -> None:
    assert tool(said(CALL), ran(), ended("interrupted", "crashed")).state == "unknown"


def test_a_late_result_makes_the_outcome_known() -> None:
    shown = tool(said(CALL), ran(), ended("interrupted", "crashed"), late("done"))
    assert shown.state == "finished"


def test_a_call_that_was_cut_off(session: Session) -> None:
    with stopped(session) as turn, turn.stream() as reply:
        reply.tool_call("c1", name="shell", arguments='{"command": "rm')
        raise KeyboardInterrupt
    shown = session.transcript()[1].tools[0]
    assert (shown.state, shown.arguments) == ("cut off", '{"command": "rm')


def test_a_result_that_was_recorded_as_a_message_is_shown_with_its_call(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        with turn.tool("c1") as call:
            call.finish("done")
    assert [one.role for one in session.transcript()] == ["user", "assistant"]


def test_ids_that_repeat_in_other_messages_are_told_apart() -> None:
    shown = transcript(
        journal(
            begun(),
            said(CALL),
            ran(),
            answered("one"),
            said(CALL, id="m2"),
            ran(message_id="m2"),
            ended("interrupted", "crashed"),
        ),
        no_deltas,
    )
    assert [one.tools[0].state for one in shown if one.tools] == ["finished", "unknown"]


def test_what_a_running_tool_prints_is_shown() -> None:
    delta = e.Delta(0, 0, "output", "1 of 3")
    written = journal(begun(), said(CALL), ran())
    (shown,) = transcript(written, lambda seq: [delta] if seq == 3 else [])
    assert (shown.tools[0].state, shown.tools[0].output) == ("running", "1 of 3")


def test_what_an_unfinished_tool_had_printed_is_shown(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
        with turn.tool("c1") as call:
            call.output("1 of 3")
            raise KeyboardInterrupt
    shown = session.transcript()[1].tools[0]
    assert (shown.state, shown.output) == ("unknown", "1 of 3")


def test_what_a_tool_printed_before_its_result_is_kept(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        with turn.tool("c1") as call:
            call.output("1 of 3")
            call.finish("done")
    assert session.transcript()[1].tools[0].output == "1 of 3"


# -- messages ----------------------------------------------------------------------------------


def test_messages_are_shown_in_order_without_their_calls(session: Session) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[Text("I look."), CALL]))
        turn.record(Message(role="assistant", parts=[Text("Yes.")]))
    shown = session.transcript()
    assert [(one.kind, one.role, one.text) for one in shown] == [
        ("message", "user", "Go."),
        ("message", "assistant", "I look."),
        ("message", "assistant", "Yes."),
    ]
    assert shown[1].parts == (Text("I look."),)
    assert {one.turn_id for one in shown} == {turn.id}


def test_a_partial_message_is_marked(session: Session) -> None:
    with session.turn("Go.") as turn:
        with dropped(turn) as reply:
            reply.text("Kelp ho")
        with turn.stream() as reply:
            reply.text("Kelp holds on.")
    assert [(one.state, one.text) for one in session.transcript()[1:]] == [
        ("partial", "Kelp ho"),
        ("complete", "Kelp holds on."),
    ]


def test_a_message_that_streams_is_shown_with_what_has_come() -> None:
    delta = e.Delta(0, 0, "text", "Kelp ho")
    shown = transcript(journal(begun(), opened()), lambda seq: [delta] if seq == 2 else [])
    assert [(one.state, one.text, one.seq) for one in shown] == [("streaming", "Kelp ho", 2)]


def test_a_message_stands_where_it_started() -> None:
    shown = transcript(
        journal(begun(), opened("m1"), said(Text("Two."), id="m2"), closed(Text("One."), id="m1")),
        no_deltas,
    )
    assert [one.text for one in shown] == ["One.", "Two."]


# -- endings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason"), [("interrupted", "crashed"), ("failed", "ValueError: no")]
)
def test_an_ending_is_shown_with_its_reason_and_time(status: str, reason: str) -> None:
    shown = transcript(journal(begun(), said(Text("I begin.")), ended(status, reason)), no_deltas)
    last = shown[-1]
    assert (last.kind, last.role, last.text) == ("ending", "system", "")
    assert (last.status, last.reason, last.turn_id) == (status, reason, TURN)
    assert last.at == datetime.fromtimestamp(3 / 1_000_000, UTC)


def test_a_completed_turn_shows_no_ending(session: Session) -> None:
    send(session)
    assert [one.kind for one in session.transcript()] == ["message", "message"]


def test_an_ending_stands_before_the_next_turn(session: Session) -> None:
    with stopped(session):
        pass
    send(session)
    assert [one.kind for one in session.transcript()] == ["message", "ending", "message", "message"]


def test_things_are_in_order_though_the_clock_was_set_back() -> None:
    times = iter([1_000_000 - step for step in range(1000)])
    with Store(MemoryDisk().open(), clock=lambda: next(times)) as store:
        session = store.create_session()
        with stopped(session):
            pass
        send(session)
        shown = session.transcript()
    assert [one.seq for one in shown] == sorted(one.seq for one in shown)
    assert shown[0].at > shown[-1].at


def test_a_fold_whose_place_is_kept_goes_into_the_one_around_it(session: Session) -> None:
    """System messages are kept; the summary that begins at one is replaced all the same."""
    for number in range(2):
        with session.turn(f"ask {number}") as turn:
            turn.record(Message("system", [Text("Be brief.")]))
            turn.record(Message("assistant", [Text(f"answer {number}")]))
    messages = session.messages()
    session.compact("inner", first=messages[1].seq, through=messages[2].seq)
    session.compact("outer", through=messages[5].seq)
    outer, *rest = session.transcript()
    assert (outer.kind, outer.text) == ("compaction", "outer")
    assert [one.text for one in outer.folded] == ["ask 0", "inner", "ask 1", "answer 1"]
    assert [one.text for one in rest] == ["Be brief.", "Be brief."]


@pytest.mark.parametrize("told", [False, True])
def test_a_denied_call_is_denied_and_not_failed(session: Session, *, told: bool) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        asked = turn.ask_approval("c1", "{}")
        session.decide_approval(asked, approved=False, reason="no")
        if told:
            session.finish_tool(turn.id, "c1", "refused", is_error=True)
    assert [tool.state for item in session.transcript() for tool in item.tools] == ["denied"]


def test_a_denial_behind_the_result_changes_nothing(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        asked = turn.ask_approval("c1", "{}")
        session.finish_tool(turn.id, "c1", "paid")
        before = session.context("neutral").messages
        session.decide_approval(asked, approved=False, reason="no")
        assert session.context("neutral").messages == before
    assert [tool.state for item in session.transcript() for tool in item.tools] == ["finished"]


def test_a_call_whose_start_was_not_seen_is_unknown(session: Session) -> None:
    with session.turn("Go.", starts="unseen") as turn:
        asks(turn, "c1")
    assert [tool.state for item in session.transcript() for tool in item.tools] == ["unknown"]


def test_a_call_that_a_later_turn_started_runs_until_that_ends(session: Session) -> None:
    def state() -> str:
        return next(tool.state for item in session.transcript() for tool in item.tools)

    with stopped(session) as earlier:
        asks(earlier, "c1")
    with session.turn("On.", continues=earlier.id) as turn:
        call = turn.tool("c1", of=earlier.id)
        call.__enter__()
        assert state() == "running"
    assert state() == "unknown"
