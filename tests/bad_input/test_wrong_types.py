"""Values of the wrong type: refused when they are given, never found as damage when they are read.

Python does not check them, and what cannot be read back must not be acknowledged.
"""

# ruff: noqa: PT012, SIM117  (the block that an exception leaves is what is tested)

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from killick import (
    AsyncStore,
    InvalidEntry,
    KillickError,
    Message,
    Opaque,
    Reasoning,
    Session,
    Store,
    Text,
    ToolCall,
    ToolResult,
)
from tests.bad_input.helpers import calling, is_usable, nothing_stored

REFUSED = (KillickError, TypeError, ValueError)
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


# -- what JSON would make a text of --------------------------------------------------------------

unlike_text: list[Any] = [
    b"bytes",
    bytearray(b"bytes"),
    datetime(2026, 1, 2, tzinfo=UTC),
    timedelta(1),
]


@pytest.mark.parametrize("value", unlike_text, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "make",
    [
        lambda value: Text(value),
        lambda value: Reasoning("x", signature=value),
        lambda value: ToolCall("c2", value, "{}"),
        lambda value: ToolCall("c2", "n", value),
        lambda value: ToolResult("c1", value),
        lambda value: ToolResult("c1", (Text(value),)),
    ],
    ids=["text", "signature", "name", "arguments", "result", "part of a result"],
)
def test_what_is_no_text_is_not_recorded_as_one(
    store: Store, session: Session, make: Any, value: Any
) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with nothing_stored(session, store), pytest.raises(InvalidEntry):
            turn.record(Message(role="assistant", parts=[make(value)]))
        with turn.stream() as reply:
            with pytest.raises(InvalidEntry):
                reply.part(make(value))
            reply.text("right")
    assert session.messages()[-1].parts == (Text("right"),)
    assert is_usable(session)


def test_opaque_data_that_is_no_bytes_is_refused(store: Store, session: Session) -> None:
    data: Any = "text"
    with session.turn("go") as turn, nothing_stored(session, store), pytest.raises(InvalidEntry):
        turn.record(Message(role="assistant", parts=[Opaque("p", data)]))
    assert is_usable(session)


@pytest.mark.parametrize(
    "title", [*unlike_text, float("nan")], ids=lambda value: type(value).__name__
)
def test_a_title_that_json_would_make_a_text_of_is_refused(session: Session, title: Any) -> None:
    with nothing_stored(session), pytest.raises(InvalidEntry):
        session.rename(title)
    assert is_usable(session)


def test_data_of_the_application_takes_the_form_that_json_has_for_it(session: Session) -> None:
    when: Any = {"at": datetime(2026, 1, 2, tzinfo=UTC)}
    session.note("n", when)
    assert session.entries()[-1].body.data == {"at": "2026-01-02T00:00:00Z"}  # type: ignore[union-attr]


# -- what is false and not None ------------------------------------------------------------------

FALSE: list[Any] = [0, False, [], {}, b"", 0.0]


@pytest.mark.parametrize("value", FALSE, ids=repr)
@pytest.mark.parametrize("name", ["signature", "encrypted"])
def test_a_signature_of_the_wrong_type_damages_nothing(
    session: Session, name: str, value: Any
) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        with pytest.raises(InvalidEntry, match=name):
            reply.reasoning("thought", **{name: value})
        reply.text("right")
    assert session.messages()[-1].text == "right"
    assert is_usable(session)


@pytest.mark.parametrize("value", [0, False, {}, b"", 0.0, set()], ids=repr)
def test_a_result_that_is_false_is_not_taken_for_an_empty_one(session: Session, value: Any) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            with nothing_stored(session), pytest.raises(InvalidEntry, match="result is text"):
                call.finish(value)
            call.finish("right")


@pytest.mark.parametrize("value", ["", 0, [], {}], ids=repr)
def test_an_empty_id_of_a_turn_stops_no_turn(session: Session, value: Any) -> None:
    with session.turn("go") as turn:
        with nothing_stored(session), pytest.raises(InvalidEntry):
            session.stop(value)
        turn.record(Message(role="assistant", parts=[Text("right")]))
    assert session.turns()[-1].status == "completed"


# -- ids, counts and names -----------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 5, b"x", ["x"], {}], ids=repr)
def test_an_id_of_the_wrong_type_is_said_to_be_one(
    store: Store, session: Session, value: Any
) -> None:
    for ask in (
        store.session,
        store.session_info,
        store.resolve_id,
        store.delete_session,
        store.restore_session,
        store.erase_session,
        store.examine_session,
        store.blob,
        session.withdraw,
        lambda wrong: session.finish_tool(wrong, "c1", "x"),
        lambda wrong: session.finish_tool("turn", wrong, "x"),
        lambda wrong: session.add_late_text(wrong, "m", "x"),
        lambda wrong: session.add_late_text("turn", wrong, "x"),
        lambda wrong: session.add_late_text("turn", "m", wrong),
    ):
        with nothing_stored(session, store), pytest.raises((InvalidEntry, LookupError)) as caught:
            ask(value)
        said = str(caught.value)
        assert type(value).__name__ in said or said.count(repr(value)) == 1


