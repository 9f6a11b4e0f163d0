"""A context within a budget costs what is sent, and is that of the whole journal."""

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from killick import BudgetTooSmall, Message, Session, Store, Text, ToolCall, ToolResult
from killick.journal.visibility import History
from killick.model import entries as e
from killick.session.core.queries import show_context
from killick.session.core.tail import ends_for_model
from killick.session.drive.steps import Read
from killick.testing.strategies import journals
from killick.views.budget import Budget
from killick.views.context import FORMATS, Context, End, EndTooShort, compute
from tests.growth.stores import steps_of
from tests.growth.test_last_messages import Journal

budgets = st.one_of(
    st.builds(Budget, messages=st.integers(1, 12)),
    st.builds(Budget, tokens=st.integers(20, 400)),
    st.builds(Budget, bytes=st.integers(100, 2_000)),
)


def _context(entries: list[e.Entry], format_: str, budget: Budget, **given: Any) -> Context | str:
    try:
        return compute(entries, format_, blobs=lambda name: b"Be brief.", budget=budget, **given)
    except BudgetTooSmall as error:
        return str(error)


def _of_ends(
    journal: list[e.Entry], format_: str, budget: Budget, limit: int
) -> Iterator[Context | str]:
    history = History(journal)
    named = any(isinstance(x.body, e.ModelCallStarted) and x.body.provider for x in journal)
    reader: Any = Journal(journal)
    for seq, entries in ends_for_model(reader, 0, history, len(journal), limit):
        given = {"history": history, "end": End(seq, named), "system": _system(journal)}
        with suppress(EndTooShort):
            yield _context(entries, format_, budget, **given)


def _system(journal: list[e.Entry]) -> str | None:
    """Return the system prompt that was sent last, as a session's row names it."""
    calls = [entry.body for entry in journal if isinstance(entry.body, e.ModelCallStarted)]
    return next((call.system for call in reversed(calls) if call.system), None)


@pytest.mark.parametrize("format_", FORMATS)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(journal=journals(steps_max=120), budget=budgets, limit=st.integers(1, 8))
def test_the_end_of_a_journal_gives_the_context_of_all_of_it(
    format_: str, journal: list[e.Entry], budget: Budget, limit: int
) -> None:
    for context in _of_ends(journal, format_, budget, limit):
        assert context == _context(journal, format_, budget, system=_system(journal))


@pytest.mark.parametrize(
    "limits", [{"max_messages": 50}, {"max_tokens": 2_000}, {"max_bytes": 9_000}]
)
def test_what_is_not_sent_is_not_read(tmp_path: Path, limits: dict[str, Any]) -> None:
    counts = []
    for turns in (20, 400):
        path = tmp_path / f"{turns}.db"
        with Store(path, indexing=False, durability="normal") as store:
            session = store.create_session(id="s")
            for number in range(turns):
                with session.turn(f"question {number}") as turn:
                    turn.record_all([_message(n) for n in range(20)])
            whole = _context(session.entries(), "neutral", _budget(limits))
            assert session.context("neutral", **limits) == whole
            counts.append(_steps(path, session, limits))
    assert counts[1] <= counts[0] * 1.1


def test_a_system_prompt_that_was_hidden_with_its_answer_is_not_sent(tmp_path: Path) -> None:
    """The session's row names it still, and the end of the journal names none."""
    with Store(tmp_path / "a.db", indexing=False, durability="normal") as store:
        session = store.create_session()
        for system in ("Be brief.", "Be long."):
            with session.turn("go") as turn, turn.stream(system=system) as reply:
                reply.text("yes")
        session.hide(session.messages()[-1].seq, model=True)
        for number in range(200):
            with session.turn(f"question {number}") as turn:
                turn.record(_message(number))
        assert session.context("neutral").system == "Be brief."
        assert session.context("neutral", max_messages=4).system == "Be brief."


