"""The validator of truth: it finds each kind of false statement, and none in a true context."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from killick import Message, Opaque, Session, Text
from killick.model.messages import Part
from killick.views.context import Context, Format
from killick.views.validators import truth
from killick.views.validators.truth import RULES
from tests.unit.views.talking import asks, dropped, send, stopped

FORMATS: list[Format] = ["openai-chat", "openai-responses", "anthropic", "gemini"]
SEARCH = json.dumps({"type": "web_search_call", "id": "ws_1", "status": "completed"}).encode()
FETCH = json.dumps({"type": "server_tool_use", "id": "s_1", "name": "fetch", "input": {}}).encode()


def everything(session: Session) -> None:
    """A conversation with each thing that can be told of a tool."""
    with stopped(session) as turn:
        parts: list[Part] = [Opaque("openai", SEARCH), Opaque("anthropic", FETCH), Text("Look.")]
        turn.record(Message(role="assistant", parts=parts))
        asks(turn, "started", "denied", "never")
        session.decide_approval(turn.ask_approval("denied", "{}"), approved=False, reason="risky")
        send_in(turn)
        with turn.tool("started") as call:
            call.output("1 of 3\n")
            raise KeyboardInterrupt
    with session.turn("Unseen.", starts="unseen") as turn:
        asks(turn, "unseen")
    with suppress(OSError), session.turn("Fail."):
        raise OSError("/srv/secret/work.db")
    before = session.head
    with stopped(session) as turn:
        asks(turn, "gone")
        with dropped(turn) as reply:
            reply.text("It br")
    session.rewind(before)
    session.finish_tool(turn.id, "gone", "paid")
    session.add_late_text(turn.id, reply.id, "It breaks not")
    send(session)


def send_in(turn: Any) -> None:
    with turn.stream() as reply:
        reply.text("Fine.")


def test_what_is_true_breaks_no_rule(session: Session) -> None:
    everything(session)
    for format_ in FORMATS:
        assert truth(session.entries(), session.context(format_)) == []


@pytest.mark.parametrize(
    ("rule", "true", "false"),
    [
        ("statement", "[This tool call did not run.]", "done"),
        ("statement", "[This tool call was denied", "[This tool call was forgotten"),
        ("statement", "was started and left no result, so", "is still running, so"),
        ("statement", "risky", "fine"),
        ("statement", "1 of 3", ""),
        ("statement", "(shell) above was started", "(shell) below was started"),
        ("statement", "[The outcome of this tool call is unknown", "[This is unknown"),
        ("statement", "Check what it did before repeating it.", "Do it again."),
        ("gone", "A tool call that is not shown here", "Something"),
        ("gone", "has finished since. Its result:", "has failed since. Its result:"),
        ("hosted", "provider ran its own tool web_search", "provider"),
        ("hosted", "provider began to run its own tool fetch", "provider"),
        ("error", "failed before it was complete: OSError.", "failed."),
        ("error", "complete: OSError.", "complete: OSError: /srv/secret/work.db."),
        ("rewound", "Next.", "eaks not"),
    ],
)
def test_a_false_statement_is_found(session: Session, rule: str, true: str, false: str) -> None:
    everything(session)
    context = session.context("openai-chat")
    sent = json.dumps(context.messages)
    assert true in sent
    told = json.loads(sent.replace(true, false))
    assert rule in rules(session, msgspec.structs.replace(context, messages=told))


def test_a_call_that_ran_and_is_sent_as_a_failure_is_found(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
        with turn.tool("c1"):
            raise KeyboardInterrupt
    session.settle(turn.id, "c1", "ran", result="paid", by="person")
    context = session.context("anthropic")
    assert truth(session.entries(), context) == []
    told = json.loads(json.dumps(context.messages))
    told[2]["content"][0]["is_error"] = True
    assert rules(session, msgspec.structs.replace(context, messages=told)) == {"statement"}


@pytest.mark.parametrize("kept", [0, 1])
def test_a_call_that_is_not_sent_or_sent_twice_is_found(session: Session, kept: int) -> None:
    everything(session)
    context = session.context("anthropic")
    told = json.loads(json.dumps(context.messages))
    for message in told:
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        message["content"] += [{**block, "id": f"{block['id']}_again"} for block in calls * kept]
        if not kept:
            message["content"] = [one for one in message["content"] if one not in calls]
    assert "call" in rules(session, msgspec.structs.replace(context, messages=told))


def test_repairs_that_say_something_else_are_found(session: Session) -> None:
    everything(session)
    context = msgspec.structs.replace(session.context("gemini"), repairs=[])
    assert rules(session, context) == {"repair"}


def test_a_repair_that_tells_of_a_sentence_that_is_not_sent_is_found(session: Session) -> None:
    everything(session)
    context = session.context("gemini")
    told = next(one for one in context.repairs if one.reason.endswith("something else"))
    assert rules(session, msgspec.structs.replace(context, repairs=[*context.repairs, told])) == {
        "repair"
    }


def test_every_rule_is_said_in_words() -> None:
    assert all(words for words in RULES.values())


def rules(session: Session, context: Context) -> set[str]:
    return {violation.rule for violation in truth(session.entries(), context)}
