"""What was never there: refused by name, with nothing stored."""

# ruff: noqa: PT012, SIM117  (the block that an exception leaves is what is tested)

from pathlib import Path

import pytest

from killick import (
    BlobNotFound,
    CallNotFound,
    Image,
    InvalidEntry,
    Message,
    MessageNotFound,
    Session,
    SessionNotFound,
    Store,
    ToolCall,
    ToolResult,
    TurnNotFound,
)
from killick.model.entries import ApprovalAsked
from tests.bad_input.helpers import calling, child, is_usable, nothing_stored, texts, until


@pytest.mark.parametrize("session_id", ["gone", "", "s ", "S", "\0", "\ud800", "s\0"])
def test_an_unknown_session_is_refused_and_the_error_says_how_to_list_them(
    store: Store, session: Session, session_id: str
) -> None:
    with nothing_stored(session, store):
        with pytest.raises(SessionNotFound, match=r"store\.sessions\(\) lists them"):
            store.session(session_id)
        with pytest.raises(SessionNotFound):
            store.delete_session(session_id)
        with pytest.raises(SessionNotFound):
            store.restore_session(session_id)


def test_a_session_of_another_tenant_is_unknown(store: Store, session: Session) -> None:
    with Store(store._core.runtime().database.path, tenant="other") as other:  # type: ignore[attr-defined]
        with pytest.raises(SessionNotFound):
            other.session(session.id)
        assert other.sessions() == []


def test_a_result_for_a_call_never_made_is_refused(store: Store, session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling("c1"))
        with nothing_stored(session, store):
            with pytest.raises(CallNotFound, match="record the message that makes it first"):
                session.finish_tool(turn.id, "c2", "x")
            with pytest.raises(CallNotFound, match="'c2'"):
                turn.record(Message(role="tool", parts=[ToolResult("c2", "x")]))
            with pytest.raises(CallNotFound):
                turn.ask_approval("c2", "{}")
    assert is_usable(session)


def test_a_tool_that_was_never_called_is_not_started(store: Store, session: Session) -> None:
    ran = False
    with session.turn("go") as turn, nothing_stored(session, store):
        with pytest.raises(CallNotFound), turn.tool("c1"):
            ran = True
    assert not ran


def test_a_call_cut_off_in_its_arguments_is_no_call(session: Session) -> None:
    with pytest.raises(KeyboardInterrupt), session.turn("go") as turn, turn.stream() as reply:
        reply.tool_call("c1", name="shell", arguments='{"command": "ma')
        raise KeyboardInterrupt
    with nothing_stored(session), pytest.raises(CallNotFound, match="cut off in its arguments"):
        session.finish_tool(turn.id, "c1", "x")


def test_a_call_of_another_turn_is_no_call_of_this_one(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling("c1"))
    with session.turn("on") as turn, nothing_stored(session):
        with pytest.raises(CallNotFound):
            session.finish_tool(turn.id, "c1", "x")


def test_a_result_for_a_turn_that_never_was_is_refused(session: Session) -> None:
    with nothing_stored(session), pytest.raises(TurnNotFound, match="has no turn 'gone'"):
        session.finish_tool("gone", "c1", "x")


def test_a_stop_for_a_turn_that_never_was_is_refused(session: Session) -> None:
    with nothing_stored(session), pytest.raises(TurnNotFound):
        session.stop("gone")


def test_late_text_for_a_message_that_never_was_is_refused(session: Session) -> None:
    with session.turn("go") as turn:
        pass
    with nothing_stored(session), pytest.raises(MessageNotFound):
        session.add_late_text(turn.id, "gone", "text")


def test_an_approval_that_was_never_asked_for_is_refused(session: Session) -> None:
    asked = ApprovalAsked(id="x", turn_id="t", message_id="m", call_id="c", arguments_hash="h")
    with nothing_stored(session), pytest.raises(InvalidEntry, match="no approval 'x'"):
        session.decide_approval(asked, approved=True)


def test_an_image_without_its_blob_is_refused_and_the_error_says_what_to_call(
    store: Store, session: Session
) -> None:
    with session.turn("go") as turn, nothing_stored(session, store):
        with pytest.raises(InvalidEntry, match=r"call store\.put_blob\(data\) first"):
            turn.record(Message(role="user", parts=[Image("b2:gone", "image/png")]))


def test_a_prompt_with_an_unknown_blob_begins_no_turn(store: Store, session: Session) -> None:
    with nothing_stored(session, store), pytest.raises(InvalidEntry):
        with session.turn([Image("b2:gone", "image/png")]):
            pass
    assert is_usable(session)


def test_a_streamed_part_with_an_unknown_blob_does_not_break_the_turn(
    store: Store, session: Session
) -> None:
    """Handing a part over does not wait, so it is refused there or when the stream is left."""
    with pytest.raises(InvalidEntry), session.turn("go") as turn, turn.stream() as reply:
        reply.text("kept")
        reply.part(Image("b2:gone", "image/png"))
        until(lambda: store.counts()["deltas"] > 0)
    assert session.turns()[-1].status == "failed"
    assert texts(session) == ["go", "kept"]
    assert is_usable(session)


_DIES_WITH_AN_UNKNOWN_BLOB = """
import os, sys
from killick import Image, Store
store = Store(sys.argv[1], window_seconds=0.001)
with store.session("s").turn("go") as turn, turn.stream() as reply:
    reply.text("kept")
    reply.part(Image("b2:gone", "image/png"))
    while not store.counts()["deltas"]:
        pass
    print("streaming", flush=True)
    os._exit(9)
"""


def test_a_dead_turn_that_streamed_an_unknown_blob_is_closed_by_the_next_to_open_it(
    path: Path,
) -> None:
    with Store(path) as store:
        store.create_session(id="s")
    with child(_DIES_WITH_AN_UNKNOWN_BLOB, path):
        pass
    with Store(path) as store:
        session = store.session("s")
        assert session.turns()[-1].reason == "crashed"
        assert texts(session) == ["go", "kept"]
        assert is_usable(session)


@pytest.mark.parametrize("name", ["b2:gone", "", "\0", "\ud800"])
def test_an_unknown_blob_is_refused(store: Store, name: str) -> None:
    with pytest.raises(BlobNotFound):
        store.blob(name)


def test_the_first_piece_of_a_call_without_a_name_is_refused(session: Session) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        with pytest.raises(InvalidEntry, match="needs the tool's name"):
            reply.tool_call("c1", arguments="{}")
        reply.tool_call("c1", name="shell", arguments="{}")
    assert session.messages()[-1].parts == (ToolCall("c1", "shell", "{}"),)
