"""Anthropic Messages: every rule, with what it accepts and the least that breaks it."""

import base64
from typing import Any

import pytest

from killick.views.validators import Violation, anthropic, anthropic_messages
from tests.sdk_types import Changed, accept_anthropic

ASK: dict[str, Any] = {"role": "user", "content": "Hello"}
SAY: dict[str, Any] = {"role": "assistant", "content": "Hi"}


def png(side: int = 2) -> str:
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + side.to_bytes(4, "big") * 2
    return base64.b64encode(head).decode()


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def said(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(of: str = "Look") -> dict[str, Any]:
    return {"type": "text", "text": of}


def use(call_id: str = "c1", name: str = "shell", given: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given or {}}


def result(call_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "done", **more}


def image(data: str | None = None, media_type: str = "image/png") -> dict[str, Any]:
    source = {"type": "base64", "media_type": media_type, "data": data or png()}
    return {"type": "image", "source": source}


def pdf(media_type: str = "application/pdf") -> dict[str, Any]:
    source = {"type": "base64", "media_type": media_type, "data": "JVBERg=="}
    return {"type": "document", "source": source}


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
REDACTED = {"type": "redacted_thinking", "data": "abc"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
PAIR = [ASK, said(use()), user(result())]

CASES: dict[str, tuple[list[Any], list[Any]]] = {
    "not-json": (PAIR, [ASK, said(use(given={"a": float("nan")})), user(result())]),
    "surrogate": ([{**ASK, "content": "\U0001f600"}], [{**ASK, "content": "a\ud83d"}]),
    "request-size": ([ASK], [{**ASK, "content": "a" * (32 * 1024 * 1024)}]),
    "image-count": ([user(*[image()] * 100)], [user(*[image()] * 101)]),
    "shape": ([ASK], [{"role": "user"}]),
    "unknown-key": ([ASK], [{**ASK, "id": "msg_1"}]),
    "role": ([ASK], [ASK, {"role": "system", "content": "Be brief."}]),
    "first-role": ([ASK, SAY], [SAY]),
    "block-type": ([user(text())], [user({"type": "input_text", "text": "Hello"})]),
    "block-role": ([ASK, said(THOUGHT, text())], [user(THOUGHT, text())]),
    "media-role": ([user(image())], [ASK, said(image())]),
    "empty-content": ([ASK, said(text())], [ASK, said()]),
    "empty-text": ([user(text())], [user(text(""), text())]),
    "whitespace-text": ([user(text(" x"))], [user(text("\n "))]),
    "trailing-whitespace": ([ASK, said(text("Hi ")), ASK], [ASK, said(text("Hi "))]),
    "tool-name": (
        [ASK, said(use(name="a" * 64)), user(result())],
        [ASK, said(use(name="files.read")), user(result())],
    ),
    "call-id": (
        [ASK, said(use("a-_1")), user(result("a-_1"))],
        [ASK, said(use("a.1")), user(result("a.1"))],
    ),
    "duplicate-call-id": (
        [*PAIR, said(use("c2")), user(result("c2"))],
        [*PAIR, said(use("c1")), user(result("c1"))],
    ),
    "arguments": (PAIR, [ASK, said(use(given="{}")), user(result())]),
    "missing-result": (PAIR, [ASK, said(use()), ASK]),
    "missing-server-result": (
        [ASK, said(SEARCH), said(FOUND, text()), ASK],
        [ASK, said(SEARCH, text()), ASK],
    ),
    "orphan-result": (PAIR, [ASK, SAY, user(result())]),
    "duplicate-result": (PAIR, [ASK, said(use()), user(result(), result())]),
    "misplaced-result": (
        [ASK, said(use()), user(result(), text())],
        [ASK, said(use()), user(text(), result())],
    ),
    "error-result": (
        [ASK, said(use()), user(result(content=[text()], is_error=True))],
        [ASK, said(use()), user(result(content=[image()], is_error=True))],
    ),
    "thinking-signature": (
        [ASK, said(THOUGHT, text())],
        [ASK, said({**THOUGHT, "signature": ""}, text())],
    ),
    "redacted-data": (
        [ASK, said(REDACTED, text())],
        [ASK, said({"type": "redacted_thinking"}, text())],
    ),
    "thinking-last": ([ASK, said(THOUGHT, text())], [ASK, said(text(), THOUGHT)]),
    "media-type": ([user(image())], [user(image(media_type="image/jpeg"))]),
    "media-size": ([user(image(png(8000)))], [user(image(png(8001)))]),
    "base64": ([user(image())], [user(image("data:image/png;base64,"))]),
}


def rules(found: list[Violation]) -> list[str]:
    return [one.rule for one in found]


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_is_named_where_it_is_broken_and_only_there(rule: str) -> None:
    good, bad = CASES[rule]
    assert anthropic(good) == []
    assert set(rules(anthropic(bad))) == {rule}


def test_every_rule_has_a_case() -> None:
    apart = {"empty-request", "ends-with-assistant"}
    assert CASES.keys() | apart == anthropic_messages.RULES.keys()


def test_a_request_that_is_sent_now_has_a_message_and_ends_with_the_user() -> None:
    assert anthropic([]) == []
    assert rules(anthropic([], complete=True)) == ["empty-request"]
    assert anthropic([ASK, SAY]) == []
    assert rules(anthropic([ASK, SAY], complete=True)) == ["ends-with-assistant"]
    assert anthropic(PAIR, complete=True) == []


@pytest.mark.parametrize("kind", ["compaction", "fallback"])
def test_blocks_that_the_beta_api_sends_are_taken_back(kind: str) -> None:
    assert anthropic([ASK, said({"type": kind}, text()), ASK], complete=True) == []


def test_consecutive_messages_of_one_role_are_combined_by_the_provider() -> None:
    assert anthropic([ASK, ASK, SAY, SAY, ASK]) == []


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ([ASK, said(use())], "missing-result"),
        ([ASK, said(use()), said(text())], "missing-result"),
        ([ASK, said(use("c1"), use("c2")), user(result("c1"))], "missing-result"),
        ([ASK, said(SEARCH, use()), user(result(), text())], "missing-server-result"),
        ([ASK, said(SEARCH, use()), user(result()), SAY], "missing-server-result"),
        ([ASK, said(SEARCH), SAY], "missing-server-result"),
        ([ASK, said(FOUND, text())], "orphan-result"),
        ([user(result())], "orphan-result"),
        ([ASK, {**SAY, "content": "Hi\n"}], "trailing-whitespace"),
        ([ASK, {**SAY, "content": ""}], "empty-content"),
        ([ASK, said({"type": "thinking", "thinking": "Hm."}, text())], "thinking-signature"),
        ([ASK, said(text(), REDACTED)], "thinking-last"),
        ([user(use())], "block-role"),
        ([user({"type": "compaction", "content": "So far."})], "block-role"),
        ([user(image(media_type="image/bmp"))], "media-type"),
        ([user(pdf("image/png"))], "media-type"),
        ([user(image("A" * (5 * 1024 * 1024 + 4)))], "media-size"),
        ([user(*[image(png(2001))] * 21)], "media-size"),
        ([user({"type": "image", "source": {"type": "path"}})], "shape"),
        ([ASK, said(use()), user(result(content=[text("")]))], "empty-text"),
        ([ASK, said(use()), user(result(content=[use()]))], "block-type"),
        ([user({**text(), "id": "b1"})], "unknown-key"),
        ([user("Hello")], "shape"),
        (["Hello"], "shape"),
        ([user({"type": {}})], "block-type"),
    ],
)
def test_other_ways_to_break_a_rule(given: list[Any], rule: str) -> None:
    assert set(rules(anthropic(given))) == {rule}


