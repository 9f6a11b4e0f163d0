"""Reasoning goes back exactly as it came, to its own provider, or not at all."""

import json
from base64 import b64decode
from typing import Any

import pytest

from killick import Message, Reasoning, Session, Text
from killick.journal.redaction import MASK
from killick.model.messages import Opaque, Part, ToolCall
from killick.views import validators
from killick.views.context import Format

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


@pytest.mark.parametrize("format_", ["anthropic", "openai-responses", "gemini"])
@pytest.mark.parametrize("part", [SIGNED, Reasoning("In short.", "rs_7", "gAAA")])
def test_thinking_that_was_masked_before_its_signature_came_is_not_sent(
    session: Session, format_: Format, part: Reasoning
) -> None:
    """As it stands in stores of before: the mask under the signature, which a provider refuses."""
    masked = Reasoning(f"{part.text} {MASK * 9}", part.signature, part.encrypted)
    provider = {"openai-responses": "openai"}.get(format_, format_)
    think(session, masked, Text("Yes."), provider=provider)
    sent = json.dumps(session.context(format_).messages, ensure_ascii=False)
    assert MASK not in sent
    assert "c2ln" not in sent
    assert "gAAA" not in sent
    assert "Yes." in sent


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


def test_encrypted_reasoning_without_an_id_is_given_none(session: Session) -> None:
    # The API binds what is encrypted to its item's id, and refuses it under one that is made up.
    think(session, ENCRYPTED, Text("Yes."))
    context = session.context("openai-responses")
    assert "id" not in context.messages[1]
    assert validators.openai_responses(context.messages) == []


@pytest.mark.parametrize(("encrypted", "sent"), [("gAAA", True), (None, False)])
def test_what_the_provider_ran_goes_back_with_its_reasoning_or_as_text(
    session: Session, encrypted: str | None, *, sent: bool
) -> None:
    search = Opaque("openai", b'{"type": "web_search_call", "id": "ws_1", "status": "completed"}')
    with session.turn("Go.") as turn, turn.stream(provider="openai") as reply:
        reply.reasoning("I look.", signature="rs_1", encrypted=encrypted)
        reply.part(search)
        reply.text("Found.")
    context = session.context("openai-responses")
    types = [item["type"] for item in context.messages[1:]]
    assert types == (
        ["reasoning", "web_search_call", "message"] if sent else ["message", "message"]
    )
    assert any("a tool that openai ran" in one.reason for one in context.repairs) is not sent


def test_what_was_run_without_reasoning_goes_back(session: Session) -> None:
    with session.turn("Go.") as turn, turn.stream(provider="openai") as reply:
        reply.part(Opaque("openai", b'{"type": "web_search_call", "id": "ws_1"}'))
        reply.text("Found.")
    assert kinds(session, "openai-responses") == ["web_search_call", "message"]


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


@pytest.mark.parametrize(
    ("format_", "part"), [("anthropic", SIGNED), ("openai-responses", ENCRYPTED)]
)
def test_reasoning_that_nothing_follows_is_left_out_and_says_so(
    session: Session, format_: Format, part: Reasoning
) -> None:
    think(session, part)
    context = session.context(format_)
    assert len(context.messages) == 1
    assert [repair.reason for repair in context.repairs] == ["reasoning that nothing follows"]


def test_a_recorded_answer_keeps_its_reasoning(session: Session) -> None:
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[SIGNED, Text("Yes.")]))
    assert kinds(session, "anthropic") == ["thinking", "text"]


def test_a_compaction_up_to_a_model_call_does_not_forget_whose_answer_it_is(
    session: Session,
) -> None:
    think(session, Reasoning("", encrypted="gAAA"), Text("Yes."), provider="openai")
    asked = next(one.seq for one in session.entries() if one.kind == "model_call_started")
    session.compact(summary="They said go.", through=asked)
    assert kinds(session, "anthropic") == ["text"]
    assert kinds(session, "openai-responses") == ["reasoning", "message"]


def _gemini_parts(session: Session) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = session.context("gemini").messages[1]["parts"]
    return parts


def signs(signature: str) -> Opaque:
    return Opaque("gemini", b'{"thought_signature": "%s"}' % signature.encode())


def test_the_first_call_of_an_answer_is_signed_for_gemini(session: Session) -> None:
    """Its newer models refuse a call without a signature, whoever made it."""
    calls = ToolCall("c1", "f", "{}"), ToolCall("c2", "g", "{}")
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[*calls]))
        context = session.context("gemini")
        assert validators.gemini(context.messages, complete=True) == []
    first, second = _gemini_parts(session)
    assert b64decode(first["thought_signature"]) == b"skip_thought_signature_validator"
    assert "thought_signature" not in second


def test_a_signature_goes_with_its_own_part(session: Session) -> None:
    parts = ToolCall("c1", "f", "{}"), signs("b25l"), signs("dHdv")  # the second: an empty text's
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[*parts]))
    call, empty = _gemini_parts(session)
    assert call["thought_signature"] == "b25l"
    assert empty == {"text": "", "thought_signature": "dHdv"}


def test_a_signature_of_what_is_not_sent_is_not_sent(session: Session) -> None:
    parts = Text("So."), Reasoning("I think."), signs("b25l")
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[*parts]))
    assert _gemini_parts(session) == [{"text": "So."}]
