"""pydantic-ai mends a history before it sends it; in our neutral list it finds nothing to mend."""

from itertools import groupby
from typing import Any

from hypothesis import HealthCheck, given, settings
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)

from killick.model import entries as e
from killick.testing.strategies import journals
from killick.views.context import compute

AT = e.Entry(1, 0, e.Note(id="n", name="n")).at


def as_history(messages: list[dict[str, Any]]) -> list[ModelMessage]:
    """What an adapter makes of the neutral list: a request for what stands between answers."""
    names = {p["id"]: p["name"] for m in messages for p in m["parts"] if p["type"] == "tool_call"}
    history: list[ModelMessage] = []
    for answered, group in groupby(messages, lambda message: message["role"] == "assistant"):
        parts = [part for message in group for part in _parts(message, names)]
        if not parts:
            continue
        history.append(
            ModelResponse(parts=parts, timestamp=AT)
            if answered
            else ModelRequest(parts=parts, timestamp=AT)
        )
    return history


def _parts(message: dict[str, Any], names: dict[str, str]) -> list[Any]:
    made: list[Any] = []
    for part in message["parts"]:
        match part["type"], message["role"]:
            case "text", "assistant":
                made.append(TextPart(part["text"]))
            case "text", "system":
                made.append(SystemPromptPart(part["text"], timestamp=AT))
            case "text", _:
                made.append(UserPromptPart(part["text"], timestamp=AT))
            case "reasoning", _:
                made.append(ThinkingPart(part["text"], signature=part.get("signature")))
            case "tool_call", _:
                made.append(ToolCallPart(part["name"], part.get("arguments", ""), part["id"]))
            case "tool_result", _:
                name = names[part["call_id"]]
                made.append(ToolReturnPart(name, part["content"], part["call_id"], timestamp=AT))
            case _:
                pass
    return made


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(journals())
def test_pydantic_ai_finds_nothing_to_mend(journal: list[e.Entry]) -> None:
    for end in range(0, len(journal) + 1, 3):
        context = compute(journal[:end], "neutral", blobs=lambda name: None)
        history = as_history(context.messages)
        assert repair_messages(history) == history


def test_it_would_mend_what_is_broken() -> None:
    """Otherwise the test above would say nothing."""
    call = ModelResponse(parts=[ToolCallPart("f", "{}", "c")], timestamp=AT)
    orphan = ModelRequest(parts=[ToolReturnPart("f", "x", "other", timestamp=AT)], timestamp=AT)
    asked = ModelRequest(parts=[UserPromptPart("go", timestamp=AT)], timestamp=AT)
    assert repair_messages([asked, call]) != [asked, call]
    assert repair_messages([asked, orphan]) != [asked, orphan]
