"""Every call has exactly one result, and it tells the truth about what the tool did."""

import pytest

from killick import Image, Message, Session, Store, Text, ToolCall
from killick.model import entries as e
from killick.model.messages import ToolResult
from tests.unit.journal.making import TURN, answered, begun, ended, ran, said
from tests.unit.views.talking import (
    CUT_OFF,
    DID_NOT_RUN,
    RUNNING,
    STOPPED,
    UNKNOWN,
    asks,
    by_hand,
    dropped,
    lines,
    repairs,
    send,
    stopped,
)


def test_a_call_that_was_not_started_is_said_not_to_have_run(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
    assert lines(session)[1:] == [
        "call c1 shell {}",
        f"result c1 failed: {DID_NOT_RUN}",
        f"user: {STOPPED}",
    ]
    assert repairs(session) == [("made up a result", "'c1': it did not run")]


def test_the_outcome_of_a_started_call_is_said_to_be_unknown(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
        with turn.tool("c1"):
            raise KeyboardInterrupt
    assert lines(session)[2] == f"result c1 failed: {UNKNOWN}"
    assert repairs(session) == [("made up a result", "'c1': its outcome is unknown")]


def test_a_rewind_that_drops_the_ending_makes_no_tool_run_again() -> None:
    """Our own rewinds keep the ending of a turn that they cut; others' need not."""
    call = ToolCall("c1", "shell", "{}")
    rewound = e.Rewound(id="r", through=3)
    context = by_hand(begun(), said(call), ran(), ended("interrupted", "left"), rewound)
    assert lines(context) == ["call c1 shell {}", f"result c1 failed: {UNKNOWN}"]


def test_what_an_unfinished_tool_printed_is_shown(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
        with turn.tool("c1") as call:
            call.output("1 of 3\n")
            call.output("2 of 3\n")
            raise KeyboardInterrupt
    assert lines(session)[2] == (f"result c1 failed: {UNKNOWN}\nOutput so far:\n1 of 3\n2 of 3\n")


def test_a_tool_that_runs_is_said_to_run(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        with turn.tool("c1") as call:
            assert lines(session)[2] == f"result c1 failed: {RUNNING}"
            call.finish("done")
        assert lines(session)[2] == "result c1: done"


def test_a_finished_tool_beside_a_hanging_one_keeps_its_result(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1", "c2", "c3")
        with turn.tool("c2") as call:
            call.finish("two", is_error=True)
        with turn.tool("c1"):
            raise KeyboardInterrupt
    assert lines(session)[4:7] == [
        f"result c1 failed: {UNKNOWN}",
        "result c2 failed: two",
        f"result c3 failed: {DID_NOT_RUN}",
    ]


def test_a_result_that_comes_after_stop_takes_its_place(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
        with turn.tool("c1"):
            raise KeyboardInterrupt
    session.finish_tool(turn.id, "c1", "done at last")
    assert lines(session)[1:] == [
        "call c1 shell {}",
        "result c1: done at last",
        f"user: {STOPPED}",
    ]
    assert repairs(session) == []


def test_a_result_that_comes_after_a_model_was_sent_its_lack_is_told_as_text(
    session: Session,
) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
        with turn.tool("c1"):
            raise KeyboardInterrupt
    send(session)
    before = lines(session)
    session.finish_tool(turn.id, "c1", "done at last")
    told = "user: [The tool call c1 (shell) above has finished since. Its result:]\ndone at last"
    assert lines(session) == [*before, told]
    send(session, "And now?")
    assert lines(session)[: len(before) + 1] == [*before, told]
    assert "\n".join(lines(session)).count("done at last") == 1
    assert ("told as text", "a model was told before that it had no result") in repairs(session)


def test_a_failure_that_comes_late_is_told_as_one(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
    send(session)
    session.finish_tool(turn.id, "c1", "disk full", is_error=True)
    assert lines(session)[-1] == (
        "user: [The tool call c1 (shell) above has failed since. Its result:]\ndisk full"
    )


def test_a_result_of_two_calls_of_one_id_goes_to_the_first(session: Session) -> None:
    """Some servers give each call of an answer the same id; a start goes there too."""
    with session.turn("Go.") as turn:
        asks(turn, "c1", "c1")
        turn.record(Message(role="tool", parts=[ToolResult("c1", "done")]))
    assert lines(session)[3:] == ["result c1: done", f"result c1_2 failed: {DID_NOT_RUN}"]


@pytest.mark.parametrize(
    ("content", "structured", "told"),
    [("", {"rows": 42}, '{"rows": 42}'), ("", None, "(no output)")],
)
def test_a_late_result_without_text_is_told_as_one_in_its_place(
    session: Session, content: str, structured: dict[str, int] | None, told: str
) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
    send(session)
    session.finish_tool(turn.id, "c1", content, structured=structured)
    assert lines(session)[-1] == (
        f"user: [The tool call c1 (shell) above has finished since. Its result:]\n{told}"
    )


def test_an_image_that_comes_late_comes_with_its_text(store: Store, session: Session) -> None:
    image = Image(store.put_blob(b"\x89PNG\r\n\x1a\n"), "image/png")
    with stopped(session) as turn:
        asks(turn, "c1")
    send(session)
    session.finish_tool(turn.id, "c1", [Text("a picture"), image])
    assert lines(session)[-2].endswith("Its result:]\na picture")
    assert lines(session)[-1] == "user image"


def test_a_call_that_was_cut_off_is_told_as_text(session: Session) -> None:
    with stopped(session) as turn, turn.stream() as reply:
        reply.text("Let me look.")
        reply.tool_call("c1", name="shell", arguments='{"command": "rm')
        raise KeyboardInterrupt
    told = (
        f"user: {STOPPED[:-1]} A call to shell was cut off while its arguments were written, so "
        "it did not run.]"
    )
    assert lines(session) == ["user: Go.", "assistant: Let me look.", told]
    assert repairs(session) == [("told as text", "call 'c1' was cut off")]


def test_a_call_that_was_cut_off_is_told_too_when_its_turn_goes_on(session: Session) -> None:
    with session.turn("Go.") as turn:
        with dropped(turn) as reply:
            reply.tool_call("c1", name="shell", arguments='{"command": "rm')
        with turn.stream() as reply:
            reply.text("Again.")
    told = f"user: {CUT_OFF[:-1]} A call to shell was cut off while its arguments were written, "
    assert lines(session)[1:] == [f"{told}so it did not run.]", "assistant: Again."]


def test_a_whole_call_of_a_partial_answer_is_a_call(session: Session) -> None:
    with stopped(session) as turn, turn.stream() as reply:
        reply.tool_call("c1", name="shell", arguments='{"command": "ls"}')
        raise KeyboardInterrupt
    assert lines(session)[1:3] == [
        'call c1 shell {"command": "ls"}',
        f"result c1 failed: {DID_NOT_RUN}",
    ]


def test_a_result_without_its_call_is_told_as_text() -> None:
    result = e.MessageRecorded(
        id="m1", turn_id=TURN, role="tool", parts=(ToolResult("gone", "42 rows"),)
    )
    context = by_hand(begun(), result)
    assert lines(context) == ["user: [A tool result without its call (gone):]\n42 rows"]
    assert [(one.seq, one.reason) for one in context.repairs] == [(2, "the result has no call")]


def test_a_second_result_is_left_out() -> None:
    call = ToolCall("c1", "shell", "{}")
    context = by_hand(begun(), said(call), ran(), answered("one"), answered("two"))
    assert lines(context)[1:] == ["result c1: one"]
    assert [(one.seq, one.action) for one in context.repairs] == [(5, "left out")]


def test_an_id_that_repeats_within_a_turn_is_made_unique(session: Session) -> None:
    with session.turn("Go.") as turn:
        for content in ("one", "two"):
            asks(turn, "call_0")
            with turn.tool("call_0") as call:
                call.finish(content)
    assert lines(session)[1:] == [
        "call call_0 shell {}",
        "result call_0: one",
        "call call_0_2 shell {}",
        "result call_0_2: two",
    ]


def test_an_id_that_repeats_across_turns_is_made_unique(session: Session) -> None:
    for content in ("one", "two"):
        with session.turn("Go.") as turn:
            asks(turn, "call_0")
            with turn.tool("call_0") as call:
                call.finish(content)
    assert [one for one in lines(session) if one.startswith("result")] == [
        "result call_0: one",
        "result call_0_2: two",
    ]


def test_a_late_result_goes_to_the_call_of_its_turn(session: Session) -> None:
    with stopped(session) as first:
        asks(first, "call_0")
    with stopped(session) as second:
        asks(second, "call_0")
    session.finish_tool(first.id, "call_0", "of the first")
    assert [one for one in lines(session) if one.startswith("result")] == [
        "result call_0: of the first",
        f"result call_0_2 failed: {DID_NOT_RUN}",
    ]


@pytest.mark.parametrize("call_id", ["call:1/é", "x" * 41, "a b", "\ud800", "z" * 500])
def test_an_id_that_providers_refuse_is_replaced_in_both_places(
    session: Session, call_id: str
) -> None:
    with session.turn("Go.") as turn:
        asks(turn, call_id)
        with turn.tool(call_id) as call:
            call.finish("done")
    _, asked, answer = lines(session)
    made = asked.split()[1]
    assert made != call_id
    assert made.isascii()
    assert len(made) <= 40
    assert answer == f"result {made}: done"


@pytest.mark.parametrize(
    ("name", "sent"),
    [("files.read file", "files_read_file"), ("é" * 80, "_" * 64), ("", "tool")],
)
def test_a_name_that_providers_refuse_is_replaced(session: Session, name: str, sent: str) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c1", name, "{}")]))
    assert lines(session)[1] == f"call c1 {sent} {{}}"
