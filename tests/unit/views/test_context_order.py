"""What stands where: late text, empty and leading messages, prompts, endings, system messages."""

import json

import pytest

from killick import Message, Opaque, Session, Text, ToolCall
from killick.model import entries as e
from killick.views import validators
from killick.views.phrases import ended
from tests.unit.journal.making import TURN, begun, closed, opened, said
from tests.unit.views.talking import (
    CUT_OFF,
    STOPPED,
    asks,
    by_hand,
    dropped,
    lines,
    repairs,
    send,
    stopped,
)
from tests.unit.views.talking import said as answer

BEGINNING = "[The conversation begins here.]"


# -- late text ---------------------------------------------------------------------------------


def cut(session: Session) -> tuple[str, str]:
    with stopped(session) as turn, turn.stream() as reply:
        reply.text("Kelp holds ")
        raise KeyboardInterrupt
    return turn.id, reply.id


def test_the_rest_of_an_answer_takes_its_place(session: Session) -> None:
    session.add_late_text(*cut(session), "Kelp holds on.")
    assert lines(session) == ["user: Go.", "assistant: Kelp holds on.", f"user: {STOPPED}"]


def test_the_rest_of_an_answer_that_was_sent_is_told_as_text_once(session: Session) -> None:
    turn_id, message_id = cut(session)
    send(session)
    before = lines(session)
    session.add_late_text(turn_id, message_id, "Kelp holds on.")
    told = "user: [The answer that was cut off above went on:]\non."
    assert lines(session) == [*before, told]
    send(session, "Last.")
    assert lines(session)[len(before) :] == [told, "user: Last.", "assistant: Yes."]


# -- places ------------------------------------------------------------------------------------


def test_an_answer_stands_where_it_started() -> None:
    note = e.MessageRecorded(id="p2", turn_id=TURN, role="user", parts=(Text("Hurry."),))
    context = by_hand(begun(), opened("m1"), note, closed(Text("Done."), id="m1"))
    assert lines(context) == ["assistant: Done.", "user: Hurry."]


def test_an_answer_that_was_not_sent_with_what_came_after_it_stands_behind_that() -> None:
    """What a model was sent keeps its place; this began before and was not in it."""
    note = e.MessageRecorded(id="p2", turn_id=TURN, role="user", parts=(Text("Hurry."),))
    call = e.ModelCallStarted(id="k1", turn_id=TURN)
    context = by_hand(begun(), opened("m1"), note, call, closed(Text("Done."), id="m1"))
    assert lines(context) == ["user: Hurry.", "assistant: Done."]


def test_empty_text_is_left_out(session: Session) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[Text(" \n"), Text("Yes."), Text("")]))
    assert lines(session) == ["user: Go.", "assistant: Yes."]


def test_an_empty_message_is_left_out_and_that_is_said(session: Session) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[Text("")]))
    assert lines(session) == ["user: Go."]
    assert repairs(session) == [("left out", "the message is empty")]


def test_what_a_system_prompt_cannot_hold_is_left_out_and_that_is_said(session: Session) -> None:
    with session.turn() as turn:
        opaque = Opaque("anthropic", b"{}")
        turn.record(Message("system", [Text("Be brief."), opaque, Text("Be kind.")]))
        turn.record(Message("user", [Text("Go.")]))
    assert session.context("openai-chat").system == "Be brief.\nBe kind."
    assert repairs(session) == [("left out", "opaque in a system prompt, which is text")]


@pytest.mark.parametrize("format_", ["anthropic", "gemini"])
def test_a_leading_answer_is_given_something_to_answer(session: Session, format_: str) -> None:
    with session.turn() as turn:
        turn.record(answer("Hello."))
    context = session.context(format_)  # type: ignore[arg-type]
    first, second = context.messages
    assert first["role"] == "user"
    assert BEGINNING in json.dumps(first)
    assert second["role"] != "user"
    assert context.explain() == [(0, ()), (1, (3,))]


@pytest.mark.parametrize("format_", ["openai-chat", "openai-responses"])
def test_a_leading_answer_may_stand_first_where_it_is_taken(session: Session, format_: str) -> None:
    with session.turn() as turn:
        turn.record(answer("Hello."))
    assert len(session.context(format_).messages) == 1  # type: ignore[arg-type]


# -- prompts -----------------------------------------------------------------------------------


def test_two_prompts_in_a_row_stay_two(session: Session) -> None:
    """But in Chat Completions, where templates refuse two user messages in a row."""
    for prompt in ("First.", "Second."):
        with session.turn(prompt):
            pass
    (chat,) = session.context("openai-chat").messages
    assert chat["content"] == "First.\n\n[The message above was not answered.]\n\nSecond."
    apart = session.context("openai-chat", profile="apart").messages
    assert [one["content"] for one in apart] == ["First.", "Second."]
    responses = session.context("openai-responses").messages
    assert [one["content"][0]["text"] for one in responses] == ["First.", "Second."]
    (claude,) = session.context("anthropic").messages
    assert [block["text"] for block in claude["content"]] == ["First.", "Second."]
    (gemini,) = session.context("gemini").messages
    assert [part["text"] for part in gemini["parts"]] == ["First.", "Second."]


def test_a_prompt_without_an_answer_is_told_to_have_been_interrupted(session: Session) -> None:
    with stopped(session, "First."):
        pass
    with session.turn("Second."):
        assert lines(session) == ["user: First.", f"user: {STOPPED}", "user: Second."]


def test_the_text_of_a_tool_message_is_the_persons(session: Session) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="tool", parts=[Text("from a hook")]))
    assert lines(session) == ["user: Go.", "user: from a hook"]


