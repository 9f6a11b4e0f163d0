"""What is hidden is seen by nobody it is hidden from, in whatever shape it was recorded."""

import pytest

from killick import Message, Session, Text, ToolCall, ToolResult
from tests.unit.views.talking import UNKNOWN, lines, stopped
from tests.waiting import until

HIDDEN = "nobody may see this"
CALL = ToolCall("c1", "shell", "{}")


def seen(session: Session) -> tuple[bool, bool]:
    """Whether the person sees it, and whether the model does."""
    sent = session.context("openai-chat").messages
    return HIDDEN in repr(session.transcript()), HIDDEN in repr(sent)


def started(session: Session) -> int:
    return next(entry.seq for entry in session.entries() if entry.kind == "tool_started")


def test_what_a_running_tool_prints(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(Message("assistant", [CALL]))
        with turn.tool("c1") as call:
            call.output(HIDDEN)
            until(lambda: seen(session)[0])  # it is on its way to the disk
            session.hide(started(session))
            assert seen(session) == (False, False)
            call.finish(HIDDEN)
    assert seen(session) == (False, False)


def test_what_a_tool_printed_that_was_left(session: Session) -> None:
    with stopped(session) as turn:
        turn.record(Message("assistant", [CALL]))
        with turn.tool("c1") as call:
            call.output(HIDDEN)
            raise KeyboardInterrupt
    assert seen(session) == (True, True)
    session.hide(started(session))
    assert seen(session) == (False, False)
    session.show(started(session))
    assert seen(session) == (True, True)


def test_a_tool_that_was_left_is_not_said_to_run_because_its_output_is_hidden(
    session: Session,
) -> None:
    with session.turn("go") as turn:
        turn.record(Message("assistant", [CALL]))
        call = turn.tool("c1")
        call.__enter__()
        call.output(HIDDEN)
        call.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        session.hide(started(session))
        assert seen(session) == (False, False)
        assert lines(session)[-1] == (
            f"result c1 failed: {UNKNOWN}\nOutput so far:\n[What this tool returned is hidden.]"
        )
        assert [tool.state for item in session.transcript() for tool in item.tools] == ["unknown"]


@pytest.mark.parametrize("role", ["tool", "user"])
def test_a_message_of_results_with_everything_in_it(session: Session, role: str) -> None:
    result = ToolResult("c1", HIDDEN, structured={"rows": HIDDEN})
    with session.turn("go") as turn:
        turn.record(Message("assistant", [CALL]))
        turn.record(Message(role, [result, Text(HIDDEN)]))  # type: ignore[arg-type]
    session.hide(session.messages()[-1])
    assert seen(session) == (False, False)
    assert [one.role for one in session.transcript()] == ["user", "assistant"]


@pytest.mark.parametrize("role", ["tool", "user"])
def test_results_that_come_later_for_a_hidden_message(session: Session, role: str) -> None:
    """They are messages with ids of their own, so the hidden id does not say that they belong."""
    with session.turn("go") as turn:
        turn.record(Message("assistant", [Text("I look."), CALL]))
        session.hide(session.messages()[-1])
        turn.record(Message(role, [ToolResult("c1", HIDDEN)]))  # type: ignore[arg-type]
        assert seen(session) == (False, False)
        # The same id in a message that is not hidden is another call.
        turn.record(Message("assistant", [CALL]))
        turn.record(Message("tool", [ToolResult("c1", "seen by all")]))
    assert seen(session) == (False, False)
    assert "seen by all" in repr(session.transcript())
    assert "seen by all" in repr(session.context("anthropic").messages)


def test_a_compaction_shows_nothing_that_was_hidden(session: Session) -> None:
    """goose rewrote the whole conversation when it compacted, and so undid what was hidden."""
    for text in ("first", HIDDEN, "last"):
        with session.turn(None) as turn:
            turn.record(Message("assistant", [Text(text)]))
    first, hidden, _ = session.messages()
    session.hide(hidden)
    session.compact("In short.", through=first.seq)
    assert seen(session) == (False, False)
    session.undo()
    assert seen(session) == (False, False)
