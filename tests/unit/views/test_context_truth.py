"""What became true of a tool after a model was told something else of it, and what is not ours."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import msgspec
import pytest

from killick import (
    Message,
    Opaque,
    Reasoning,
    Session,
    StaleFence,
    Store,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from killick.model import entries as e
from killick.model.messages import Part
from killick.recorders import record
from killick.views import validators
from killick.views.context import Format, compute
from tests.unit.journal.making import TURN, begun, ended, ran, said
from tests.unit.views.talking import (
    DID_NOT_RUN,
    RUNNING,
    UNKNOWN,
    asks,
    by_hand,
    dropped,
    lines,
    repairs,
    send,
    stopped,
)

UNSEEN = (
    "[The outcome of this tool call is unknown: it left no result, and whether it ran was not "
    "seen. Check what it did before repeating it.]"
)
LEFT = (
    "[The tool call c1 (shell) above was started and left no result, so its outcome is unknown. "
    "Check what it did before repeating it.]"
)
STARTED = (
    "[The tool call c1 (shell) above was started since. It is still running and has no result yet.]"
)


def judge(turn: Turn) -> None:
    """Another model call of the same turn: it is sent what there is so far."""
    with turn.stream() as reply:
        reply.text("Fine.")


@contextmanager
def again(session: Session, earlier: Turn) -> Iterator[Turn]:
    """A turn that goes on with an earlier one, until Ctrl+C."""
    with suppress(KeyboardInterrupt), session.turn("On.", continues=earlier.id) as turn:
        yield turn


def tools(session: Session) -> list[str]:
    """The lines about tools, without calls and what the model said."""
    every = lines(session)
    return [line for line in every if line.startswith("result") or "tool call" in line]


# -- started since -----------------------------------------------------------------------------


def test_a_tool_that_starts_behind_a_model_call_is_said_to_have_started(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
        judge(turn)
        with turn.tool("c1") as call:
            assert tools(session) == [f"result c1 failed: {DID_NOT_RUN}", f"user: {STARTED}"]
            call.output("1 of 3\n")
            raise KeyboardInterrupt
    assert tools(session) == [
        f"result c1 failed: {DID_NOT_RUN}",
        f"user: {LEFT}\nOutput so far:\n1 of 3\n",
    ]
    assert ("made up a result", "'c1': its outcome is unknown") in repairs(session)


def test_what_was_still_running_is_said_to_have_ended_unknown(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
        with turn.tool("c1"):
            judge(turn)
            raise KeyboardInterrupt
    assert tools(session) == [f"result c1 failed: {RUNNING}", f"user: {LEFT}"]


def test_each_model_call_is_told_what_is_new_and_nothing_else(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        judge(turn)
        with turn.tool("c1") as call:
            judge(turn)
            judge(turn)
            before = lines(session)
            call.finish("done")
        judge(turn)
    done = "user: [The tool call c1 (shell) above has finished since. Its result:]\ndone"
    assert tools(session) == [f"result c1 failed: {DID_NOT_RUN}", f"user: {STARTED}", done]
    assert lines(session)[: len(before)] == before


def test_a_call_of_an_earlier_turn_that_starts_later_is_told_as_started(session: Session) -> None:
    with stopped(session) as earlier:
        asks(earlier, "c1")
    send(session)
    with again(session, earlier) as turn, turn.tool("c1", of=earlier.id):
        raise KeyboardInterrupt
    assert tools(session) == [f"result c1 failed: {DID_NOT_RUN}", f"user: {LEFT}"]
    session.finish_tool(earlier.id, "c1", "done")
    assert tools(session)[1].endswith("has finished since. Its result:]\ndone")


def test_a_call_that_starts_in_a_later_turn_runs_until_that_ends(session: Session) -> None:
    with stopped(session) as earlier:
        asks(earlier, "c1")
    with again(session, earlier) as turn, turn.tool("c1", of=earlier.id):
        assert tools(session) == [f"result c1 failed: {RUNNING}"]
        raise KeyboardInterrupt
    assert tools(session) == [f"result c1 failed: {UNKNOWN}"]


@pytest.mark.parametrize(("printed", "told"), [("half", "\nOutput so far:\nhalf"), ("", "")])
def test_a_tool_that_was_left_does_not_run_though_its_turn_does(
    session: Session, printed: str, told: str
) -> None:
    """A tool that took too long, say: the loop goes on and calls the model."""
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        call = turn.tool("c1")
        call.__enter__()
        call.output(printed)
        call.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        assert tools(session) == [f"result c1 failed: {UNKNOWN}{told}"]
        assert [tool.state for item in session.transcript() for tool in item.tools] == ["unknown"]


@pytest.mark.parametrize("state", ["not run", "running", "unknown"])
def test_the_repairs_agree_with_the_text(session: Session, state: str) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        call = turn.tool("c1")
        if state != "not run":
            call.__enter__()
        if state == "unknown":
            call.output("x")
            call.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        told = {"not run": "it did not run", "running": "it is still running"}
        assert repairs(session) == [
            ("made up a result", f"'c1': {told.get(state, 'its outcome is unknown')}")
        ]


# -- unseen and denied -------------------------------------------------------------------------


def test_a_call_whose_start_was_not_seen_is_unknown(session: Session) -> None:
    with session.turn("Go.", starts="unseen") as turn:
        asks(turn, "c1")
    send(session)
    assert tools(session) == [f"result c1 failed: {UNSEEN}"]
    assert "did not run" not in str(session.context("anthropic"))


def test_a_call_that_was_cut_off_unseen_is_not_said_not_to_have_run(session: Session) -> None:
    with session.turn("Go.", starts="unseen") as turn, dropped(turn) as reply:
        reply.tool_call("c1", name="shell", arguments='{"a')
    told = "A call to shell was cut off while its arguments were written."
    assert (
        lines(session)[-1] == f"user: [The answer above was cut off before it was complete. {told}]"
    )


def test_a_call_that_the_provider_runs_itself_is_unknown(session: Session) -> None:
    """Of such a call no start is ever seen, by no recorder."""
    call = ToolCall("c1", "search", "{}", "hosted")
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[call]))
    assert tools(session) == [f"result c1 failed: {UNSEEN}"]
    assert [tool.state for item in session.transcript() for tool in item.tools] == ["unknown"]


def test_a_denial_of_a_question_that_was_asked_again_is_none(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        first = turn.ask_approval("c1", "{}")
        second = turn.ask_approval("c1", "{}")
        session.decide_approval(first, approved=False)
        assert tools(session) == [f"result c1 failed: {DID_NOT_RUN}"]
        session.decide_approval(second, approved=False)
        assert "was denied" in tools(session)[0]


def test_a_summary_does_not_hide_that_starts_were_not_seen(session: Session) -> None:
    with session.turn("Go.", starts="unseen") as turn:
        turn.record(Message(role="assistant", parts=[Text("First.")]))
        session.compact("In short.", through=session.head)
        asks(turn, "c1")
    assert tools(session) == [f"result c1 failed: {UNSEEN}"]


@pytest.mark.parametrize("sent", [False, True])
def test_a_summary_does_not_hide_that_the_turn_of_a_kept_tool_is_over(
    session: Session, *, sent: bool
) -> None:
    """A later turn than that of its call has started it, and the ending of that one is gone."""
    with stopped(session) as earlier:
        asks(earlier, "c1")
    place = session.messages()[1].seq
    with again(session, earlier) as turn, turn.tool("c1", of=earlier.id):
        raise KeyboardInterrupt
    session.compact("In short.", through=session.head, keep=[place])
    if sent:
        send(session)
    assert tools(session) == [f"result c1 failed: {UNKNOWN}"]
    journal = compute(session.entries(), "neutral", blobs=lambda _: None)
    assert lines(journal) == lines(session)


def test_a_denial_and_its_reason_are_told(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        asked = turn.ask_approval("c1", "{}")
        session.decide_approval(asked, approved=False, reason="too dangerous")
    denied = "[This tool call was denied, so it did not run.]\nThe reason given:\ntoo dangerous"
    assert tools(session) == [f"result c1 failed: {denied}"]
    assert repairs(session) == [("made up a result", "'c1': it was denied")]


REFUSED = (
    "[This tool call was denied.]\nThe reason given:\ntoo risky\n[Recorded as its result:]\nrefused"
)


@pytest.mark.parametrize("format_", ["openai-chat", "openai-responses", "anthropic", "gemini"])
def test_a_denial_is_told_though_a_result_was_recorded(session: Session, format_: Format) -> None:
    """Programs record a result of their own for a call that was denied; it did not fail."""
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        asked = turn.ask_approval("c1", "{}")
        session.decide_approval(asked, approved=False, reason="too risky")
        turn.record(Message(role="tool", parts=[ToolResult("c1", "refused", is_error=True)]))
        before = tools(session)
        assert before == [f"result c1 failed: {REFUSED}"]
        judge(turn)
        assert tools(session) == before
    sent = json.dumps(session.context(format_).messages)
    assert "too risky" in sent
    assert "This tool call failed" not in sent


def test_a_denial_and_a_result_since_are_told_together(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        judge(turn)
        asked = turn.ask_approval("c1", "{}")
        session.decide_approval(asked, approved=False, reason="too risky")
        session.finish_tool(turn.id, "c1", "refused", is_error=True)
        since = REFUSED.replace("[This tool call was", "[The tool call c1 (shell) above was")
        since = since.replace("denied.]", "denied since.]")
        assert tools(session) == [f"result c1 failed: {DID_NOT_RUN}", f"user: {since}"]


def test_a_result_behind_a_denial_that_was_told_is_told_alone(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        asked = turn.ask_approval("c1", "{}")
        session.decide_approval(asked, approved=False, reason="too risky")
        judge(turn)
        session.finish_tool(turn.id, "c1", "refused", is_error=True)
        assert "denied" not in tools(session)[1]
        assert tools(session)[1].endswith("has failed since. Its result:]\nrefused")


def test_a_denial_that_comes_later_is_told_at_its_place(session: Session) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        asked = turn.ask_approval("c1", "{}")
        judge(turn)
        session.decide_approval(asked, approved=False)
        denied = "[The tool call c1 (shell) above was denied since, so it did not run.]"
        assert tools(session) == [f"result c1 failed: {DID_NOT_RUN}", f"user: {denied}"]
        turn.ask_approval("c1", "{}")
        assert tools(session) == [f"result c1 failed: {DID_NOT_RUN}"]


# -- settled -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "found", "told"),
    [
        ("ran", "paid", "ran.]\nWhat it gave, as was found out:\npaid"),
        ("ran", None, "ran.]"),
        ("did_not_run", None, "did not run.]"),
    ],
)
def test_what_was_found_out_is_told_and_that_it_ran_is_no_failure(
    session: Session, outcome: Literal["ran", "did_not_run"], found: str | None, told: str
) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
        with turn.tool("c1"):
            raise KeyboardInterrupt
    session.settle(turn.id, "c1", outcome, result=found, by="check")
    failed = "" if outcome == "ran" else " failed"
    unknown = "[The outcome of this tool call was unknown. A check found out that it"
    assert tools(session) == [f"result c1{failed}: {unknown} {told}"]
    [block] = [
        block
        for message in session.context("anthropic").messages
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert block.get("is_error", False) is (outcome != "ran")


@pytest.mark.parametrize("gone", [False, True])
def test_what_is_found_out_of_a_call_that_was_sent_or_is_gone_is_told(
    session: Session, *, gone: bool
) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
        with turn.tool("c1"):
            raise KeyboardInterrupt
    send(session)
    if gone:
        session.rewind(1)
    session.settle(turn.id, "c1", "ran", by="person", evidence="a receipt")
    call = (
        "A tool call that is not shown here, c1 (shell),"
        if gone
        else "The tool call c1 (shell) above"
    )
    found = "was settled since. A person found out that it ran.]\nThe evidence given:\na receipt"
    assert tools(session)[-1] == f"user: [{call} {found}"


def test_a_repair_tells_what_is_sent_and_not_what_was_true_in_between(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
        judge(turn)
        with turn.tool("c1"):
            raise KeyboardInterrupt
    assert lines(session)[-2] == f"user: {LEFT}"
    assert [reason for action, reason in repairs(session) if action == "told as text"] == [
        "'c1': its outcome is unknown, and a model was told something else"
    ]


# -- failed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["openai-chat", "openai-responses", "gemini", "anthropic"])
@pytest.mark.parametrize("content", ["", "disk full"])
def test_a_tool_that_failed_is_said_to_have_failed(
    session: Session, format_: Format, content: str
) -> None:
    with session.turn("Go.") as turn:
        asks(turn, "c1")
        with turn.tool("c1") as call:
            call.finish(content, is_error=True)
    sent = json.dumps(session.context(format_).messages)
    assert "(no output)" not in sent
    assert "failed" in sent or '"error": "disk full"' in sent or '"is_error": true' in sent
    assert content in sent


def test_a_made_up_result_is_not_said_to_have_failed(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
    assert "failed" not in str(session.context("openai-chat").messages)


def test_a_made_up_result_that_was_sent_is_sent_again_though_more_is_known(
    session: Session,
) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
    send(session)
    before = session.context("openai-chat").messages
    session.finish_tool(turn.id, "c1", "done")
    send(session)
    after = session.context("openai-chat").messages
    assert after[: len(before)] == before


def test_of_an_exception_its_type_is_told_and_its_text_on_request(session: Session) -> None:
    with pytest.raises(OSError, match="db"), session.turn("Go."):
        raise OSError("no such file /srv/secret/work.db")
    assert lines(session)[-1] == "user: [The turn above failed before it was complete: OSError.]"
    assert "/srv/secret" in str(session.context("neutral", errors="text").messages)
    with pytest.raises(ValueError, match="errors="):
        session.context("neutral", errors="all")  # type: ignore[arg-type]


# -- what was rewound --------------------------------------------------------------------------


def rewound(session: Session) -> tuple[str, str]:
    """A turn with an answer that is cut off and a call; all of it is taken back."""
    with stopped(session) as turn:
        asks(turn, "c1")
        with turn.stream() as reply:
            reply.text("Kelp")
            raise KeyboardInterrupt
    session.rewind(1)
    return turn.id, reply.id


def test_late_text_of_a_rewound_answer_is_left_out(session: Session) -> None:
    turn_id, message_id = rewound(session)
    session.add_late_text(turn_id, message_id, "Kelp holds.")
    assert "holds" not in str(session.context("neutral").messages)


def test_a_late_result_of_a_rewound_call_names_its_tool(session: Session) -> None:
    turn_id, _ = rewound(session)
    session.finish_tool(turn_id, "c1", "paid", is_error=True)
    assert lines(session) == [
        "user: [A tool call that is not shown here, c1 (shell), has failed since. "
        "Its result:]\npaid"
    ]


def test_a_late_result_of_a_compacted_call_names_its_tool(session: Session) -> None:
    with stopped(session) as turn:
        asks(turn, "c1")
    session.compact("In short.", through=session.head)
    session.finish_tool(turn.id, "c1", "paid")
    assert lines(session)[-1].startswith(
        "user: [A tool call that is not shown here, c1 (shell), has finished since."
    )


# -- what a provider ran -----------------------------------------------------------------------

SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"query": "sea"},
}
FAILED = {"type": "mcp_call", "id": "mcp_1", "name": "pay", "arguments": "{}", "error": "refused"}
SERVED = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
SERVED_RESULT = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
SERVED_ERROR = {
    **SERVED_RESULT,
    "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"},
}
CODE = {"executable_code": {"language": "PYTHON", "code": "print(1)"}}
CODE_RESULT = {"code_execution_result": {"outcome": "OUTCOME_FAILED", "output": "no"}}
LOOKUP = {"tool_call": {"id": "t1", "tool_type": "GOOGLE_SEARCH_WEB", "args": {"q": "sea"}}}
LOOKUP_RESULT = {"tool_response": {"id": "t1", "tool_type": "GOOGLE_SEARCH_WEB", "response": {}}}
SHELL_FAILED = {
    "type": "shell_call_output",
    "id": "sho_1",
    "call_id": "c1",
    "output": [{"outcome": {"type": "exit", "exit_code": 2}}],
}
SHELL = {"type": "shell_call", "id": "sh_1", "call_id": "c1", "action": {"commands": ["ls"]}}
SHELL_OUTPUT = {
    "type": "shell_call_output",
    "id": "sho_1",
    "call_id": "c1",
    "output": [{"stdout": "a.txt", "outcome": {"type": "exit", "exit_code": 0}}],
}
RAN: dict[str, tuple[list[Any], str, str]] = {
    "openai shell": ([SHELL, SHELL_OUTPUT], "ran its own tool shell with", "finished"),
    "openai shell failing": ([SHELL, SHELL_FAILED], "ran its own tool shell with", "failed"),
    "openai": ([SEARCH], "ran its own tool web_search with", "finished"),
    "openai failing": ([FAILED], "ran its own tool pay with {}", "failed"),
    "anthropic": ([SERVED, SERVED_RESULT], "ran its own tool web_search with", "finished"),
    "anthropic failing": ([SERVED, SERVED_ERROR], "ran its own tool web_search with", "failed"),
    "anthropic paused": ([SERVED], "began to run its own tool web_search", "no result"),
    "anthropic resumed": ([SERVED_RESULT], "A tool that the model's provider ran", "finished"),
    "openai output": ([SHELL_FAILED], "A tool that the model's provider ran", "failed"),
    "gemini": ([CODE, CODE_RESULT], "ran its own tool code_execution with print(1)", "failed"),
    "gemini paused": (
        [CODE],
        "began to run its own tool code_execution with print(1)",
        "no result",
    ),
    "gemini tool": ([LOOKUP, LOOKUP_RESULT], "ran its own tool google_search_web with", "finished"),
    "gemini tool paused": ([LOOKUP], "began to run its own tool google_search_web", "no result"),
    "gemini resumed": ([LOOKUP_RESULT], "A tool that the model's provider ran", "finished"),
}
FORMATS: list[Format] = ["openai-chat", "openai-responses", "anthropic", "gemini"]


@pytest.mark.parametrize("case", RAN)
@pytest.mark.parametrize("format_", FORMATS)
def test_a_tool_that_a_provider_ran_is_told_to_the_others_in_one_sentence(
    session: Session, case: str, format_: Format
) -> None:
    blocks, told, outcome = RAN[case]
    provider = case.split()[0]
    parts = [Opaque(provider, json.dumps(block).encode()) for block in blocks]
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[*parts, Text("Well.")]))
    sent = json.dumps(session.context(format_).messages, ensure_ascii=False).replace("\\", "")
    own = {"openai": "openai-responses"}.get(provider, provider) == format_
    halves = ("anthropic resumed", "openai output", "gemini resumed", "gemini tool paused")
    own = own and case not in halves  # one without the other is refused
    assert sent.count("provider ") == (0 if own else 1), sent
    assert own or (told in sent and outcome in sent)


@pytest.mark.parametrize("wire", [False, True])
def test_tools_that_gemini_ran_itself_are_recorded_told_and_sent_back(
    session: Session, *, wire: bool
) -> None:
    """Two at once, and the response of the second alone has come; as the SDK or the wire has it."""
    calls = [
        {"tool_call": {"id": f"t{n}", "tool_type": "GOOGLE_SEARCH_WEB", "args": {"q": f"sea {n}"}}}
        for n in (1, 2)
    ]
    response = {
        "tool_response": {"id": "t2", "tool_type": "GOOGLE_SEARCH_WEB", "response": {"a": [1]}}
    }
    parts: list[Any] = [*calls, response, {"text": "Blue."}]
    if wire:
        parts = json.loads(
            json.dumps(parts)
            .replace("tool_call", "toolCall")
            .replace("tool_response", "toolResponse")
            .replace("tool_type", "toolType")
        )
    chunk = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    with session.turn("Go.") as turn:
        reply = record(turn, "gemini", iter([chunk]))
        assert list(reply) == [chunk]
        assert reply.tool_calls == []
    for format_ in FORMATS:
        sent = json.dumps(session.context(format_).messages, ensure_ascii=False).replace("\\", "")
        began = 'began to run its own tool google_search_web with {"q": "sea 1"} here; no result'
        ran = 'ran its own tool google_search_web with {"q": "sea 2"} here, and it finished'
        assert sent.count(began) == 1, format_
        assert sent.count(ran) == (0 if format_ == "gemini" else 1), format_
    answer = session.context("gemini").messages[1]["parts"]
    assert [part for part in answer if "text" not in part] == [calls[1], response]


def test_what_openai_ran_is_told_to_it_when_it_cannot_be_sent_back(session: Session) -> None:
    parts: list[Part] = [
        Reasoning("Hm."),
        Opaque("openai", json.dumps(SEARCH).encode()),
        Text("Yes."),
    ]
    image = Opaque("openai", b'{"item": {"type": "image_generation_call", "status": "completed"}}')
    with session.turn("Go.") as turn:
        turn.record(Message(role="assistant", parts=[*parts, image]))
    sent = json.dumps(session.context("openai-responses").messages)
    assert "ran its own tool web_search with" in sent
    assert "ran its own tool image_generation here, and it finished" in sent


CONTAINER = {"type": "container_reference", "container_id": "cntr_1"}


@pytest.mark.parametrize(
    ("items", "ours"),
    [
        ([SHELL], True),
        ([{**SHELL, "environment": {"type": "local"}}], True),
        ([{**SHELL, "environment": CONTAINER}, SHELL_OUTPUT], False),
        ([{**SHELL, "environment": CONTAINER}], False),
        ([SHELL, SHELL_OUTPUT], False),
        ([{**SHELL, "call_id": "c0"}, SHELL, SHELL_OUTPUT], None),
    ],
)
def test_a_shell_that_openai_ran_in_its_container_is_not_ours(
    session: Session, items: list[dict[str, object]], *, ours: bool | None
) -> None:
    response = {"id": "resp_1", "status": "completed", "output": items}
    with session.turn("Go.") as turn:
        events = [{"type": "response.completed", "response": response}]
        reply = record(turn, "openai-responses", events)
        assert list(reply) == events
        offered = [call.id for call in reply.tool_calls]
    assert offered == {True: ["c1"], False: [], None: ["c0"]}[ours]
    sent = str(session.context("anthropic").messages)
    assert ("own tool shell" in sent) == (not ours)
    assert ("did not run" in sent) == (ours is not False)


def taken_over(*, starts: Literal["seen", "unseen"] = "seen") -> list[e.Body]:
    """An answer whose holder was fenced out in the middle of a call's arguments."""
    first = msgspec.structs.replace(begun(), starts=starts)
    answer = e.MessageStarted(id="m1", turn_id=TURN, role="assistant", model_call_id=None)
    parts = (Text("Let me look."), ToolCall("c1", "shell", '{"a"'))
    cut = e.MessageEnded(id="m1", turn_id=TURN, state="partial", parts=parts)
    return [first, answer, cut, ended("interrupted", "taken_over")]


