"""The same id with other content: a conflict, and what is stored stays."""

# ruff: noqa: PT012, SIM117  (the block that an exception leaves is what is tested)

import pytest

from killick import (
    IdConflict,
    InvalidEntry,
    Message,
    Session,
    StaleFence,
    Store,
    Text,
    ToolAlreadyStarted,
    ToolResult,
    TurnEnded,
)
from killick.stores.engine.state import Op
from tests.bad_input.helpers import calling, is_usable, nothing_stored, saying, texts


def test_a_second_message_of_one_id_with_other_content_is_a_conflict(
    store: Store, session: Session
) -> None:
    with session.turn("go") as turn:
        turn.record(saying("first", id="mine"))
        with nothing_stored(session, store):
            with pytest.raises(IdConflict, match=r"'mine'.*other content; use another id"):
                turn.record(saying("second", id="mine"))
            assert turn.record(saying("first", id="mine")).repeated
    assert texts(session) == ["go", "first"]


def test_a_message_id_of_another_turn_with_other_content_is_a_conflict(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(saying("first", id="mine"))
    with session.turn("on") as turn, nothing_stored(session), pytest.raises(IdConflict):
        turn.record(saying("second", id="mine"))


def test_a_recorded_message_cannot_take_the_id_of_a_streamed_one(session: Session) -> None:
    with session.turn("go") as turn:
        with turn.stream() as reply:
            reply.text("streamed")
        with nothing_stored(session), pytest.raises(IdConflict):
            turn.record(saying("recorded", id=reply.id))


def test_a_prompt_with_a_used_id_and_other_content_begins_no_turn(session: Session) -> None:
    with session.turn(Message(role="user", parts=[Text("first")], id="mine")):
        pass
    with nothing_stored(session), pytest.raises(IdConflict):
        with session.turn(Message(role="user", parts=[Text("second")], id="mine")):
            pass
    assert is_usable(session)


def test_a_prompt_under_a_key_that_another_prompt_has_used_is_not_queued(
    store: Store, session: Session
) -> None:
    """It was, and then no turn could take it, and no turn could begin any more."""
    with session.turn("first", key="k"):
        pass
    with nothing_stored(session, store), pytest.raises(IdConflict):
        session.queue("second", key="k")
    assert is_usable(session)


def test_a_prompt_that_was_asked_under_its_key_is_not_queued_again(session: Session) -> None:
    with session.turn("first", key="k"):
        pass
    with nothing_stored(session):
        session.queue("first", key="k")
    assert is_usable(session)


def test_a_queued_prompt_whose_id_was_taken_meanwhile_is_asked_all_the_same(
    session: Session,
) -> None:
    with session.turn("go") as turn:
        session.queue(Message(role="user", parts=[Text("waiting")], id="mine"))
        turn.record(saying("another", id="mine"))
    with session.turn("on"):
        pass
    assert texts(session) == ["go", "another", "waiting", "on"]
    assert is_usable(session)


def test_a_second_result_with_other_content_is_a_conflict(store: Store, session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            call.finish("first")
            with nothing_stored(session, store):
                with pytest.raises(IdConflict):
                    call.finish("second")
                with pytest.raises(IdConflict):
                    call.finish("first", is_error=True)
                assert call.finish("first").repeated
    assert session.messages()[-1].parts == (ToolResult("c1", "first"),)


def test_a_second_late_result_with_other_content_is_a_conflict(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
    session.finish_tool(turn.id, "c1", "first")
    with nothing_stored(session):
        with pytest.raises(IdConflict):
            session.finish_tool(turn.id, "c1", "second")
        assert session.finish_tool(turn.id, "c1", "first").repeated


def test_a_late_result_with_other_content_than_the_one_in_the_turn_is_a_conflict(
    session: Session,
) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            call.finish("first")
    with nothing_stored(session):
        with pytest.raises(IdConflict):
            session.finish_tool(turn.id, "c1", "second")
        assert session.finish_tool(turn.id, "c1", "first").repeated


def test_a_second_result_inside_a_message_is_a_conflict(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        turn.record(Message(role="tool", parts=[ToolResult("c1", "first")]))
        with nothing_stored(session):
            with pytest.raises(IdConflict):
                turn.record(Message(role="tool", parts=[ToolResult("c1", "second")]))
            with pytest.raises(IdConflict):
                session.finish_tool(turn.id, "c1", "second")


def test_one_message_with_two_results_for_one_call_is_refused(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with nothing_stored(session), pytest.raises(IdConflict):
            turn.record(Message(role="tool", parts=[ToolResult("c1", "a"), ToolResult("c1", "b")]))


def test_a_call_is_not_started_twice(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            call.finish("done")
        with nothing_stored(session), pytest.raises(ToolAlreadyStarted, match="call it again"):
            with turn.tool("c1"):
                pass


def test_a_second_ending_is_refused_and_the_first_stays(store: Store, session: Session) -> None:
    with pytest.raises(StaleFence, match="another turn has begun"), session.turn("go"):
        with store.session("s").turn("mine", if_busy="take_over"):
            pass
    first, second = session.turns()
    assert (first.status, first.reason) == ("interrupted", "taken_over")
    assert second.status == "completed"
    endings = [entry for entry in session.entries() if entry.kind == "turn_ended"]
    assert len(endings) == 2


def test_a_key_with_another_prompt_is_a_conflict(store: Store, session: Session) -> None:
    with session.turn("first", key="k"):
        pass
    with nothing_stored(session, store), pytest.raises(IdConflict, match=r"'k'.*another prompt"):
        with session.turn("second", key="k"):
            pass
    with session.turn("first", key="k") as again:
        assert again.repeated
        with pytest.raises(TurnEnded, match="same key"):
            again.record(saying("x"))


def test_a_note_key_with_other_data_is_a_conflict(session: Session) -> None:
    session.note("n", {"a": 1}, key="k")
    with nothing_stored(session):
        with pytest.raises(IdConflict):
            session.note("n", {"a": 2}, key="k")
        assert session.note("n", {"a": 1}, key="k").repeated


def test_a_queued_prompt_key_with_other_content_is_a_conflict(session: Session) -> None:
    session.queue("first", key="k")
    with nothing_stored(session):
        with pytest.raises(IdConflict):
            session.queue("second", key="k")
        session.queue("first", key="k")


def test_a_session_id_with_another_beginning_is_a_conflict(store: Store, session: Session) -> None:
    with nothing_stored(session, store):
        with pytest.raises(IdConflict, match="'s' exists already"):
            store.create_session(id="s", title="other")
        assert store.create_session(id="s", title="T").id == "s"


def test_the_same_beginning_with_a_tuple_in_it_is_the_same_beginning(store: Store) -> None:
    store.create_session(id="x", extra={"pair": (1, 2)})
    assert store.create_session(id="x", extra={"pair": (1, 2)}).id == "x"


def test_late_text_that_does_not_continue_what_is_stored_is_a_conflict(session: Session) -> None:
    with pytest.raises(KeyboardInterrupt), session.turn("go") as turn, turn.stream() as reply:
        reply.text("so far")
        raise KeyboardInterrupt
    with nothing_stored(session), pytest.raises(IdConflict, match="does not continue"):
        session.add_late_text(turn.id, reply.id, "something else")
    session.add_late_text(turn.id, reply.id, "so far so good")
    assert texts(session)[-1] == "so far so good"
    with nothing_stored(session), pytest.raises(IdConflict):
        session.add_late_text(turn.id, reply.id, "so far so bad")


def test_a_decision_on_other_arguments_than_were_asked_about_is_refused(session: Session) -> None:
    import msgspec

    with session.turn("go") as turn:
        turn.record(calling())
        asked = turn.ask_approval("c1", "{}")
        other = msgspec.structs.replace(asked, arguments_hash="b2:other")
        with nothing_stored(session), pytest.raises(InvalidEntry, match="other arguments"):
            session.decide_approval(other, approved=True)


def test_a_second_decision_against_the_first_is_a_conflict(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        asked = turn.ask_approval("c1", "{}")
        session.decide_approval(asked, approved=False)
        with nothing_stored(session), pytest.raises(IdConflict):
            session.decide_approval(asked, approved=True)


def test_two_calls_of_one_id_in_one_stream_are_refused_or_kept_apart(session: Session) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        reply.tool_call("c1", name="shell", arguments="{}")
        with pytest.raises(InvalidEntry, match="whole already"):
            reply.tool_call("c1", arguments='{"more": 1}')
    assert len(session.messages()[-1].tool_calls) == 1


def test_ids_made_to_look_like_other_ids_are_kept_apart(session: Session) -> None:
    """The key of a message must not be the key of a tool's start, whatever the ids are."""
    with session.turn("go") as turn:
        turn.record(calling("x/message", id="m"))
        with turn.tool("x/message") as call:
            call.finish("done")
        turn.record(saying("hello", id="m/1/tool_started/x"))
        turn.record(saying("again", id="m/1/tool_result/x"))
    assert texts(session)[-2:] == ["hello", "again"]


def test_what_a_tool_prints_after_a_result_from_elsewhere_leaves_nothing_behind(
    store: Store, session: Session
) -> None:
    """It is refused, and said by the next call; the session stays whole."""
    with pytest.raises(IdConflict, match="has a result from elsewhere already"):
        with session.turn("go") as turn:
            turn.record(calling("c"))
            with turn.tool("c") as call:
                call.output("before ")
                session.finish_tool(turn.id, "c", "done elsewhere")
                call.output("after")
                writer = store._core.runtime().writer
                writer.at_once()
                writer.submit(Op(lambda _: None)).wait()
                assert store.examine_session(session.id) == []
                call.output("again")
    assert store.examine_session(session.id) == []
    [result] = [one.parts[0] for one in session.messages() if one.role == "tool"]
    assert isinstance(result, ToolResult)
    assert result.content == "done elsewhere"
