"""Profiles: what a server behind a format needs, and who counts as the one that signed."""

import json
import re
from contextlib import suppress
from typing import Any

import pytest

from killick import (
    File,
    InvalidEntry,
    Message,
    Opaque,
    Part,
    Reasoning,
    Session,
    Store,
    Text,
    ToolCall,
)
from killick.views import validators
from killick.views.context import FORMATS
from killick.views.profiles import DEFAULTS, PROFILES, SIGNERS, choose, is_signed_by
from tests.unit.views.talking import said


def loop(session: Session, *, provider: str | None, model: str | None = None) -> None:
    """A thought, a call and its result, and a turn that goes on."""
    with session.turn("Go.") as turn:
        with turn.stream(provider=provider, model=model) as reply:
            reply.reasoning("The log first.")
            reply.tool_call("call_1", name="shell", arguments="{}")
        with turn.tool("call_1") as call:
            call.finish("done")


def answers(session: Session, **options: Any) -> list[dict[str, Any]]:
    messages = session.context("openai-chat", **options).messages
    return [message for message in messages if message["role"] == "assistant"]


# -- the table ---------------------------------------------------------------------------------


def test_every_row_fits_formats_that_exist_and_says_its_source() -> None:
    for row in PROFILES.values():
        assert set(row.formats) <= set(FORMATS)
        assert row.source
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.read)
    assert all(format_ in PROFILES[name].formats for format_, name in DEFAULTS.items())


@pytest.mark.parametrize("name", ["yaml", "mistral", "", "Anthropic"])
def test_an_unknown_or_unfitting_profile_is_refused_with_the_list(
    session: Session, name: str
) -> None:
    with pytest.raises(ValueError, match="anthropic, bedrock, vertex"):
        session.context("anthropic", profile=name)
    with pytest.raises(ValueError, match="none"):
        session.context("neutral", profile="anthropic")


def test_the_provider_that_answered_last_chooses(session: Session) -> None:
    assert choose("openai-chat", None, "DeepSeek") is PROFILES["deepseek"]
    assert choose("openai-chat", None, "Moonshot_AI") is PROFILES["openai"]
    assert choose("openai-chat", None, "vllm", "mistralai/Devstral") is PROFILES["mistral"]
    assert choose("openai-chat", None, "vllm", "Qwen3") is PROFILES["vllm"]
    assert choose("anthropic", None, "deepseek") is PROFILES["anthropic"]
    loop(session, provider="deepseek")
    assert answers(session)[0]["reasoning_content"] == "The log first."
    assert "reasoning_content" not in answers(session, profile="openai")[0]


# -- reasoning ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["deepseek", "kimi", "qwen"])
def test_reasoning_goes_back_to_those_that_want_it(session: Session, name: str) -> None:
    loop(session, provider=name)
    (answer,) = answers(session)
    assert answer["reasoning_content"] == "The log first."
    context = session.context("openai-chat")
    assert validators.openai_chat_of(name, context.messages) == []
    assert validators.openai_chat(context.messages) != []


def test_it_is_left_out_when_it_is_not_asked_for(session: Session) -> None:
    loop(session, provider="qwen")
    assert "reasoning_content" not in answers(session, reasoning=False)[0]


@pytest.mark.parametrize(("name", "filler"), [("deepseek", ""), ("kimi", ".")])
def test_an_answer_of_another_has_the_key_without_which_the_request_is_refused(
    session: Session, name: str, filler: str
) -> None:
    loop(session, provider="openai")
    assert answers(session, profile=name)[0]["reasoning_content"] == filler


def test_reasoning_details_go_back_to_openrouter_in_one_piece(session: Session) -> None:
    pieces = [
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "The log "}]},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "first."}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "Zm9v"}]},
    ]
    with session.turn("Go.") as turn, turn.stream(provider="openrouter") as reply:
        reply.text("Yes.")
        reply.part(Opaque("openai", json.dumps({"extra": pieces}).encode()))
    (answer,) = answers(session)
    assert answer["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "The log first."},
        {"type": "reasoning.encrypted", "index": 1, "data": "Zm9v"},
    ]
    assert "reasoning_details" not in answers(session, profile="openai")[0]


# -- mistral -----------------------------------------------------------------------------------


