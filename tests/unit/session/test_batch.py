"""Several writes in one commit."""

from pathlib import Path

import pytest

from killick import Message, Session, Store, Text
from killick.errors import CallNotFound, IdConflict, SessionNotFound, StoreDegraded
from killick.model.sessions import SessionNote
from killick.stores.memory import MemoryDisk
from killick.testing.faults import Failpoints


def commits(store: Store) -> int:
    return sum(store.figures.commit_seconds.counts)


def test_a_session_its_first_turn_and_more_are_one_commit(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", indexing=False) as store:
        before, batch = commits(store), store.batch()
        session = batch.create_session(title="One")
        turn = session.turn("Why?")
        batch.note_all(session, [SessionNote("seen")])
        batch.begin(turn, [Message("user", [Text("Now.")])])
        assert not store.has_session(session.id)
        batch.write()
        assert commits(store) - before == 1
        assert [m.text for m in store.session(session.id).messages()] == ["Why?", "Now."]
        assert (session.title, turn.status) == ("One", "running")
        assert session.head == store.session(session.id).head
        turn.end()


def test_a_turn_ends_and_the_next_begins_in_one_commit(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", indexing=False) as store:
        session = store.create_session()
        first, second = session.turn("One.").begin(), session.turn("Two.")
        before, batch = commits(store), store.batch()
        batch.record_all(first, [Message("assistant", [Text("1")])])
        batch.end(first)
        batch.begin(second)
        batch.write()
        assert commits(store) - before == 1
        assert [turn.status for turn in session.turns()] == ["completed", "running"]
        second.end()


def test_a_write_that_reads_first_takes_part(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", indexing=False) as store:
        session = store.create_session()
        running = session.turn("One.").begin()
        before, batch = commits(store), store.batch()
        name = batch.put_blob(b"bytes")
        batch.end(running)
        added = batch.add_messages(session, [Message("user", [Text("Else.")])], source="there")
        batch.write()
        assert commits(store) - before == 1
        assert added.result is not None
        assert added.result.turns == [session.turns()[-1].id]
        assert name.result is not None
        assert store.blob(name.result) == b"bytes"


def test_a_refused_write_is_refused_alone_and_its_error_raised(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", indexing=False) as store:
        session = store.create_session()
        with session.turn("Why?") as turn:
            batch = store.batch()
            batch.finish_tool(session, turn.id, "none", "x")
            batch.note_all(session, [SessionNote("seen")])
            with pytest.raises(CallNotFound):
                batch.write()
        assert [note.name for note in session.notes()] == ["seen"]


def test_a_refusal_can_be_passed_over(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", indexing=False) as store:
        session = store.create_session()
        with session.turn("Why?") as turn:
            batch = store.batch()
            finished = batch.finish_tool(session, turn.id, "none", "x").unless(CallNotFound)
            batch.write()
            batch.write()  # it is empty: nothing is written, nothing refused
        assert (finished.result, type(finished.refusal)) == (None, CallNotFound)


def test_a_session_that_exists_with_another_beginning_gets_no_turn(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", indexing=False) as store:
        store.create_session(id="mine", title="Another")
        batch = store.batch()
        batch.begin(batch.create_session(id="mine", title="One").turn("Why?"))
        with pytest.raises(IdConflict):
            batch.write()
        assert store.session("mine").turns() == []


def test_a_session_that_exists_with_the_same_beginning_goes_on(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", indexing=False) as store:
        store.create_session(id="mine", title="One").rename("Two")
        batch = store.batch()
        session = batch.create_session(id="mine", title="One")
        turn = session.turn("Why?")
        batch.begin(turn)
        batch.write()
        assert (session.title, [t.id for t in store.session("mine").turns()]) == ("Two", [turn.id])
        turn.end()


def test_a_deleted_session_is_not_there(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", indexing=False) as store:
        session = store.create_session()
        assert store.has_session(session.id)
        store.delete_session(session.id)
        assert not store.has_session(session.id)
        batch = store.batch()
        batch.note_all(session, [SessionNote("seen")])
        with pytest.raises(SessionNotFound):
            batch.write()


@pytest.mark.parametrize("step", range(1, 12))
def test_a_store_that_fails_has_all_of_it_or_nothing(step: int) -> None:
    disk = Failpoints(MemoryDisk().open())
    with Store(disk, indexing=False) as store:
        session, other = store.create_session(), store.create_session()
        disk.fail_at = disk.steps + step
        expected = 0
        try:
            _note_both(store, session, other)
        except StoreDegraded:
            pass
        else:
            expected = 1
        stored = [store.session(each.id).notes() for each in (session, other)]
        assert [len(notes) for notes in stored] == [expected, expected]


def _note_both(store: Store, *sessions: Session) -> None:
    batch = store.batch()
    for session in sessions:
        batch.note_all(session, [SessionNote("seen")])
    batch.write()