def late(*deltas: e.Delta) -> e.LateText:
    return e.LateText(turn_id=TURN, message_id="m1", deltas=deltas)


REST = e.Delta(1, 4, "arguments", ": 1}")
SECOND = e.Delta(2, 0, "arguments", "{}", head=ToolCall("c2", "files"))
LATER: list[e.Body] = [
    e.TurnStarted(turn_id="later", fence=2, holder="here"),
    e.ModelCallStarted(id="x", turn_id="later"),
]


def test_a_call_that_came_late_before_a_model_was_called_is_a_call_that_did_not_run() -> None:
    told = lines(by_hand(*taken_over(), late(REST, SECOND)))
    assert told[1:5] == [
        'call c1 shell {"a": 1}',
        "call c2 files {}",
        f"result c1 failed: {DID_NOT_RUN}",
        f"result c2 failed: {DID_NOT_RUN}",
    ]
    assert "cut off" not in str(told)


def test_a_call_that_came_after_a_model_was_sent_the_answer_is_told_as_text() -> None:
    sent = [*taken_over(), *LATER]
    before, after = (lines(by_hand(*given)) for given in (sent, [*sent, late(REST, SECOND)]))
    assert after[: len(before)] == before
    assert "A call to shell was cut off while its arguments were written, so it" in str(before)
    assert after[len(before) :] == [
        "user: [The answer that was cut off above went on. A call to files came after the answer "
        "was over, so it did not run.]"
    ]


