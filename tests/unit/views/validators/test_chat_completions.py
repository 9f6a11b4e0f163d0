"""OpenAI Chat Completions: every rule, with what it accepts and the least that breaks it."""

import base64
from typing import Any

import pytest

from killick.views.validators import Violation, chat_completions, openai_chat, openai_chat_of
from tests.sdk_types import Changed, accept_openai_chat

PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (2).to_bytes(4, "big") + (3).to_bytes(4, "big")
).decode()
ASK: dict[str, Any] = {"role": "user", "content": "Hello"}
SAY: dict[str, Any] = {"role": "assistant", "content": "Hi"}


def call(call_id: str = "c1", name: str = "shell", arguments: str = "{}") -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def calls(*made: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(made)}


def result(call_id: str = "c1", content: Any = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def text(of: str = "Look") -> dict[str, Any]:
    return {"type": "text", "text": of}


def image(url: str = f"data:image/png;base64,{PNG}") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


CASES: dict[str, tuple[list[Any], list[Any]]] = {
    "not-json": ([ASK], [ASK, {**SAY, "audio": {"id": b"x"}}]),
    "surrogate": ([{**ASK, "content": "\U0001f600"}], [{**ASK, "content": "\ud83d"}]),
    "request-size": ([ASK], [{**ASK, "content": "a" * (50 * 1024 * 1024)}]),
    "shape": ([ASK], [{"role": "user"}]),
    "unknown-key": ([{**ASK, "name": "ann"}], [{**ASK, "id": "m1"}]),
    "role": ([{**ASK, "role": "developer"}], [{**ASK, "role": "function"}]),
    "content-type": (
        [ASK, calls(call()), result(content=[text()])],
        [ASK, calls(call()), result(content=[{"type": "refusal", "refusal": "No"}])],
    ),
    "media-role": (
        [ASK, calls(call()), result(), user(image())],
        [ASK, calls(call()), result(content=[image()])],
    ),
    "empty-content": ([ASK, calls(call()), result()], [ASK, {**SAY, "content": None}]),
    "empty-text": ([user(text())], [user(text(""))]),
    "tool-name": (
        [ASK, calls(call(name="a" * 64)), result()],
        [ASK, calls(call(name="files.read")), result()],
    ),
    "call-id": (
        [ASK, calls(call("a" * 40)), result("a" * 40)],
        [ASK, calls(call("a" * 41)), result("a" * 41)],
    ),
    "duplicate-call-id": (
        [ASK, calls(call("c1"), call("c2")), result("c1"), result("c2")],
        [ASK, calls(call("c1"), call("c1")), result("c1")],
    ),
    "arguments": (
        [ASK, calls(call(arguments='{"command": "make"}')), result()],
        [ASK, calls(call(arguments='{"command": "ma')), result()],
    ),
    "missing-result": ([ASK, calls(call()), result()], [ASK, calls(call()), ASK]),
    "orphan-result": ([ASK, calls(call()), result()], [ASK, SAY, result()]),
    "duplicate-result": (
        [ASK, calls(call()), result()],
        [ASK, calls(call()), result(), result()],
    ),
    "media-type": ([user(image())], [user(image(f"data:image/bmp;base64,{'AAAA'}"))]),
    "media-size": (
        [user(image())],
        [user(image("data:image/png;base64," + "A" * (28 * 1024 * 1024)))],
    ),
    "base64": ([user(image("https://example.org/a.png"))], [user(image("data:image/png,AAAA"))]),
    "two-users": ([ASK, SAY, ASK], [ASK, ASK]),
    "image-count": ([user(*[image()] * 500)], [user(*[image()] * 501)]),
}

OF_SERVERS: dict[str, tuple[str, list[Any], list[Any]]] = {
    "user-after-tool": (
        "mistral",
        [ASK, calls(call("a" * 9)), result("a" * 9), SAY, ASK],
        [ASK, calls(call("a" * 9)), result("a" * 9), ASK],
    ),
    "no-reasoning": (
        "deepseek",
        [ASK, {**calls(call()), "reasoning_content": ""}, result()],
        [ASK, calls(call()), result()],
    ),
    "call-id": (
        "mistral",
        [ASK, calls(call("abcdefgh1")), result("abcdefgh1")],
        [ASK, calls(call("call_1")), result("call_1")],
    ),
    "unknown-key": (
        "qwen",
        [ASK, {**SAY, "reasoning_content": "Hm."}],
        [ASK, {**SAY, "reasoning_details": []}],
    ),
}


def rules(found: list[Violation]) -> list[str]:
    return [one.rule for one in found]


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_is_named_where_it_is_broken_and_only_there(rule: str) -> None:
    good, bad = CASES[rule]
    assert openai_chat(good) == []
    assert rules(openai_chat(bad)) == [rule]


@pytest.mark.parametrize("rule", OF_SERVERS)
def test_a_rule_of_one_server_is_named_there(rule: str) -> None:
    server, good, bad = OF_SERVERS[rule]
    assert openai_chat_of(server, good) == []
    assert rules(openai_chat_of(server, bad)) == [rule]


def test_every_rule_has_a_case() -> None:
    named = CASES.keys() | OF_SERVERS.keys() | {"empty-request", "ends-with-assistant"}
    assert named == chat_completions.RULES.keys()


def test_a_request_that_is_sent_now_has_a_message_and_leaves_the_answer_to_the_model() -> None:
    assert openai_chat([]) == []
    assert rules(openai_chat([], complete=True)) == ["empty-request"]
    assert openai_chat([ASK, SAY]) == []
    assert rules(openai_chat([ASK, SAY], complete=True)) == ["ends-with-assistant"]
    assert openai_chat([ASK, calls(call()), result()], complete=True) == []


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        ({**ASK, "content": ""}, "empty-content"),
        ({**ASK, "content": []}, "empty-content"),
        ({**SAY, "tool_calls": []}, "empty-content"),
        (user(image("data:image/jpeg;base64," + PNG)), "media-type"),
        (user({"type": "file", "file": {}}), "shape"),
        (user({"type": "file", "file": {"file_data": "AAAA", "filename": "a"}}), "base64"),
        (
            user({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "ogg"}}),
            "media-type",
        ),
        (7, "shape"),
        ({**ASK, "role": ["user"]}, "role"),
        (user({"text": "no type"}), "content-type"),
    ],
)
def test_other_ways_to_break_a_rule(message: Any, rule: str) -> None:
    assert rules(openai_chat([message])) == [rule]


