"""Plain lists of messages."""

import base64
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from killick import Image, Opaque, Reasoning, Store, ToolCall
from killick.exchange.formats import content as c
from killick.exchange.formats.message_lists import message_list
from killick.exchange.records import Source
from killick.journal.codec import encode
from killick.model.messages import OWN_PROVIDER
from killick.stores.memory import MemoryDisk
from tests.exchange.checks import PNG, check_sound
from tests.exchange.sources import bring, kinds, mutate, said, twisted

PICTURE = base64.b64encode(PNG).decode()

CHAT: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ]},
    {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"a\": 1}"}},
        {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}},
    ]},
    {"role": "tool", "tool_call_id": "c1", "content": "a dot"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "patched"}]},
    {"role": "assistant", "content": "It is a dot."},
    {"role": "user", "content": "And this?"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "c3", "type": "function", "function": {"name": "look", "arguments": "{}"}},
    ]},
]  # fmt: skip

MESSAGES: dict[str, Any] = {
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "AAAA"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [
                {"type": "text", "text": "nothing"},
                {"type": "image", "source": {
                    "type": "base64", "media_type": "image/png", "data": PICTURE}},
            ]},
            {"type": "text", "text": "Hurry."},
        ]},
        {"role": "assistant", "content": [{"type": "text", "text": "Nothing is there."}]},
    ],
}  # fmt: skip


def source(folder: Path, document: Any, *, settled: bool = True) -> Source:
    path = folder / "list.json"
    path.write_text(json.dumps(document))
    return message_list(path, at_us=1_700_000_000_000_000, settled=settled)


def test_a_chat_list_keeps_its_structure(store: Store, tmp_path: Path) -> None:
    report = bring(store, source(tmp_path, CHAT))
    assert report.problems == []
    session = store.session(report.sessions[0].session_id)
    system, prompt, asking, first, second, answer, again, last = session.messages()
    assert (system.role, system.text) == ("system", "Be brief.")
    assert [type(part) for part in prompt.parts][1:] == [Image, Opaque]
    assert asking.parts == (
        Reasoning("Hm."),
        ToolCall("c1", "look", '{"a": 1}'),
        ToolCall("c2", "patch", "*** Begin", "custom"),
    )
    assert [first.parts[0].content, second.parts[0].content] == ["a dot", "patched"]  # type: ignore[union-attr]
    assert (answer.text, again.text, len(last.tool_calls)) == ("It is a dot.", "And this?", 1)
    assert [(turn.status, turn.reason) for turn in session.turns()] == [
        ("completed", None),
        ("interrupted", "unfinished"),
    ]
    assert session.entries()[0].at_us == 1_700_000_000_000_000
    check_sound(store)


def test_the_context_is_the_list_again(store: Store, tmp_path: Path) -> None:
    """What came in from a provider goes out to it as it was."""
    report = bring(store, source(tmp_path, CHAT[:1] + CHAT[3:6:2] + CHAT[6:7]))
    plain = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    report = bring(store, source(tmp_path, plain))
    session = store.session(report.sessions[0].session_id)
    assert session.context("openai-chat").messages == plain


def test_a_messages_list_keeps_its_structure(store: Store, tmp_path: Path) -> None:
    report = bring(store, source(tmp_path, MESSAGES))
    assert report.problems == []
    session = store.session(report.sessions[0].session_id)
    roles = ["system", "user", "assistant", "tool", "user", "assistant"]
    assert [message.role for message in session.messages()] == roles
    asking = session.messages()[2]
    assert asking.parts[0] == Reasoning("Hm.", signature="c2ln")
    assert isinstance(asking.parts[1], Opaque)
    assert [turn.status for turn in session.turns()] == ["completed"]
    context = session.context("anthropic")
    assert context.system == "Be brief."
    assert context.messages[1]["content"][0]["signature"] == "c2ln"
    check_sound(store)


def test_what_anthropic_has_signed_is_sent_to_no_other(store: Store, tmp_path: Path) -> None:
    report = bring(store, source(tmp_path, MESSAGES))
    session = store.session(report.sessions[0].session_id)
    for format_ in ("gemini", "openai-chat", "openai-responses"):
        assert "c2ln" not in json.dumps(session.context(format_).messages)