LATE_RUN = [
    {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("since", [[], LATER], ids=["unsent", "sent"])
@pytest.mark.parametrize(
    ("halves", "told"),
    [
        (LATE_RUN, "ran its own tool web_search here, and it finished"),
        (LATE_RUN[:1], "began to run its own tool web_search here; no result"),
        (LATE_RUN[1:], "A tool that the model's provider ran itself finished here"),
    ],
)
def test_a_tool_that_a_provider_ran_late_is_told(
    halves: list[dict[str, object]], told: str, since: list[e.Body], format_: Format
) -> None:
    """In its place while no model was sent the answer; later as text, at its own."""
    parts = [Opaque("anthropic", json.dumps(half).encode()) for half in halves]
    runs = [e.Delta(2 + number, 0, "part", "", head=part) for number, part in enumerate(parts)]
    bodies = [*taken_over(), *since, late(*runs)]
    context = by_hand(*bodies, format_=format_)
    sent = json.dumps(context.messages)
    kept = '"server_tool_use"' in sent and '"web_search_tool_result"' in sent
    assert sent.count(told) + kept == 1
    journal = [e.Entry(seq, seq, body) for seq, body in enumerate(bodies, 1)]
    assert validators.truth(journal, context) == []


def test_a_call_that_came_late_of_a_turn_whose_starts_were_unseen_may_have_run() -> None:
    text = e.Delta(0, 12, "text", " There.")
    told = lines(by_hand(*taken_over(starts="unseen"), *LATER, late(text, SECOND)))
    assert told[-1] == (
        "user: [The answer that was cut off above went on:]\n There.\n[A call to files came after "
        "the answer was over, and whether it ran was not seen.]"
    )


def test_a_call_that_came_late_is_told_as_unseen_behind_a_summary(
    store: Store, session: Session
) -> None:
    """The start of its turn is compacted, and says that nothing of it was seen."""
    turn = session.turn("Go.", starts="unseen")
    turn.__enter__()
    reply = turn.stream()
    reply.__enter__()
    with session.turn("Mine.", if_busy="take_over"):
        pass
    session.compact("In short.", through=session.head)
    reply.tool_call("c1", name="shell", arguments="{}", done=True)
    for block in (reply, turn):
        with suppress(StaleFence):
            block.__exit__(None, None, None)
    assert lines(store.session(session.id))[-1] == (
        "user: [The answer that was cut off above went on. A call to shell came after the answer "
        "was over, and whether it ran was not seen.]"
    )


def test_a_call_that_came_late_is_whole_though_a_summary_has_the_ending() -> None:
    """The answer is kept, so what broke off in it is told before what comes next."""
    summary = e.Compacted(id="s", summary="In short.", first=1, through=4, keep=(2, 3))
    told = lines(by_hand(*taken_over(), late(REST), summary))
    assert 'call c1 shell {"a": 1}' in told
    assert "A call to shell was cut off" not in str(told)


def test_the_rest_of_an_answer_that_said_nothing_is_no_answer_to_a_later_prompt() -> None:
    """Nothing of it was sent, and a model was called since: it is told as what came late."""
    answer = e.MessageStarted(id="m1", turn_id=TURN, role="assistant", model_call_id=None)
    empty = e.MessageEnded(id="m1", turn_id=TURN, state="partial", parts=())
    sent = [begun(), answer, empty, ended("interrupted", "taken_over"), *LATER]
    told = lines(by_hand(*sent, late(e.Delta(0, 0, "text", "Yes."))))
    assert told[-1] == "user: [The answer that was cut off above went on:]\nYes."


def test_a_fork_says_what_was_cut_off_where_it_begins(session: Session) -> None:
    with session.turn("Go.") as turn:
        with dropped(turn) as reply:
            reply.tool_call("c1", name="shell", arguments='{"a')
        judge(turn)
    fork = session.fork(at=session.messages()[1].seq)
    assert "A call to shell was cut off" in str(lines(fork))


def test_output_that_comes_after_a_model_was_sent_the_unknown_is_told() -> None:
    """A holder that was fenced out still had it; it is kept as late, and told at its place."""
    call = ToolCall("c1", "shell", "{}")
    late = e.LateText(
        turn_id=TURN, message_id="m1", call_id="c1", deltas=(e.Delta(0, 0, "output", "1 of 3"),)
    )
    sent = e.ModelCallStarted(id="x", turn_id="later")
    later = e.TurnStarted(turn_id="later", fence=2, holder="here")
    bodies: list[e.Body] = [begun(), said(call), ran(), ended("interrupted", "left"), later, sent]
    before = lines(by_hand(*bodies))
    after = lines(by_hand(*bodies, late))
    assert after[: len(before)] == before
    assert "1 of 3" in after[-1]