@pytest.mark.parametrize("behind", [[], [user(result())]])
def test_a_call_of_the_providers_waits_while_nothing_but_results_follow(behind: list[Any]) -> None:
    """An answer that was paused goes back as it is, and the provider goes on with it."""
    paused = said(SEARCH, use()) if behind else said(SEARCH)
    assert anthropic([ASK, paused, *behind], complete=True) == []


def test_a_result_may_be_without_content() -> None:
    nothing = {"type": "tool_result", "tool_use_id": "c1"}
    assert anthropic([ASK, said(use()), user(nothing)]) == []
    assert anthropic([ASK, said(use()), user({**nothing, "content": ""})]) == []


def test_what_the_provider_ran_has_its_result_in_the_same_message() -> None:
    assert anthropic([ASK, said(SEARCH, FOUND, text())]) == []


def test_a_system_prompt_says_something() -> None:
    assert anthropic([ASK], "Be brief.") == []
    assert anthropic([ASK], "") == [Violation("empty-text", "system", "an empty string")]


def test_the_place_is_a_path() -> None:
    (found,) = anthropic([ASK, said(use()), user(result(content=[text(), text("")]))])
    assert found.where == "messages[2].content[0].content[1]"


RICH: list[dict[str, Any]] = [
    user(text("What is this?"), image(), pdf(), text("And this?")),
    said(THOUGHT, REDACTED, text("I look."), use("c1", given={"command": "ls"}), use("c2")),
    user(
        result("c2", content=[text("seen"), image()]),
        result("c1", content="not found", is_error=True),
        text("Go on."),
    ),
    said(THOUGHT, text("It failed.")),
    ASK,
]


def test_the_sdk_accepts_a_rich_conversation() -> None:
    assert anthropic(RICH, "Be brief.", complete=True) == []
    accept_anthropic(RICH)


def test_the_sdk_refuses_what_is_deep_inside_and_what_it_would_drop() -> None:
    with pytest.raises(ValueError, match="media_type"):
        accept_anthropic([user(image(media_type="image/bmp"))])
    with pytest.raises(Changed):
        accept_anthropic([user({**text(), "id": "b1"})])
