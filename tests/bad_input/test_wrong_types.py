"""Values of the wrong type: refused when they are given, never found as damage when they are read.

Python does not check them, and what cannot be read back must not be acknowledged.
"""

# ruff: noqa: PT012, SIM117  (the block that an exception leaves is what is tested)

from typing import Any

import pytest

from holdfast import (
    HoldfastError,
    InvalidEntry,
    Message,
    Reasoning,
    Session,
    Store,
    Text,
    ToolCall,
    ToolResult,
)
from tests.bad_input.helpers import calling, is_usable, nothing_stored

REFUSED = (HoldfastError, TypeError, ValueError)
wrong: Any = {"a": 1}
parts: list[Any] = [
    Text(wrong),
    Reasoning(wrong),
    ToolCall("c", "n", wrong),
    ToolCall("c", wrong, "{}"),
    ToolCall("c", "n", "{}", wrong),
    ToolResult("c1", wrong),
    ToolResult("c1", "x", is_error=wrong),
    "just text",
    wrong,
    None,
]


@pytest.mark.parametrize("part", parts, ids=repr)
def test_a_part_of_the_wrong_type_is_refused(store: Store, session: Session, part: Any) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with nothing_stored(session, store), pytest.raises(REFUSED):
            turn.record(Message(role="assistant", parts=[part]))
    assert is_usable(session)


@pytest.mark.parametrize("part", parts, ids=repr)
def test_a_prompt_of_the_wrong_type_begins_no_turn(
    store: Store, session: Session, part: Any
) -> None:
    with nothing_stored(session, store), pytest.raises(REFUSED):
        with session.turn([part]):
            pass
    assert is_usable(session)


def test_an_unknown_role_is_refused(store: Store, session: Session) -> None:
    role: Any = "robot"
    with session.turn("go") as turn, nothing_stored(session, store), pytest.raises(REFUSED):
        turn.record(Message(role=role, parts=[Text("x")]))
    assert is_usable(session)


@pytest.mark.parametrize("content", [wrong, ["text"], [wrong], 5, b"bytes"], ids=repr)
def test_a_result_of_the_wrong_type_is_refused(session: Session, content: Any) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            with nothing_stored(session), pytest.raises(REFUSED):
                call.finish(content)
            call.finish("right")
    assert is_usable(session)


@pytest.mark.parametrize(
    "data", [object(), float("nan"), float("inf")], ids=["object", "nan", "inf"]
)
def test_a_note_that_json_cannot_hold_is_refused(session: Session, data: Any) -> None:
    with nothing_stored(session), pytest.raises(REFUSED):
        session.note("n", data)


@pytest.mark.parametrize("data", [float("nan"), [float("inf")]], ids=["nan", "inf"])
def test_a_result_from_elsewhere_that_json_cannot_hold_is_refused(
    session: Session, data: Any
) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
    with nothing_stored(session), pytest.raises(InvalidEntry, match="which JSON does not have"):
        session.finish_tool(turn.id, "c1", "done", structured=data)
    assert is_usable(session)


def test_a_note_that_nests_too_deeply_is_refused_or_can_be_read_from_anywhere(
    session: Session,
) -> None:
    data: Any = []
    for _ in range(900):
        data = [data]
    with pytest.raises(InvalidEntry, match="levels deep"):
        session.note("n", data)
    for _ in range(850):
        data = data[0]
    session.note("n", data)

    def read_from_deep(levels: int) -> int:
        return len(session.entries()) if levels == 0 else read_from_deep(levels - 1)

    assert read_from_deep(300) == 2


@pytest.mark.parametrize(
    "settings",
    [{"tags": (1,)}, {"type": None}, {"extra": [1]}, {"title": 5}, {"project": "root"}],
    ids=["tags", "type", "extra", "title", "project"],
)
def test_a_session_with_settings_of_the_wrong_type_is_not_created(
    store: Store, settings: Any
) -> None:
    before = store.counts()
    with pytest.raises(REFUSED):
        store.create_session(id="new", **settings)
    assert store.counts() == before


def test_text_of_the_wrong_type_is_not_streamed(session: Session) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        with pytest.raises(REFUSED):
            reply.text(wrong)
        reply.text("right")
    assert session.messages()[-1].text == "right"


def test_arguments_of_the_wrong_type_are_not_streamed(session: Session) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        with pytest.raises(REFUSED):
            reply.tool_call("c1", name="n", arguments=wrong)
        reply.tool_call("c2", name="n", arguments="{}")
    assert [call.id for call in session.messages()[-1].tool_calls] == ["c2"]


@pytest.mark.parametrize("part", ["just text", wrong, Text(wrong)], ids=repr)
def test_a_part_of_the_wrong_type_is_not_streamed(session: Session, part: Any) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        with pytest.raises(REFUSED):
            reply.part(part)
        reply.text("right")
    assert session.messages()[-1].text == "right"
    assert is_usable(session)


def test_output_of_the_wrong_type_is_refused(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            with pytest.raises(REFUSED):
                call.output(wrong)
            call.finish("right")
    assert is_usable(session)


def test_a_usage_of_the_wrong_type_does_not_damage_the_session(session: Session) -> None:
    usage: Any = {"input": "many"}
    with pytest.raises(REFUSED), session.turn("go") as turn, turn.stream() as reply:
        reply.text("x")
        reply.finish(usage=usage)
    assert session.messages()[-1].text == "x"
    assert is_usable(session)


@pytest.mark.parametrize("title", [5, wrong], ids=repr)
def test_a_title_of_the_wrong_type_is_refused(session: Session, title: Any) -> None:
    with nothing_stored(session), pytest.raises(REFUSED):
        session.rename(title)
    assert is_usable(session)