@pytest.mark.parametrize("value", ["text", {"role": "assistant"}, Text("x"), None], ids=repr)
def test_what_is_recorded_is_a_message(store: Store, session: Session, value: Any) -> None:
    with session.turn("go") as turn, nothing_stored(session, store):
        with pytest.raises(TypeError, match="is a Message, and this is a"):
            turn.record(value)
    assert is_usable(session)


@pytest.mark.parametrize("value", ["3", 1.5, True, 2**70, -1], ids=repr)
def test_a_count_of_the_wrong_type_is_said_to_be_one(session: Session, value: Any) -> None:
    for ask in (
        lambda wrong: session.messages(after=wrong),
        lambda wrong: session.messages(last=wrong),
        lambda wrong: session.messages(limit=wrong),
        lambda wrong: session.entries(after=wrong),
        lambda wrong: session.entries(limit=wrong),
        lambda wrong: session.changes(after=wrong),
        lambda wrong: session.context("anthropic", max_messages=wrong),
        lambda wrong: session.context("anthropic", max_tokens=wrong),
        lambda wrong: session.undo(wrong),
    ):
        with nothing_stored(session), pytest.raises(REFUSED, match=re.escape(repr(value))):
            ask(value)


@pytest.mark.parametrize(
    "wrong",
    [{"limit": 1.5}, {"limit": True}, {"limit": "3"}, {"session": 5}, {"since": "today"}],
    ids=repr,
)
def test_a_filter_of_the_wrong_type_does_not_pass_for_damage(
    store: Store, session: Session, wrong: Any
) -> None:
    with session.turn("a linker"):
        pass
    with pytest.raises(ValueError, match="search"):
        store.search("linker", **wrong)
    assert len(store.search("linker")) == 1


def test_a_filter_that_is_none_was_not_given(store: Store) -> None:
    none: Any = None
    with store.create_session().turn("linker") as turn, turn.stream() as reply:
        reply.reasoning("linker")
    for name in ("reasoning", "substring", "order", "limit", "wait_seconds"):
        assert len(store.search("linker", **{name: none})) == 2, name
    for name in ("deleted", "limit", "archived", "before", "title"):
        assert len(store.sessions(**{name: none})) == len(store.sessions()), name
    assert store.check_file() == []


def test_a_setting_that_does_not_exist_is_refused_by_the_name_of_the_call(
    store: Store, session: Session
) -> None:
    typo: Any = {"tittle": "x"}
    with session.turn("go") as turn:
        before = (session.entries()[-1].seq, store.counts())
        calls: dict[str, Any] = {
            "Store.__init__": lambda: Store("unused.db", **typo),
            "Store.create_session": lambda: store.create_session(**typo),
            "Store.sessions": lambda: store.sessions(**typo),
            "Store.search": lambda: store.search("x", **typo),
            "Store.usage": lambda: store.usage(**typo),
            "Store.activity": lambda: store.activity(**typo),
            "Session.turn": lambda: session.turn("p", **typo),
            "Session.context": lambda: session.context("anthropic", **typo),
            "Session.compact": lambda: session.compact("summary", 1, **typo),
            "Session.fork": lambda: session.fork(**typo),
            "Turn.stream": lambda: turn.stream(**typo),
            "AsyncStore.__init__": lambda: AsyncStore("unused.db", **typo),
            "AsyncStore.create_session": lambda: AsyncStore.create_session(**typo),
        }
        for call, use in calls.items():
            expected = rf"^{call}\(\) got an unexpected keyword argument 'tittle'"
            with pytest.raises(TypeError, match=expected):
                use()
        assert (session.entries()[-1].seq, store.counts()) == before


@pytest.mark.parametrize("value", [b"bytes", {"role": "user"}, {"a"}, Text("x"), 5], ids=repr)
def test_a_prompt_that_is_none_is_said_to_be_one(
    store: Store, session: Session, value: Any
) -> None:
    for ask in (session.queue, lambda wrong: session.turn(wrong).__enter__()):
        with nothing_stored(session, store), pytest.raises(InvalidEntry, match="a prompt is text"):
            ask(value)
    with session.turn("go") as turn, nothing_stored(session, store):
        with pytest.raises(InvalidEntry, match="parts of a message are a list"):
            turn.record(Message(role="assistant", parts=value))
    assert is_usable(session)
