"""What a caller can ask for: a format, a budget, partial answers, where messages come from."""

import json

import pytest

from killick import Message, Session, Text, ToolCall
from killick.views.context import FORMATS, Format
from tests.unit.views.talking import (
    DID_NOT_RUN,
    STOPPED,
    asks,
    dropped,
    lines,
    said,
    send,
    stopped,
)

TRIMMED = "user: [Earlier messages are left out here.]"


def test_an_unknown_format_is_refused_with_the_names_of_the_known(session: Session) -> None:
    with pytest.raises(ValueError, match="'yaml'") as caught:
        session.context("yaml")  # type: ignore[arg-type]
    assert all(name in str(caught.value) for name in FORMATS)


def test_a_context_says_its_format(session: Session) -> None:
    formats: list[Format] = ["neutral", "openai-chat", "openai-responses", "anthropic", "gemini"]
    assert [session.context(one).format for one in formats] == formats == list(FORMATS)


# -- budgets -----------------------------------------------------------------------------------


def talk(session: Session) -> None:
    for number in range(4):
        send(session, f"Question {number}.", f"Answer {number}.")


def test_a_budget_of_messages_keeps_the_newest(session: Session) -> None:
    talk(session)
    kept = lines(session.context("neutral", max_messages=2))
    assert kept == [TRIMMED, "user: Question 3.", "assistant: Answer 3."]


def test_the_answer_before_the_newest_prompt_is_kept(session: Session) -> None:
    talk(session)
    kept = lines(session.context("neutral", max_messages=3))
    assert kept == [TRIMMED, "assistant: Answer 2.", "user: Question 3.", "assistant: Answer 3."]


def test_a_budget_of_tokens_keeps_the_newest(session: Session) -> None:
    talk(session)
    sizes = [
        len(session.context("neutral", max_tokens=tokens).messages) for tokens in (15, 50, 1000)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[1] < sizes[-1] == 8


def test_a_budget_that_is_large_enough_changes_nothing(session: Session) -> None:
    talk(session)
    assert lines(session.context("neutral", max_messages=8)) == lines(session)


def test_a_call_is_never_torn_from_its_result(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1", "c2")
        asks(turn, "c3", "c4")
    kept = lines(session.context("neutral", max_messages=4))
    assert kept == [
        "user: Go.",
        TRIMMED,
        "call c3 shell {}",
        "call c4 shell {}",
        f"result c3 failed: {DID_NOT_RUN}",
        f"result c4 failed: {DID_NOT_RUN}",
    ]


def test_a_budget_leaves_the_system_prompt(session: Session) -> None:
    with session.turn(Message(role="system", parts=[Text("Be brief.")])):
        pass
    talk(session)
    assert session.context("openai-chat", max_messages=1).system == "Be brief."


# -- partial answers ---------------------------------------------------------------------------


def cut(session: Session) -> None:
    with session.turn("Go.") as turn:
        with dropped(turn) as reply:
            reply.text("Kelp ho")
            reply.tool_call("c1", name="shell", arguments="{}")
        with turn.stream() as reply:
            reply.text("Kelp holds on.")


def test_a_partial_answer_can_be_shown_as_plain_text(session: Session) -> None:
    cut(session)
    assert lines(session.context("neutral", partial="plain")) == [
        "user: Go.",
        "assistant: Kelp ho",
        "call c1 shell {}",
        f"result c1 failed: {DID_NOT_RUN}",
        "assistant: Kelp holds on.",
    ]


def test_the_text_of_a_partial_answer_can_be_left_out(session: Session) -> None:
    """Its whole calls stay: they may have run."""
    cut(session)
    assert lines(session.context("neutral", partial="omit")) == [
        "user: Go.",
        "call c1 shell {}",
        f"result c1 failed: {DID_NOT_RUN}",
        "assistant: Kelp holds on.",
    ]


@pytest.mark.parametrize("partial", ["plain", "omit"])
def test_the_ending_is_told_all_the_same(session: Session, partial: str) -> None:
    with stopped(session) as turn, turn.stream() as reply:
        reply.text("Kelp ho")
        raise KeyboardInterrupt
    told = lines(session.context("neutral", partial=partial))
    assert told[-1] == f"user: {STOPPED}"
    assert ("assistant: Kelp ho" in told) == (partial == "plain")


# -- where messages come from ------------------------------------------------------------------


def test_each_message_names_its_entries(session: Session) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c1", "shell", "{}")]))
        with turn.tool("c1") as call:
            call.finish("done")
        turn.record(said("Yes."))
    kinds = {entry.seq: entry.kind for entry in session.entries()}
    named = [[kinds[seq] for seq in seqs] for _, seqs in session.context("openai-chat").explain()]
    assert named == [["message"], ["message"], ["tool_result"], ["message"]]


def test_a_streamed_message_names_its_start_and_its_end(session: Session) -> None:
    send(session)
    kinds = {entry.seq: entry.kind for entry in session.entries()}
    _, (number, seqs) = session.context("neutral").explain()
    assert number == 1
    assert [kinds[seq] for seq in seqs] == ["message_started", "message_ended"]


def test_a_message_made_of_several_names_all(session: Session) -> None:
    for prompt in ("First.", "Second."):
        with session.turn(prompt):
            pass
    assert session.context("anthropic").explain() == [(0, (3, 6))]


@pytest.mark.parametrize("format_", list(FORMATS))
def test_there_is_an_origin_for_each_message(session: Session, format_: str) -> None:
    with stopped(session) as turn:
        asks(turn, "c1", "c2")
    context = session.context(format_)  # type: ignore[arg-type]
    assert [number for number, _ in context.explain()] == list(range(len(context.messages)))


@pytest.mark.parametrize("format_", list(FORMATS))
def test_reading_writes_nothing_and_is_the_same_twice(session: Session, format_: str) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
    head = store_bytes(session)
    first = session.context(format_)  # type: ignore[arg-type]
    again = session.context(format_)  # type: ignore[arg-type]
    assert json.dumps(first.messages) == json.dumps(again.messages)
    assert store_bytes(session) == head


def store_bytes(session: Session) -> str:
    return repr(session.entries())


def test_what_nobody_said_is_marked_in_the_neutral_list(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
    marks = [one["synthetic"] for one in session.context("neutral").messages]
    assert marks == [False, False, True, True]
