"""Writes of several flows in one commit."""

from pathlib import Path
from typing import Any

import pytest

from killick import Message, Store, Text
from killick.errors import CallNotFound, IdConflict, StoreDegraded
from killick.model.sessions import SessionNote
from killick.session.drive.steps import Flow, Write, read, run, together
from killick.stores.memory import MemoryDisk
from killick.testing.faults import Failpoints


def beginning(store: Store, session_id: str | None = None, title: str = "One") -> Any:
    return store._core.plan_session(
        session_id,
        title=title,
        titled_by="person",
        session_type="user",
        project=None,
        extra=None,
        parent=None,
    )


def carried_out(store: Store, *flows: Flow[Any] | Write[Any]) -> list[Any]:
    return run(store._core.runtime(), together(flows, []))


def commits(store: Store) -> int:
    return sum(store.figures.commit_seconds.counts)


def test_a_session_its_first_turn_and_more_are_one_commit(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", indexing=False) as store:
        session, begin = beginning(store)
        turn = store.create_session().turn("Why?")
        turn._core.session = session
        before = commits(store)
        begun, _ = carried_out(store, begin, turn._core.enter([Message("user", [Text("Now.")])]))
        assert (begun, commits(store) - before) == (True, 1)
        assert [m.text for m in store.session(session.id).messages()] == ["Why?", "Now."]
        assert (session.title, session.head) == ("One", 4)
        turn.end()


def test_a_flow_without_a_write_and_one_that_reads_first_take_part(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", indexing=False) as store:
        session = store.create_session()

        def looks() -> Flow[int]:
            return (yield from read(lambda _reader: 7))

        def looks_and_writes() -> Flow[int]:
            seen = yield from read(lambda _reader: 8)
            yield from session._core.rename("Two", "person")
            return seen

        before = commits(store)
        assert carried_out(store, looks(), looks_and_writes()) == [7, 8]
        assert (commits(store) - before, session.title) == (1, "Two")


def test_a_refused_flow_is_refused_alone_and_its_error_raised(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", indexing=False) as store:
        session = store.create_session()
        with session.turn("Why?") as turn:
            core = session._core
            refused = core.finish_tool(turn.id, "none", "x", is_error=False, structured=None)
            with pytest.raises(CallNotFound):
                carried_out(store, refused, core.rename("Two", "person"))
        assert store.session(session.id).title == "Two"


def test_a_session_that_exists_with_another_beginning_gets_no_turn(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", indexing=False) as store:
        first = store.create_session(id="mine", title="Another")
        session, begin = beginning(store, "mine")
        turn = first.turn("Why?")
        turn._core.session = session
        with pytest.raises(IdConflict):
            carried_out(store, begin, turn._core.enter())
        assert store.session("mine").turns() == []
        assert turn.status == "running"  # as it says of one that never began
        turn._core.session = first._core
        with turn:
            assert [t.status for t in store.session("mine").turns()] == ["running"]


@pytest.mark.parametrize("step", range(1, 12))
def test_a_store_that_fails_has_all_of_it_or_nothing(step: int) -> None:
    disk = Failpoints(MemoryDisk().open())
    with Store(disk, indexing=False) as store:
        session = store.create_session()
        disk.fail_at = disk.steps + step
        expected: tuple[str | None, int] = (None, 0)
        try:
            carried_out(
                store,
                session._core.rename("Two", "person"),
                session._core.note_all([SessionNote("seen")]),
                Write(lambda _engine: None),
            )
        except StoreDegraded:
            pass
        else:
            expected = ("Two", 1)
        stored = store.session(session.id)
        assert (stored.title, len(stored.notes())) == expected
