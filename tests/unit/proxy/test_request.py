"""Requests of each shape, read; and what is none."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from killick.proxy.history import compare, sort_fresh
from killick.proxy.request import NotUnderstood, own_words, read_request
from killick.recorders.model_call import Plan, Shape
from tests.proxy.asking import SHAPES, body_of, path_of


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_has_the_same_units(shape: Shape) -> None:
    said = [
        ("user", "one"),
        ("user", "more"),
        ("call", "c1"),
        ("result", ("c1", "ok")),
        ("user", "two"),
    ]
    body = json.dumps(body_of(shape, said, stream=True)).encode()
    request = read_request(shape, path_of(shape, stream=True), body)
    assert [piece.unit.role for piece in request.units] == ["user", "assistant", "result", "user"]
    assert request.units[0].text == "one\nmore"
    assert request.units[2].unit.call_id == "c1"
    assert request.offers_tools
    assert request.stream
    assert not request.wants_format
    plan = Plan(shape, request.asked, None, None, "keep")
    assert plan.settings["model"] == "scripted"
    assert plan.settings["system"] == "You count ducks."
    assert "ducks" not in json.dumps(plan.settings["settings"])


def test_gemini_without_ids_is_paired_by_name() -> None:
    contents = [
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "shell", "response": {"output": "x"}}}],
        }
    ]
    request = read_request("gemini", "", json.dumps({"contents": contents}).encode())
    assert (request.units[0].unit.call_id, request.units[0].unit.name) == ("", "shell")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"{}", b'{"messages": 3}', b"\xff" * 9, b"[" * 9999]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_no_request_is_not_understood(shape: Shape, body: bytes) -> None:
    try:
        request = read_request(shape, "", body)
    except NotUnderstood:
        return
    assert request.units == ()


def test_own_words() -> None:
    assert own_words("<system-reminder>x\ny</system-reminder>hello <b>w</b>") == "hello <b>w</b>"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["role", "content", "type", "text", "id", "tool_calls", "function", "name", "parts",
             "arguments", "input", "output", "call_id", "functionCall", "functionResponse", "args",
             "tool_use_id", "source", "data", "image_url", "response", "inlineData", "custom"]
        ),
        inner | st.sampled_from(["user", "assistant", "tool", "system", "tool_use", "tool_result",
                                 "message", "function_call", "function_call_output", "base64",
                                 "image", "text", "model"]),
        max_size=6,
    ),
    max_leaves=25,
)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@given(value=_JSON, items=st.lists(_JSON, max_size=5))
@settings(max_examples=150, deadline=None)
def test_no_request_raises_anything_else(shape: Shape, value: Any, items: list[Any]) -> None:
    body = {"messages": items, "input": items, "contents": items, "tools": value, "text": value,
            "generationConfig": value, "response_format": value, "system": value}  # fmt: skip
    try:
        request = read_request(shape, "/models/m:generateContent", json.dumps(body).encode())
    except NotUnderstood:
        return
    found = compare([piece.unit for piece in request.units[:2]], request, ("x" * 50,))
    sort_fresh(found.fresh)
    Plan(shape, request.asked, None, None, "keep")