def test_mistral_has_ids_of_nine_and_an_answer_behind_results(session: Session) -> None:
    with suppress(KeyboardInterrupt), session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[ToolCall("call_0fypS1hVX", "shell", "{}")]))
        raise KeyboardInterrupt
    with session.turn("And now?"):
        context = session.context("openai-chat", profile="mistral")
    assert [message["role"] for message in context.messages] == [
        "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    (call,) = context.messages[1]["tool_calls"]
    assert re.fullmatch(r"[a-zA-Z0-9]{9}", call["id"])
    assert context.messages[2]["tool_call_id"] == call["id"]
    assert context.messages[3]["content"] == "[There was no answer.]"
    assert validators.openai_chat_of("mistral", context.messages) == []
    other = session.context("openai-chat").messages
    rules = {each.rule for each in validators.openai_chat_of("mistral", other)}
    assert rules == {"call-id", "user-after-tool"}


# -- prompts in a row --------------------------------------------------------------------------


def test_a_note_and_the_prompt_are_one_text(session: Session) -> None:
    with suppress(KeyboardInterrupt), session.turn("Go."):
        raise KeyboardInterrupt
    with session.turn("And now?"):
        (one,) = session.context("openai-chat").messages
        (parts,) = session.context("openai-chat", profile="parts").messages
        apart = session.context("openai-chat", profile="apart").messages
    note = "[The turn above was interrupted before it was complete: it was cancelled.]"
    assert one["content"] == f"Go.\n\n{note}\n\nAnd now?"
    assert [part["text"] for part in parts["content"]] == ["Go.", note, "And now?"]
    assert [message["content"] for message in apart] == ["Go.", note, "And now?"]
    assert {each.rule for each in validators.openai_chat(apart)} == {"two-users"}
    assert validators.openai_chat_of("apart", apart) == []


# -- signatures --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["anthropic", "Bedrock", "VERTEX", "Azure", "vertex_ai"])
def test_who_passes_signatures_on_counts_as_the_signer(session: Session, name: str) -> None:
    with session.turn("Go.") as turn:
        parts: list[Part] = [Reasoning("Hm.", signature="c2ln"), Text("Yes.")]
        turn.record(Message(role="assistant", parts=parts), provider=name)
    blocks = session.context("anthropic").messages[1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text"]


@pytest.mark.parametrize("name", ["openai", "gemini", "deepseek"])
def test_a_recorded_answer_names_its_provider(session: Session, name: str) -> None:
    with session.turn("Go.") as turn:
        parts: list[Part] = [Reasoning("Hm.", signature="c2ln"), Text("Yes.")]
        turn.record(Message(role="assistant", parts=parts), provider=name)
    blocks = session.context("anthropic").messages[1]["content"]
    assert [block["type"] for block in blocks] == ["text"]


def test_the_name_of_the_model_decides_between_makers() -> None:
    assert is_signed_by("anthropic", "vertex", "claude-sonnet-4")
    assert not is_signed_by("anthropic", "vertex", "gemini-3-pro")
    assert is_signed_by("gemini", "vertex", "gemini-3-pro")
    assert not is_signed_by("openai", "bedrock", "anthropic.claude-v4")
    assert all(names for names in SIGNERS.values())


# -- files and prompts -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text/plain", "text/csv", "text/markdown"])
def test_text_files_go_to_those_that_take_them(store: Store, session: Session, kind: str) -> None:
    paper = File(store.put_blob(b"bay;kelp\nnorth;12\n"), kind, "kelp.csv")
    with session.turn([Text("Sum it."), paper]):
        sent = {name: session.context(name).messages[0] for name in DEFAULTS}  # type: ignore[arg-type]
    assert sent["openai-chat"]["content"] == "Sum it.\n\n[File kelp.csv:]\nbay;kelp\nnorth;12\n"
    document = sent["anthropic"]["content"][1]
    assert document["source"]["data"] == "bay;kelp\nnorth;12\n"
    assert document["title"] == "kelp.csv"
    assert sent["gemini"]["parts"][1]["inline_data"]["mime_type"] == "text/plain"
    assert sent["openai-responses"]["content"][1]["filename"] == "kelp.csv"
    checks = (
        ("openai-chat", validators.openai_chat),
        ("anthropic", validators.anthropic),
        ("gemini", validators.gemini),
        ("openai-responses", validators.openai_responses),
    )
    for name, check in checks:
        assert check([sent[name]], None) == []


@pytest.mark.parametrize("prompt", ["", "  ", "\n", [], [Text(" ")]])
def test_an_empty_prompt_is_refused(session: Session, prompt: Any) -> None:
    head = session.head
    with pytest.raises(InvalidEntry, match="the prompt is empty"), session.turn(prompt):
        pass
    assert session.entries(after=head) == []


def test_opaque_data_that_nests_too_deeply_is_refused_when_it_is_given(session: Session) -> None:
    deep = Opaque("gemini", b'{"a":' + b"[" * 501 + b"]" * 501 + b"}")
    fine = Opaque("gemini", b'{"a":"' + b"[" * 5000 + b'"}')
    with session.turn("Go.") as turn:
        with pytest.raises(InvalidEntry, match="500 levels"):
            turn.record(Message(role="assistant", parts=[deep]))
        with turn.stream() as reply:
            with pytest.raises(InvalidEntry, match="500 levels"):
                reply.part(deep)
            reply.part(fine)
            reply.text("Yes.")
    assert len(session.context("gemini").messages) == 2


def test_imported_blocks_of_tools_that_anthropic_ran_go_back_in_pairs(session: Session) -> None:
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    alone = {**call, "id": "srvtoolu_2"}
    parts = [
        Opaque("anthropic-block", json.dumps(block).encode()) for block in (call, result, alone)
    ]
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[*parts, Text("Yes.")]))
        turn.record(said("Done."))
    context = session.context("anthropic")
    sent = context.messages[1]["content"]
    assert sent[:2] == [call, result]
    assert [block["type"] for block in sent[2:]] == ["text", "text", "text"]
    assert validators.anthropic(context.messages, context.system) == []
    assert "web_search" in json.dumps(session.context("openai-chat").messages)