# -- endings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cause", "reason", "told"),
    [
        ("cancelled", "x", "interrupted before it was complete: it was cancelled."),
        ("crashed", "cancelled", "interrupted before it was complete: the program crashed."),
        ("stopped", "crashed", "interrupted before it was complete: it was stopped (crashed)."),
        ("of a newer version", "x", "interrupted before it was complete: it was stopped (x)."),
        ("other", None, "interrupted before it was complete: it was stopped."),
        ("failed", "ValueError", "failed before it was complete: ValueError."),
    ],
)
def test_an_ending_is_told_by_its_cause(cause: str, reason: str | None, told: str) -> None:
    failed = cause == "failed"
    ending = e.TurnEnding(
        turn_id="t",
        status="failed" if failed else "interrupted",
        reason=f"{reason}: no such file /srv/db" if failed else reason,
        cause=cause,
        error_type=reason if failed else None,
    )
    sentence = ended(ending, [], waits=False)
    assert sentence.startswith("[The turn above ")
    assert told in sentence


def test_what_still_waits_for_an_approval_is_told_by_the_journal(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
        turn.ask_approval("c1", "{}")
    assert "while it waited for an approval" in lines(session)[-1]
    with stopped(session) as turn:
        asks(turn, "c2")
        asked = turn.ask_approval("c2", "{}")
        session.decide_approval(asked, approved=False)
    assert lines(session)[-1] == f"user: {STOPPED}"


def test_an_ending_is_told_once_behind_its_turn(session: Session) -> None:
    with stopped(session) as turn:
        turn.record(answer("I begin."))
    send(session)
    send(session)
    told = lines(session)
    assert told.count(f"user: {STOPPED}") == 1
    assert told[2] == f"user: {STOPPED}"


def test_a_completed_turn_is_not_told_to_have_ended(session: Session) -> None:
    send(session, "Go.")
    assert lines(session) == ["user: Go.", "assistant: Yes."]


def test_an_answer_that_broke_off_in_a_turn_that_went_on_is_said_to_have(session: Session) -> None:
    with session.turn("Go.") as turn:
        with dropped(turn) as reply:
            reply.text("Kelp ho")
        with turn.stream() as reply:
            reply.text("Kelp holds on.")
    assert lines(session)[1:] == [
        "assistant: Kelp ho",
        f"user: {CUT_OFF}",
        "assistant: Kelp holds on.",
    ]


def test_a_broken_attempt_that_said_nothing_leaves_no_trace(session: Session) -> None:
    with session.turn("Go.") as turn:
        with dropped(turn):
            pass
        with turn.stream() as reply:
            reply.text("Yes.")
    assert lines(session) == ["user: Go.", "assistant: Yes."]


# -- system ------------------------------------------------------------------------------------


def test_the_system_prompt_is_that_of_the_newest_model_call(session: Session) -> None:
    assert session.context("anthropic").system is None
    for system in ("Be brief.", "Be kind."):
        with session.turn("Go.") as turn, turn.stream(system=system) as reply:
            reply.text("Yes.")
    assert session.context("anthropic").system == "Be kind."


def test_an_empty_system_prompt_is_none(session: Session) -> None:
    with session.turn("Go.") as turn, turn.stream(system="") as reply:
        reply.text("Yes.")
    assert session.context("anthropic").system is None


def test_leading_system_messages_are_the_system_prompt(session: Session) -> None:
    with session.turn(Message(role="system", parts=[Text("Be brief.")])) as turn:
        turn.record(Message(role="system", parts=[Text("Be kind.")]))
        turn.record(Message(role="user", parts=[Text("Go.")]))
    context = session.context("openai-chat")
    assert context.system == "Be brief.\nBe kind."
    assert context.messages == [{"role": "user", "content": "Go."}]


def test_a_later_system_message_stays_one_where_that_is_possible(session: Session) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="system", parts=[Text("Be kind.")]))
    assert session.context("openai-chat").messages[1] == {"role": "system", "content": "Be kind."}
    assert session.context("openai-responses").messages[1]["role"] == "system"
    (claude,) = session.context("anthropic").messages
    assert [block["text"] for block in claude["content"]] == ["Go.", "[System: Be kind.]"]
    (gemini,) = session.context("gemini").messages
    assert gemini["parts"][1] == {"text": "[System: Be kind.]"}


# -- results in their place --------------------------------------------------------------------


def test_results_open_the_next_user_message_for_anthropic(session: Session) -> None:
    with stopped(session) as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c1", "shell", "{}")]))
    context = session.context("anthropic")
    assert [block["type"] for block in context.messages[-1]["content"]] == ["tool_result", "text"]
    assert validators.anthropic(context.messages, complete=True) == []


def test_responses_stand_alone_behind_their_calls_for_gemini(session: Session) -> None:
    with stopped(session) as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c1", "shell", "{}")]))
    context = session.context("gemini")
    kinds = [[next(iter(part)) for part in one["parts"]] for one in context.messages]
    assert kinds == [["text"], ["function_call"], ["function_response"], ["text"]]
    assert context.messages[2]["parts"][0]["function_response"]["name"] == "shell"


def test_white_space_at_the_end_of_an_answer_is_left_out_for_anthropic(session: Session) -> None:
    with session.turn("Go.") as turn:
        turn.record(answer("Yes. \n"))
    assert session.context("anthropic").messages[1]["content"][0]["text"] == "Yes."
    assert session.context("openai-chat").messages[1]["content"] == "Yes. \n"


def test_a_message_of_the_journal_alone_says_nothing_of_a_turn() -> None:
    assert lines(by_hand(begun(), said(Text("Hello.")))) == ["assistant: Hello."]