@pytest.mark.parametrize("limit", [2, 5, 9])
@pytest.mark.parametrize("late", ["result", "text", "message", "nothing"])
def test_what_comes_late_for_something_far_before_is_told_as_of_all(
    tmp_path: Path, late: str, limit: int
) -> None:
    """Every turn uses the same id for its call."""
    with Store(tmp_path / "a.db", indexing=False, durability="normal") as store:
        session = store.create_session()
        with suppress(KeyboardInterrupt), session.turn("first") as turn:
            with turn.stream() as reply:
                reply.tool_call("c", name="look", arguments="{}")
            with turn.tool("c"):
                raise KeyboardInterrupt
        with suppress(KeyboardInterrupt), session.turn("cut off") as cut, cut.stream() as reply:
            reply.text("half of")
            raise KeyboardInterrupt
        for number in range(150):
            with session.turn(f"question {number}") as again:
                again.record(Message("assistant", [ToolCall("c" * (number % 3 + 1), "look", "{}")]))
                again.record(_message(number))
        if late == "result":
            session.finish_tool(turn.id, "c", "found")
        elif late == "text":
            session.add_late_text(cut.id, reply.id, "half of an answer")
        elif late == "message":
            session.add_messages([Message("tool", [ToolResult("other", "lost")])], source="else")
        with session.turn("last") as last:
            last.record(_message(0))
        whole = _context(session.entries(), "openai-chat", Budget(messages=limit))
        assert session.context("openai-chat", max_messages=limit) == whole


@pytest.mark.parametrize("has_result", [False, True])
def test_an_end_with_the_result_of_a_call_before_it_is_too_short(has_result: bool) -> None:
    """No store takes such a message today; a journal that has one is read as a whole."""
    bodies: list[e.Body] = []
    for number in range(20):
        turn, is_last = f"turn_{number}", number == 19
        said = ToolCall("far", "look", "{}") if number == 0 else Text(f"answer {number}")
        result = ToolResult("far", "found") if is_last and has_result else Text("and more")
        role: Any = "tool" if is_last and has_result else "assistant"
        bodies += [
            e.TurnStarted(turn_id=turn, fence=1, holder="h"),
            e.MessageRecorded(id=f"q{number}", turn_id=turn, role="user", parts=(Text("go"),)),
            e.MessageRecorded(id=f"a{number}", turn_id=turn, role="assistant", parts=(said,)),
            e.MessageRecorded(id=f"b{number}", turn_id=turn, role=role, parts=(result,)),
            e.TurnEnding(turn_id=turn, status="completed"),
        ]
    journal = [e.Entry(seq, 0, body) for seq, body in enumerate(bodies, start=1)]
    budget, history, last = Budget(messages=2), History(journal), journal[-15:]
    end = End(last[0].seq, names_provider=False)
    with pytest.raises(EndTooShort) if has_result else nullcontext():
        context = _context(last, "neutral", budget, history=history, end=end)
        assert context == _context(journal, "neutral", budget)


def test_what_was_rewound_is_not_read_for_a_context(tmp_path: Path) -> None:
    counts = []
    for turns in (40, 400):
        path = tmp_path / f"{turns}.db"
        with Store(path, indexing=False, durability="normal") as store:
            session = store.create_session(id="s")
            for number in range(40):
                with session.turn(f"question {number}") as turn:
                    turn.record_all([_message(n) for n in range(20)])
            kept = session.head
            for _ in range(turns):
                with session.turn("again") as turn:
                    turn.record_all([_message(n) for n in range(20)])
            session.rewind(through=kept)
            whole = _context(session.entries(), "neutral", Budget(messages=50))
            assert session.context("neutral", max_messages=50) == whole
            counts.append(_steps(path, session, {"max_messages": 50}))
    assert counts[1] <= counts[0] * 1.1


def _steps(path: Path, session: Session, limits: dict[str, Any]) -> int:
    options: Any = {"max_messages": None, "max_tokens": None, "max_bytes": None, **limits}
    options |= {"at": None, "before_turn": None, "count_tokens": None, "profile": None}
    flow = show_context(
        session._core, "neutral", partial_answers="note", reasoning=True, errors="type", **options
    )
    step = next(flow)
    assert isinstance(step, Read)
    return steps_of(path, step.read)[0]


def _budget(limits: dict[str, Any]) -> Budget:
    return Budget(**{name.removeprefix("max_"): limit for name, limit in limits.items()})


def _message(number: int) -> Message:
    return Message(role="assistant", parts=[Text(f"answer {number}")])