def test_a_list_that_has_grown_adds_its_new_part(store: Store, tmp_path: Path) -> None:
    bring(store, source(tmp_path, CHAT[:6]))
    assert bring(store, source(tmp_path, CHAT[:6])).sessions[0].action == "unchanged"
    report = bring(store, source(tmp_path, CHAT, settled=False))
    assert (report.sessions[0].action, report.sessions[0].entries) == ("unchanged", 0)
    assert "left for the next import" in (report.sessions[0].why or "")
    grown = [*CHAT, {"role": "tool", "tool_call_id": "c3", "content": "more"},
             {"role": "assistant", "content": "More dots."}]  # fmt: skip
    report = bring(store, source(tmp_path, grown))
    assert report.sessions[0].action == "grown"
    session = store.session(report.sessions[0].session_id)
    assert said(session)[-1] == ("assistant", "More dots.")
    assert kinds(session).count("imported") == 2
    check_sound(store)


def test_a_list_is_known_by_where_it_is_and_not_by_how_that_is_written(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions = []
    for place in ("a", "b", "a"):
        folder = tmp_path / place
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        said = [{"role": "user", "content": place}, {"role": "assistant", "content": "Yes."}]
        actions.append(bring(store, source(Path(), said)).sessions[0].action)
    actions.append(bring(store, source(tmp_path / "b" / ".." / "a", said)).sessions[0].action)
    assert actions == ["new", "new", "unchanged", "unchanged"]


def test_a_list_that_has_changed_becomes_a_fork(store: Store, tmp_path: Path) -> None:
    first = bring(store, source(tmp_path, CHAT)).sessions[0].session_id
    changed = [*CHAT[:6], {"role": "user", "content": "Something else."}]
    outcome = bring(store, source(tmp_path, changed)).sessions[0]
    assert (outcome.action, outcome.fork_of) == ("forked", first)
    assert said(store.session(outcome.session_id))[-1] == ("user", "Something else.")
    assert said(store.session(first))[-2] == ("user", "And this?")
    check_sound(store)


def test_bad_messages_are_named_by_their_row(store: Store, tmp_path: Path) -> None:
    document = [17, {"role": "user", "content": "Hi."}, {"role": "alien", "content": "x"},
                {"role": "tool", "content": "x"}, {"role": "assistant", "content": 3},
                {"role": "tool", "tool_call_id": "none", "content": "kept"},
                {"role": "assistant", "content": "Hello.", "tool_calls": [{"id": 3}]}]  # fmt: skip
    report = bring(store, source(tmp_path, document))
    assert [(one.kind, one.location.line) for one in report.problems] == [
        ("skipped", 1), ("skipped", 3), ("skipped", 4), ("skipped", 5), ("skipped", 7),
        ("repaired", 6),
    ]  # fmt: skip
    session = store.session(report.sessions[0].session_id)
    assert said(session) == [("user", "Hi."), ("assistant", "Hello.")]
    assert "note" in kinds(session)
    assert report.exit_code == 3


@pytest.mark.parametrize("document", [CHAT, MESSAGES], ids=["chat", "messages"])
@pytest.mark.parametrize("block", range(6))
def test_damaged_lists_come_in_as_far_as_they_are_whole(
    tmp_path: Path, document: Any, block: int
) -> None:
    data = json.dumps(document, indent=1).encode()
    seeds = range(block * 10, block * 10 + 10)
    mutate(data, tmp_path, "list.json", seeds, lambda path: [
        message_list(path, at_us=0, settled=True)])  # fmt: skip


@pytest.mark.parametrize("document", [CHAT, MESSAGES], ids=["chat", "messages"])
@pytest.mark.parametrize("block", range(6))
def test_strange_values_come_in_as_what_they_are(tmp_path: Path, document: Any, block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        data = json.dumps(twisted(document, Random(seed))).encode()
        path = tmp_path / "list.json"
        path.write_bytes(data)
        with Store(MemoryDisk().open()) as store:
            bring(store, message_list(path, at_us=0, settled=True))
            check_sound(store)


def test_half_a_character_in_a_tools_result_is_kept() -> None:
    inner = [{"type": "thinking", "thinking": "\ud83d"}]
    found = c.anthropic([{"type": "tool_result", "tool_use_id": "t1", "content": inner}])
    assert found.results[0].content == (Opaque(OWN_PROVIDER, encode(Reasoning("\ud83d"))),)