def test_a_result_stands_directly_after_its_call() -> None:
    late = [ASK, calls(call()), ASK, result()]
    assert rules(openai_chat(late)) == ["missing-result", "orphan-result"]


@pytest.mark.parametrize("arguments", ["[]", '"x"', "null", "", "1"])
def test_arguments_are_the_text_of_an_object(arguments: str) -> None:
    assert rules(openai_chat([ASK, calls(call(arguments=arguments)), result()])) == ["arguments"]


def test_an_id_may_come_again_in_a_later_message() -> None:
    again = [ASK, calls(call()), result(), calls(call()), result()]
    assert openai_chat(again) == []


def test_nothing_is_a_result_and_a_call_needs_no_words() -> None:
    assert openai_chat([ASK, {**calls(call()), "content": ""}, result(content="")]) == []


def test_a_lone_surrogate_in_the_system_prompt_is_found() -> None:
    assert openai_chat([ASK], "\udc00") == [
        Violation("surrogate", "system", "a lone surrogate at 0")
    ]


def test_the_place_is_a_path() -> None:
    (found,) = openai_chat([ASK, SAY, user(text(), text(""))])
    assert found.where == "messages[2].content[1]"


RICH: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    user(text("What is this?"), image(), text("And this file?")),
    calls(
        call("c1", arguments='{"command": "ls"}'),
        {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}},
    ),
    result("c2", [text("patched")]),
    result("c1", "Error: not found"),
    {"role": "assistant", "content": [text("It failed.")]},
    {"role": "developer", "content": "The user stopped the turn."},
    ASK,
]


def test_the_sdk_accepts_a_rich_conversation() -> None:
    assert openai_chat(RICH, complete=True) == []
    accept_openai_chat(RICH)


def test_the_sdk_refuses_what_is_deep_inside_and_what_it_would_drop() -> None:
    with pytest.raises(ValueError, match="text"):
        accept_openai_chat([user({"type": "text"})])
    with pytest.raises(Changed):
        accept_openai_chat([{**ASK, "id": "m1"}])
