"""OpenAI Responses: every rule, with what it accepts and the least that breaks it."""

import base64
from typing import Any

import pytest

from killick.views.validators import Violation, openai_responses, responses_items
from tests.sdk_types import Changed, accept_openai_responses

GIF = base64.b64encode(b"GIF89a\x02\x00\x03\x00\x00\x00").decode()
ASK: dict[str, Any] = {"role": "user", "content": "Hello"}
SAY: dict[str, Any] = {"role": "assistant", "content": "Hi"}


def call(call_id: str = "c1", name: str = "shell", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str = "c1", of: Any = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": of}


def custom(call_id: str = "c1") -> dict[str, Any]:
    return {"type": "custom_tool_call", "call_id": call_id, "name": "patch", "input": "not JSON"}


def custom_output(call_id: str = "c1") -> dict[str, Any]:
    return {"type": "custom_tool_call_output", "call_id": call_id, "output": "done"}


def reasoning(item_id: str = "rs_1") -> dict[str, Any]:
    return {"type": "reasoning", "id": item_id, "summary": []}


def message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": list(parts)}


def text(of: str = "Look", name: str = "input_text") -> dict[str, Any]:
    return {"type": name, "text": of}


def image(url: str = f"data:image/gif;base64,{GIF}") -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, "detail": "auto"}


CASES: dict[str, tuple[list[Any], list[Any]]] = {
    "not-json": ([ASK], [call(), output(), {"type": "mcp_call", "id": "mcp_1", "output": {1, 2}}]),
    "surrogate": ([{**ASK, "content": "\U0001f600"}], [{**ASK, "content": "\ud83d"}]),
    "request-size": ([ASK], [{**ASK, "content": "a" * (50 * 1024 * 1024)}]),
    "shape": ([call(), output()], [call(), {"type": "function_call_output", "call_id": "c1"}]),
    "unknown-key": ([reasoning(), SAY], [{**reasoning(), "status": "completed"}, SAY]),
    "item-type": ([{"type": "web_search_call", "id": "ws_1"}], [{"type": "tool_use"}]),
    "role": ([{**ASK, "role": "developer"}], [{**ASK, "role": "tool"}]),
    "content-type": (
        [message("assistant", text(name="output_text"))],
        [message("assistant", text())],
    ),
    "media-role": ([message("user", image())], [message("assistant", image())]),
    "empty-content": ([ASK], [message("user")]),
    "empty-text": ([message("user", text())], [message("user", text(""))]),
    "tool-name": ([call(name="a-b_1"), output()], [call(name="a b"), output()]),
    "item-id": ([reasoning("rs_1"), SAY], [reasoning("item_1"), SAY]),
    "duplicate-item-id": (
        [reasoning("rs_1"), SAY, reasoning("rs_2"), SAY],
        [reasoning("rs_1"), SAY, reasoning("rs_1"), SAY],
    ),
    "call-id": ([call("a" * 64), output("a" * 64)], [call("a" * 65), output("a" * 65)]),
    "duplicate-call-id": (
        [call("c1"), output("c1"), call("c2"), output("c2")],
        [call("c1"), output("c1"), call("c1")],
    ),
    "arguments": ([call(arguments='{"a": 1}'), output()], [call(arguments='{"a": '), output()]),
    "missing-result": ([custom(), custom_output()], [custom()]),
    "orphan-result": ([call(), output()], [ASK, output()]),
    "duplicate-result": ([call(), output()], [call(), output(), output()]),
    "misplaced-result": ([call(), ASK, output()], [output(), call()]),
    "result-kind": ([custom(), custom_output()], [custom(), output()]),
    "reasoning-follower": (
        [reasoning("rs_1"), reasoning("rs_2"), call(), output()],
        [reasoning(), ASK],
    ),
    "media-type": (
        [message("user", image())],
        [message("user", image(f"data:image/png;base64,{GIF}"))],
    ),
    "media-size": (
        [message("user", image())],
        [message("user", image("data:image/png;base64," + "A" * (28 * 1024 * 1024)))],
    ),
    "base64": ([message("user", image())], [message("user", image("data:image/gif;base64,A"))]),
}


def rules(found: list[Violation]) -> list[str]:
    return [one.rule for one in found]


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_is_named_where_it_is_broken_and_only_there(rule: str) -> None:
    good, bad = CASES[rule]
    assert openai_responses(good) == []
    assert set(rules(openai_responses(bad))) == {rule}


def test_every_rule_has_a_case() -> None:
    assert CASES.keys() | {"empty-request", "ends-with-assistant"} == responses_items.RULES.keys()


def test_a_request_that_is_sent_now_has_an_item_and_leaves_the_answer_to_the_model() -> None:
    assert openai_responses([]) == []
    assert rules(openai_responses([], complete=True)) == ["empty-request"]
    assert openai_responses([ASK, SAY]) == []
    assert rules(openai_responses([ASK, SAY], complete=True)) == ["ends-with-assistant"]
    assert openai_responses([ASK, call(), output()], complete=True) == []


@pytest.mark.parametrize(
    ("items", "rule"),
    [
        ([reasoning()], "reasoning-follower"),
        ([reasoning(), {"type": "compaction", "encrypted_content": "x"}], "reasoning-follower"),
        ([reasoning(""), SAY], "item-id"),
        ([{**call(), "id": "call_1"}, output()], "item-id"),
        ([{**custom(), "id": "fc_1"}, custom_output()], "item-id"),
        ([{**SAY, "id": "rs_1"}], "item-id"),
        ([call(), output(of=[])], "empty-content"),
        ([{"type": "shell_call", "call_id": "c1", "action": {"commands": []}}], "missing-result"),
        ([message("user", {"type": "input_image"})], "shape"),
        ([message("user", {"type": "input_file"})], "shape"),
        ([{**ASK, "metadata": {}}], "unknown-key"),
        (["Hello"], "shape"),
        ([{"type": ["message"]}], "item-type"),
    ],
)
def test_other_ways_to_break_a_rule(items: list[Any], rule: str) -> None:
    assert rules(openai_responses(items)) == [rule]


def test_nothing_is_a_result_and_a_custom_call_takes_any_text() -> None:
    assert openai_responses([call("c1"), custom("c2"), output("c1", ""), custom_output("c2")]) == []


RICH: list[dict[str, Any]] = [
    message("user", text("What is this?"), image(), text("And this?")),
    {**reasoning(), "encrypted_content": "gAAAA", "summary": [text("Look.", "summary_text")]},
    {**call("c1", arguments='{"command": "ls"}'), "id": "fc_1"},
    custom("c2"),
    output("c1", "Error: not found"),
    {**custom_output("c2"), "output": [text("patched"), image()]},
    reasoning("rs_2"),
    {
        **message("assistant", {**text("It failed.", "output_text"), "annotations": []}),
        "id": "msg_1",
        "status": "completed",
    },
    SAY,
    {"role": "developer", "content": "The user stopped the turn."},
    ASK,
]


def test_the_sdk_accepts_a_rich_conversation() -> None:
    assert openai_responses(RICH, complete=True) == []
    accept_openai_responses(RICH)


def test_the_sdk_refuses_what_is_deep_inside_and_what_it_would_drop() -> None:
    with pytest.raises(ValueError, match="summary_text"):
        accept_openai_responses([{**reasoning(), "summary": [{"type": "x", "text": "y"}]}])
    with pytest.raises(Changed):
        accept_openai_responses([{**call(), "result": 1}])
