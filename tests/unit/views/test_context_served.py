"""Tools that a provider runs itself: its requests carry both halves of a run, or neither."""

import json
from typing import Any

import pytest

from killick import Opaque, Session, Store, Text, ToolCall
from killick.views import validators

SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}


def own(block: dict[str, Any], provider: str = "anthropic") -> Opaque:
    return Opaque(provider, json.dumps(block).encode())


def stream(turn: Any, *parts: Any, provider: str = "anthropic") -> None:
    """An answer of its own model call."""
    with turn.stream(provider=provider) as reply:
        for part in parts:
            if isinstance(part, Text):
                reply.text(part.text)
            else:
                reply.part(part)


def kinds(session: Session) -> list[str]:
    """The blocks of the model, in a request that is sent now and that is valid."""
    context = session.context("anthropic")
    assert validators.anthropic(context.messages, context.system, complete=True) == []
    return [
        block["type"]
        for message in context.messages
        if message["role"] == "assistant"
        for block in message["content"]
    ]


def test_a_paused_answer_goes_back_as_it_is_and_is_gone_on_with(session: Session) -> None:
    with session.turn("Look it up.") as turn:
        stream(turn, Text("Let me see."), own(SEARCH))
        assert kinds(session) == ["text", "server_tool_use"]
        stream(turn, own(FOUND), Text("It is blue."))
    with session.turn("Thanks."):
        assert kinds(session) == ["text", "server_tool_use", "web_search_tool_result", "text"]


def test_a_paused_answer_that_was_stopped_is_told_in_words(session: Session) -> None:
    with pytest.raises(KeyboardInterrupt), session.turn("Look it up.") as turn:  # noqa: PT012
        stream(turn, Text("Let me see."), own(SEARCH))
        raise KeyboardInterrupt
    for prompt in ("And now?", "And then?"):
        with session.turn(prompt) as turn:
            assert "server_tool_use" not in kinds(session)
            sent = json.dumps(session.context("anthropic").messages)
            assert 'began to run its own tool web_search with {\\"query' in sent
            stream(turn, Text("Well."))


def test_a_resumed_answer_that_was_cut_off_before_the_result(session: Session) -> None:
    with pytest.raises(KeyboardInterrupt), session.turn("Look it up.") as turn:  # noqa: PT012
        stream(turn, own(SEARCH))
        with turn.stream(provider="anthropic") as reply:
            reply.text("It")
            raise KeyboardInterrupt
    with session.turn("And now?"):
        assert "server_tool_use" not in kinds(session)


@pytest.mark.parametrize("half", [0, 1])
def test_half_of_a_resumed_pause_is_hidden(session: Session, half: int) -> None:
    with session.turn("Look it up.") as turn:
        stream(turn, Text("Let me see."), own(SEARCH))
        stream(turn, own(FOUND), Text("It is blue."))
    session.hide(session.messages()[1 + half], person=False)
    with session.turn("Thanks."):
        assert set(kinds(session)) == {"text"}


def test_half_of_a_resumed_pause_is_compacted(session: Session) -> None:
    with session.turn("Look it up.") as turn:
        stream(turn, Text("Let me see."), own(SEARCH))
        first = session.messages()[-1].seq
        stream(turn, own(FOUND), Text("It is blue."))
    session.compact(summary="A search began.", through=first)
    with session.turn("Thanks."):
        assert "server_tool_use" not in kinds(session)


def test_a_result_of_the_callers_tool_leaves_the_providers_one_running(session: Session) -> None:
    """Programs that the provider runs call tools of the caller's: the results go in between."""
    caller = {"type": "code_execution_20260120", "tool_id": "srv_1"}
    call = ToolCall("c", "read", "{}", extra={"anthropic": {"caller": caller}})
    with session.turn("Look.") as turn:
        stream(turn, own({**SEARCH, "name": "code_execution"}), call)
        with turn.tool("c") as tool:
            tool.finish("done")
        assert kinds(session) == ["server_tool_use", "tool_use"]
        [_, answer, _] = session.context("anthropic").messages
        assert answer["content"][1]["caller"] == caller
    with session.turn("And now?"):
        assert kinds(session) == ["text", "tool_use"]
        assert "caller" not in session.context("anthropic").messages[1]["content"][1]


@pytest.mark.parametrize(("halves", "kept"), [("both", 2), ("call", 0), ("response", 0)])
def test_a_tool_that_gemini_ran_goes_back_whole_or_not_at_all(
    store: Store, halves: str, kept: int
) -> None:
    call = own({"tool_call": {"id": "t1", "tool_type": "GOOGLE_SEARCH_WEB", "args": {}}}, "gemini")
    response = own({"tool_response": {"id": "t1", "response": {"a": 1}}}, "gemini")
    session = store.create_session()
    with session.turn("Look.") as turn:
        given = {"both": [call, response], "call": [call], "response": [response]}[halves]
        stream(turn, *given, Text("It is blue."), provider="gemini")
    with session.turn("Thanks."):
        context = session.context("gemini")
        assert validators.gemini(context.messages, context.system, complete=True) == []
        parts = context.messages[1]["parts"]
        assert sum("tool_call" in part or "tool_response" in part for part in parts) == kept
        assert ("began to run its own tool" in json.dumps(parts)) is (halves == "call")


SHELL = {"type": "shell_call", "id": "sh_1", "call_id": "c1", "action": {"commands": ["ls"]}}
OUTPUT = {"type": "shell_call_output", "id": "so_1", "call_id": "c1", "output": []}


@pytest.mark.parametrize(
    ("halves", "kept"),
    [([SHELL, OUTPUT], ["shell_call", "shell_call_output"]), ([SHELL], []), ([OUTPUT], [])],
)
def test_a_shell_that_openai_ran_goes_back_with_its_output_or_not_at_all(
    session: Session, halves: list[dict[str, Any]], kept: list[str]
) -> None:
    """Cut between the two: the call alone is refused."""
    with session.turn("Look.") as turn:
        stream(turn, *(own(half, "openai") for half in halves), Text("So."), provider="openai")
    with session.turn("And now?"):
        context = session.context("openai-responses")
        assert validators.openai_responses(context.messages, context.system, complete=True) == []
        sent = [item["type"] for item in context.messages if item["type"] != "message"]
        assert sent == kept
        told = "began to run its own tool shell" in json.dumps(context.messages)
        assert told is (halves == [SHELL])
