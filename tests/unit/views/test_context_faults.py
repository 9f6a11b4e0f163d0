"""What the views once got wrong."""

import json
from contextlib import suppress
from typing import Any

import pytest

from killick import Image, Message, Opaque, Reasoning, Session, Store, Text, ToolCall, ToolResult
from killick.model import entries as e
from killick.views import validators
from killick.views.context import Format
from killick.views.transcript import transcript
from tests.unit.journal.making import TURN, begun, closed, ended, no_deltas, opened, ran, said
from tests.unit.journal.making import entries as journal
from tests.unit.views.talking import STOPPED, asks, by_hand, dropped, lines, stopped

VALIDATORS: dict[Format, Any] = {
    "openai-chat": validators.openai_chat,
    "openai-responses": validators.openai_responses,
    "anthropic": validators.anthropic,
    "gemini": validators.gemini,
}
PROVIDERS = list(VALIDATORS)


def broken(session: Session, format_: Format) -> list[validators.Violation]:
    context = session.context(format_)
    found: list[validators.Violation] = VALIDATORS[format_](context.messages, context.system)
    return found


# -- the truth about tools ---------------------------------------------------------------------


def test_a_custom_tool_that_ran_in_a_partial_answer_keeps_its_result(session: Session) -> None:
    with stopped(session) as turn, turn.stream() as reply:
        reply.tool_call("c1", name="run", arguments="rm x", tool_type="custom", done=True)
        with turn.tool("c1") as call:
            call.finish("removed")
        raise KeyboardInterrupt
    assert "result c1: removed" in lines(session)
    assert "did not run" not in str(lines(session))


def test_a_call_that_was_cut_off_is_told_of_where_its_turn_ended_and_nowhere_else(
    session: Session,
) -> None:
    with stopped(session) as turn, turn.stream() as reply:
        reply.text("I look")
        reply.tool_call("c1", name="shell", arguments='{"comm')
        raise KeyboardInterrupt
    session.add_late_text(turn.id, reply.id, "I look there")
    with stopped(session):
        pass
    told = [line for line in lines(session) if "A call to shell was cut off" in line]
    assert (len(told), lines(session)[-1]) == (1, f"user: {STOPPED}")


def test_late_text_does_not_turn_a_cut_off_call_into_a_call(session: Session) -> None:
    with stopped(session) as turn, turn.stream() as reply:
        reply.text("I look")
        reply.tool_call("c1", name="shell", arguments='{"comm')
        raise KeyboardInterrupt
    session.add_late_text(turn.id, reply.id, "I look around.")
    assert not [one for one in lines(session) if one.startswith(("call", "result"))]


def test_what_was_cut_off_is_told_when_its_turn_completes(session: Session) -> None:
    with session.turn("Go.") as turn, dropped(turn) as reply:
        reply.text("Kelp ho")
        reply.tool_call("c1", name="shell", arguments='{"comm')
    assert "cut off" in lines(session)[-1]


def test_the_transcript_gives_no_call_the_result_of_another_turn(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
    with session.turn("Again.") as turn:
        asks(turn, "c1")
        turn.record(Message(role="tool", parts=[ToolResult("c1", "done")]))
    states = [one.tools[0].state for one in session.transcript() if one.tools]
    assert states == ["not started", "finished"]


def test_the_transcript_shows_what_a_tool_printed_late() -> None:
    late = e.LateText(
        turn_id=TURN,
        message_id="m1",
        call_id="c1",
        deltas=(e.Delta(0, 0, "output", "1 of 3"),),
    )
    written = journal(
        begun(), said(ToolCall("c1", "shell", "{}")), ran(), ended("interrupted", "x"), late
    )
    assert transcript(written, no_deltas)[0].tools[0].output == "1 of 3"


def test_the_timeline_ends_the_tool_that_ended(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        with suppress(KeyboardInterrupt), turn.tool("c1"):
            raise KeyboardInterrupt
        asks(turn, "c1")
        with turn.tool("c1") as call:
            call.finish("done")
    assert [tool.is_error for tool in session.timeline()[0].tools] == [None, False]


# -- what a provider refuses -------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_opaque_data_of_any_shape_leaves_the_context_readable(
    session: Session, provider: str
) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[Opaque(provider, b"{}")]))
    for format_ in PROVIDERS:
        assert broken(session, format_) == []


@pytest.mark.parametrize("format_", PROVIDERS)
@pytest.mark.parametrize("written", ['{"a": "\\ud800"}', '{"a": 1e999}'])
def test_arguments_can_be_sent(session: Session, format_: Format, written: str) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c1", "shell", written)]))
    assert broken(session, format_) == []


