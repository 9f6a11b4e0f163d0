"""A turn on a session that is busy or deleted."""

# ruff: noqa: PT012, SIM117  (the block that an exception leaves is what is tested)

import os

import pytest

from killick import PromptQueued, Session, SessionBusy, SessionDeleted, Store
from tests.bad_input.helpers import calling, is_usable, nothing_stored, saying, texts


def test_a_turn_on_a_busy_session_is_refused_and_the_holder_named(
    store: Store, session: Session
) -> None:
    with session.turn("go") as turn:
        other = store.session("s")
        with nothing_stored(session, store), pytest.raises(SessionBusy) as caught:
            with other.turn("mine"):
                pass
        assert caught.value.turn_id == turn.id
        assert f"/{os.getpid()}/" in caught.value.holder
        assert turn.id in str(caught.value)
        assert 'if_busy="' in str(caught.value)
    assert is_usable(session)


def test_a_wait_for_a_busy_session_ends_when_its_time_is_over(
    store: Store, session: Session
) -> None:
    with session.turn("go"), nothing_stored(session, store):
        with pytest.raises(SessionBusy):
            with store.session("s").turn("mine", if_busy="wait", wait_seconds=0.05):
                pass


def test_a_queued_prompt_is_kept_and_the_error_names_it(store: Store, session: Session) -> None:
    with session.turn("go"):
        with pytest.raises(PromptQueued) as caught, session.turn("next", if_busy="queue"):
            pass
    with session.turn():
        pass
    assert (session.messages()[-1].id, texts(session)) == (caught.value.prompt_id, ["go", "next"])


def test_queueing_nothing_on_a_busy_session_is_refused(store: Store, session: Session) -> None:
    with session.turn("go"), nothing_stored(session, store):
        with pytest.raises(SessionBusy), session.turn(if_busy="queue"):
            pass


def test_an_unknown_way_of_waiting_is_refused(session: Session) -> None:
    with nothing_stored(session), pytest.raises(ValueError, match='it is "refuse", "wait"'):
        session.turn("go", if_busy="perhaps")  # type: ignore[arg-type]


def test_a_deleted_session_is_refused_and_the_error_says_how_to_restore_it(
    store: Store, session: Session
) -> None:
    store.delete_session("s")
    with pytest.raises(SessionDeleted, match=r"store\.restore_session\(\)"):
        store.session("s")
    with nothing_stored(session, store):
        with pytest.raises(SessionDeleted), session.turn("go"):
            pass
        with pytest.raises(SessionDeleted):
            session.rename("x")
        with pytest.raises(SessionDeleted):
            session.queue("x")
        with pytest.raises(SessionDeleted):
            session.note("x")
    assert is_usable(store.restore_session("s"))


def test_deleting_a_session_ends_its_turn_and_its_writer_cannot_bring_it_back(
    store: Store, session: Session
) -> None:
    with pytest.raises(SessionDeleted), session.turn("go") as turn:
        turn.record(calling())
        store.delete_session("s")
        turn.record(saying("still here"))
    kinds = [entry.kind for entry in session.entries()]
    assert kinds[-2:] == ["turn_ended", "deleted"]
    assert store.sessions() == []


def test_a_result_for_a_deleted_session_is_refused(store: Store, session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
    store.delete_session("s")
    with nothing_stored(session), pytest.raises(SessionDeleted):
        session.finish_tool(turn.id, "c1", "late")


def test_a_session_deleted_twice_has_one_deletion(store: Store, session: Session) -> None:
    store.delete_session("s")
    with nothing_stored(session):
        assert store.delete_session("s").repeated
