"""Gemini generateContent: every rule, with what it accepts and the least that breaks it."""

import base64
from typing import Any

import pytest

from killick.views.validators import Violation, gemini, gemini_contents
from tests.sdk_types import accept_gemini

JPEG = base64.b64encode(b"\xff\xd8\xff\xc0\x00\x11\x08\x00\x02\x00\x03\x00").decode()


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def text(of: str = "Hello") -> dict[str, Any]:
    return {"text": of}


def call(name: str = "shell", **more: Any) -> dict[str, Any]:
    return {
        "function_call": {"name": name, "args": {}, **more},
        "thought_signature": "c2ln",
    }


def unsigned(name: str = "shell", **more: Any) -> dict[str, Any]:
    return {"function_call": call(name, **more)["function_call"]}


def response(name: str = "shell", **more: Any) -> dict[str, Any]:
    return {"function_response": {"name": name, "response": {"output": "done"}, **more}}


def blob(mime_type: str = "image/jpeg", data: str = JPEG) -> dict[str, Any]:
    return {"inline_data": {"mime_type": mime_type, "data": data}}


ASK = user(text())
SAY = model(text("Hi"))
PAIR = [ASK, model(call()), user(response())]

CASES: dict[str, tuple[list[Any], list[Any]]] = {
    "not-json": (PAIR, [ASK, model(call(args={"a": b"x"})), user(response())]),
    "surrogate": ([user(text("\U0001f600"))], [user(text("\ud83d"))]),
    "request-size": ([ASK], [user(text("a" * (20 * 1024 * 1024 + 1)))]),
    "shape": ([ASK], [{"role": "user"}]),
    "unknown-key": ([ASK], [{**ASK, "id": "m1"}]),
    "role": ([ASK], [{**ASK, "role": "tool"}]),
    "first-role": ([ASK, SAY], [SAY, ASK]),
    "part-role": ([ASK, model({**text(), "thought": True})], [user({**text(), "thought": True})]),
    "part-data": ([ASK], [user({"text": "a", **blob()})]),
    "empty-content": ([ASK], [user()]),
    "empty-text": ([ASK], [user(text(""))]),
    "tool-name": (
        [ASK, model(call("a.b:c-1")), user(response("a.b:c-1"))],
        [ASK, model(call("1st")), user(response("1st"))],
    ),
    "arguments": (PAIR, [ASK, model(call(args="{}")), user(response())]),
    "response": (PAIR, [ASK, model(call()), user(response(response="done"))]),
    "call-turn": (PAIR, [ASK, SAY, model(call()), user(response())]),
    "duplicate-call-id": (
        [ASK, model(call(id="a"), call(id="b")), user(response(id="b"), response(id="a"))],
        [ASK, model(call(id="a"), call(id="a")), user(response(id="a"), response(id="a"))],
    ),
    "missing-result": (PAIR, [ASK, model(call()), ASK]),
    "orphan-result": (PAIR, [ASK, SAY, user(response())]),
    "result-count": (PAIR, [ASK, model(call()), user(response(), response())]),
    "result-name": (PAIR, [ASK, model(call()), user(response("other"))]),
    "result-id": (
        [ASK, model(call(id="a")), user(response(id="a"))],
        [ASK, model(call(id="a")), user(response(id="b"))],
    ),
    "result-mixed": ([*PAIR, ASK], [ASK, model(call()), user(response(), text())]),
    "thought-signature": (
        [ASK, model({**text(), "thought_signature": "c2ln"})],
        [ASK, model({**text(), "thought_signature": "sig!"})],
    ),
    "unsigned-call": (
        [ASK, model(call(), unsigned()), user(response(), response())],
        [ASK, model(unsigned()), user(response())],
    ),
    "half-run": (
        [ASK, model({"tool_call": {"id": "t"}}, {"tool_response": {"id": "t"}})],
        [ASK, model({"tool_call": {"id": "t"}}, text())],
    ),
    "media-type": ([user(blob())], [user(blob("image/png"))]),
    "media-size": ([user(blob())], [user(blob("image/png", "A" * (20 * 1024 * 1024 + 4)))]),
    "base64": ([user(blob())], [user(blob(data="abc"))]),
}


