"""Reasoning goes back exactly as it came, to its own provider, or not at all."""

import pytest

from holdfast import Message, Reasoning, Session, Text
from holdfast.model.parts import Part
from holdfast.views.context import Format

SIGNED = Reasoning("I think.", signature="c2ln")
ENCRYPTED = Reasoning("In short.", encrypted="gAAA")
UNSIGNED = Reasoning("I think.")


def think(session: Session, *parts: Part, provider: str | None = None) -> None:
    """An answer that was streamed from this provider."""
    with session.turn("Go.") as turn, turn.stream(provider=provider) as reply:
        for part in parts:
            if isinstance(part, Reasoning):
                reply.reasoning(part.text, signature=part.signature, encrypted=part.encrypted)
            elif isinstance(part, Text):
                reply.text(part.text)


def kinds(session: Session, format_: Format, *, reasoning: bool = True) -> list[str]:
    """What the answer is made of."""
    messages = session.context(format_, reasoning=reasoning).messages[1:]
    if format_ == "openai-responses":
        return [one["type"] for one in messages]
    if format_ == "gemini":
        return ["thought" if "thought" in part else "text" for part in messages[0]["parts"]]
    return [block["type"] for block in messages[0]["content"]]


def test_signed_thinking_goes_back_exactly(session: Session) -> None:
    think(session, SIGNED, Text("Yes."), provider="anthropic")
    thinking, _ = session.context("anthropic").messages[1]["content"]
    assert thinking == {"type": "thinking", "thinking": "I think.", "signature": "c2ln"}


def test_redacted_thinking_goes_back_exactly(session: Session) -> None:
    think(session, Reasoning("", encrypted="gAAA"), Text("Yes."), provider="anthropic")
    thinking, _ = session.context("anthropic").messages[1]["content"]
    assert thinking == {"type": "redacted_thinking", "data": "gAAA"}


def test_encrypted_reasoning_goes_back_exactly(session: Session) -> None:
    part = Reasoning("In short.", signature="rs_7", encrypted="gAAA")
    think(session, part, Text("Yes."), provider="openai")
    assert session.context("openai-responses").messages[1] == {
        "type": "reasoning",
        "id": "rs_7",
        "summary": [{"type": "summary_text", "text": "In short."}],
        "encrypted_content": "gAAA",
    }


def test_encrypted_reasoning_without_an_id_is_given_one(session: Session) -> None:
    think(session, ENCRYPTED, Text("Yes."))
    assert session.context("openai-responses").messages[1]["id"].startswith("rs_")


def test_signed_thoughts_go_back_exactly(session: Session) -> None:
    think(session, SIGNED, Text("Yes."), provider="gemini")
    thought, _ = session.context("gemini").messages[1]["parts"]
    assert thought == {"text": "I think.", "thought": True, "thought_signature": "c2ln"}


@pytest.mark.parametrize("format_", ["anthropic", "gemini", "openai-responses"])
def test_unsigned_reasoning_is_never_sent(session: Session, format_: Format) -> None:
    think(session, UNSIGNED, Text("Yes."))
    assert kinds(session, format_) in (["text"], ["message"])


@pytest.mark.parametrize(
    ("format_", "part"),
    [("anthropic", SIGNED), ("gemini", SIGNED), ("openai-responses", ENCRYPTED)],
)
def test_reasoning_of_another_provider_is_not_sent(
    session: Session, format_: Format, part: Part
) -> None:
    think(session, part, Text("Yes."), provider="elsewhere")
    assert len(kinds(session, format_)) == 1


@pytest.mark.parametrize(
    ("format_", "part"),
    [("anthropic", SIGNED), ("gemini", SIGNED), ("openai-responses", ENCRYPTED)],
)
def test_reasoning_is_kept_when_nobody_said_whose_it_is(
    session: Session, format_: Format, part: Part
) -> None:
    think(session, part, Text("Yes."))
    assert len(kinds(session, format_)) == 2


@pytest.mark.parametrize(
    ("format_", "part"),
    [("anthropic", SIGNED), ("gemini", SIGNED), ("openai-responses", ENCRYPTED)],
)
def test_reasoning_is_left_out_on_request(session: Session, format_: Format, part: Part) -> None:
    think(session, part, Text("Yes."))
    assert len(kinds(session, format_, reasoning=False)) == 1


@pytest.mark.parametrize(
    ("format_", "part"), [("anthropic", SIGNED), ("openai-responses", ENCRYPTED)]
)
def test_reasoning_that_nothing_follows_is_left_out(
    session: Session, format_: Format, part: Part
) -> None:
    think(session, Text("Yes."), part)
    assert len(kinds(session, format_)) == 1


@pytest.mark.parametrize("format_", ["anthropic", "openai-responses"])
def test_an_answer_of_reasoning_alone_is_no_message(session: Session, format_: Format) -> None:
    think(session, Reasoning("", signature="c2ln", encrypted="gAAA"))
    assert len(session.context(format_).messages) == 1


@pytest.mark.parametrize("format_", ["anthropic", "gemini"])
def test_signed_text_that_cannot_be_sent_exactly_is_left_out(
    session: Session, format_: Format
) -> None:
    think(session, Reasoning("\ud800", signature="c2ln"), Text("Yes."))
    assert kinds(session, format_) == ["text"]


def test_a_signature_that_is_no_base64_is_not_sent_to_gemini(session: Session) -> None:
    think(session, Reasoning("I think.", signature="not base64!"), Text("Yes."))
    assert kinds(session, "gemini") == ["text"]


def test_no_reasoning_is_sent_to_chat(session: Session) -> None:
    think(session, SIGNED, ENCRYPTED, Text("Yes."))
    answer = session.context("openai-chat").messages[1]
    assert answer == {"role": "assistant", "content": "Yes."}


def test_a_recorded_answer_keeps_its_reasoning(session: Session) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[SIGNED, Text("Yes.")]))
    assert kinds(session, "anthropic") == ["thinking", "text"]