@pytest.mark.parametrize("format_", PROVIDERS)
@pytest.mark.parametrize("name", ["7zip", "-v", "7" + "z" * 70, "a.b/c d"])
def test_a_tool_has_a_name_that_can_be_sent(session: Session, format_: Format, name: str) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("c1", name, "{}")]))
    assert broken(session, format_) == []


def test_two_encrypted_thoughts_of_one_answer_are_accepted(session: Session) -> None:
    thoughts = Reasoning("a", encrypted="x"), Reasoning("b", encrypted="y")
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[*thoughts, Text("Yes.")]))
    assert broken(session, "openai-responses") == []


@pytest.mark.parametrize("ids", [("rs_1", "rs_1"), ("rs_ä b", "rs_2")])
def test_ids_of_thoughts_are_unique_and_of_the_right_form(
    session: Session, ids: tuple[str, str]
) -> None:
    with session.turn("Go.") as turn:
        for one in ids:
            thought = Reasoning("a", signature=one, encrypted="x")
            turn.record(Message(role="assistant", parts=[thought, Text("Yes.")]))
    assert broken(session, "openai-responses") == []


@pytest.mark.parametrize("format_", PROVIDERS)
def test_a_call_that_no_model_made_is_no_call(session: Session, format_: Format) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="user", parts=[ToolCall("c1", "shell", "{}")]))
    assert broken(session, format_) == []


@pytest.mark.parametrize("format_", PROVIDERS)
def test_a_system_prompt_can_be_sent(session: Session, format_: Format) -> None:
    with session.turn(Message(role="system", parts=[Text("Be \ud800.")])):
        pass
    assert broken(session, format_) == []


@pytest.mark.parametrize("format_", PROVIDERS)
def test_a_system_prompt_of_white_space_is_none(session: Session, format_: Format) -> None:
    with session.turn("Go.") as turn, turn.stream(system=" \n") as reply:
        reply.text("Well.")
    assert session.context(format_).system is None
    assert broken(session, format_) == []


@pytest.mark.parametrize("format_", PROVIDERS)
def test_an_image_of_another_type_is_sent_as_that_or_left_out(
    store: Store, session: Session, format_: Format
) -> None:
    jpeg = store.put_blob(b"\xff\xd8\xff\xe0" + bytes(40))
    with session.turn([Text("Look."), Image(jpeg, "image/png")]):
        pass
    assert broken(session, format_) == []


def test_structured_content_is_sent_to_anthropic_too(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        with turn.tool("c1") as call:
            call.finish("", structured={"rows": 42})
    assert "42" in json.dumps(session.context("anthropic").messages)


# -- late text ---------------------------------------------------------------------------------


def test_late_text_tells_the_text_alone() -> None:
    deltas = (
        e.Delta(0, 4, "text", " holds."),
        e.Delta(1, 0, "reasoning", "secret"),
        e.Delta(2, 0, "arguments", '{"a": 1}', ToolCall("c1", "shell")),
    )
    context = by_hand(
        begun(),
        opened(),
        closed(Text("Kelp"), state="partial"),
        ended("interrupted", "taken_over"),
        e.ModelCallStarted(id="k1", turn_id="turn_2"),
        e.LateText(turn_id=TURN, message_id="m1", deltas=deltas),
    )
    assert "secret" not in lines(context)[-1]
    assert lines(context)[-1].startswith(
        "user: [The answer that was cut off above went on:]\n holds."
    )


def test_late_text_of_an_empty_answer_takes_its_place(session: Session) -> None:
    with stopped(session) as turn, turn.stream() as reply:
        reply.text("\n")
        raise KeyboardInterrupt
    session.add_late_text(turn.id, reply.id, "\nYes.")
    assert lines(session) == ["user: Go.", "assistant: \nYes.", f"user: {STOPPED}"]


# -- loud, never silent ------------------------------------------------------------------------


@pytest.mark.parametrize("format_", PROVIDERS)
def test_an_image_that_was_replaced_is_in_the_repairs(
    store: Store, session: Session, format_: Format
) -> None:
    with session.turn([Text("Look."), Image(store.put_blob(b"BM"), "image/bmp")]):
        pass
    assert session.context(format_).repairs != []


def test_an_unknown_way_to_show_partial_answers_is_refused(session: Session) -> None:
    with pytest.raises(ValueError, match="partial"):
        session.context("neutral", partial="never")  # type: ignore[arg-type]