def rules(found: list[Violation]) -> list[str]:
    return [one.rule for one in found]


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_is_named_where_it_is_broken_and_only_there(rule: str) -> None:
    good, bad = CASES[rule]
    assert gemini(good) == []
    # What is larger than a whole request breaks that rule too.
    assert set(rules(gemini(bad))) - {"request-size"} == {rule} - {"request-size"}
    assert rule in rules(gemini(bad))


def test_every_rule_has_a_case() -> None:
    assert CASES.keys() | {"empty-request", "ends-with-assistant"} == gemini_contents.RULES.keys()


def test_a_request_that_is_sent_now_has_a_content_and_ends_with_the_user() -> None:
    assert gemini([]) == []
    assert rules(gemini([], complete=True)) == ["empty-request"]
    assert gemini([ASK, SAY]) == []
    assert rules(gemini([ASK, SAY], complete=True)) == ["ends-with-assistant"]
    assert gemini(PAIR, complete=True) == []


def test_consecutive_contents_of_the_user_are_accepted() -> None:
    assert gemini([ASK, ASK, SAY, ASK]) == []


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ([ASK, model(call())], "missing-result"),
        ([ASK, model(call(), call()), user(response())], "result-count"),
        ([user(response())], "orphan-result"),
        ([user(call())], "part-role"),
        ([user({})], "part-data"),
        ([user(blob("image/gif"))], "media-type"),
        ([user(blob("application/json"))], "media-type"),
        ([user({"file_data": {"mime_type": "image/png"}})], "shape"),
        ([user({**text(), "id": "p1"})], "unknown-key"),
        ([user("Hello")], "shape"),
        (["Hello"], "shape"),
        ([{"parts": [text()]}], "shape"),
    ],
)
def test_other_ways_to_break_a_rule(given: list[Any], rule: str) -> None:
    assert rules(gemini(given)) == [rule]


def test_responses_without_ids_belong_to_calls_in_their_order() -> None:
    two = model(call("a"), call("b"))
    assert gemini([ASK, two, user(response("a"), response("b"))]) == []
    swapped = [ASK, two, user(response("b"), response("a"))]
    assert set(rules(gemini(swapped))) == {"result-name"}


def test_a_signature_may_come_with_empty_text() -> None:
    assert gemini([ASK, model({"text": "", "thought_signature": "c2ln"})]) == []


def test_calls_before_the_users_last_words_need_no_signature() -> None:
    assert gemini([ASK, model(unsigned()), user(response()), ASK], complete=True) == []


def test_the_spelling_of_the_wire_is_understood() -> None:
    given = [
        user({"inlineData": {"mimeType": "image/jpeg", "data": JPEG}}),
        model({"functionCall": {"name": "shell"}, "thoughtSignature": "c2ln"}),
        user({"functionResponse": {"name": "other", "response": {}}}),
    ]
    assert rules(gemini(given)) == ["result-name"]
    accept_gemini(given)


def test_a_system_prompt_says_something() -> None:
    assert gemini([ASK], "Be brief.") == []
    assert gemini([ASK], "") == [Violation("empty-text", "system", "an empty string")]


def test_the_place_is_a_path() -> None:
    (found,) = gemini([ASK, model(text()), user(text(), text(""))])
    assert found.where == "contents[2].parts[1]"


RICH: list[dict[str, Any]] = [
    user(text("What is this?"), blob(), text("And this?")),
    model(
        {"text": "I should look.", "thought": True},
        text("I look."),
        call(id="c1", args={"command": "ls"}),
        unsigned("view", id="c2"),
    ),
    user(
        response("view", id="c2", parts=[blob()]),
        response(id="c1", response={"error": "not found"}),
    ),
    user(text("Go on.")),
    model(text("It failed.")),
    ASK,
]


def test_the_sdk_accepts_a_rich_conversation() -> None:
    assert gemini(RICH, "Be brief.", complete=True) == []
    accept_gemini(RICH)


def test_the_sdk_refuses_an_unknown_key_and_a_wrong_type() -> None:
    with pytest.raises(ValueError, match="extra"):
        accept_gemini([user({**text(), "id": "p1"})])
    with pytest.raises(ValueError, match="args"):
        accept_gemini([model(call(args="{}"))])
