"""After a failed fsync nothing is acknowledged until the file was opened and verified again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from killick import SessionDamaged, Store, StoreDegraded
from killick.stores.sqlite import SqliteDatabase
from tests.bad_input.helpers import is_usable, texts, until


class Failing(apsw.VFS):
    """The usual file system, whose syncs fail while they are told to."""

    def __init__(self, usual: str) -> None:
        self.usual = usual
        self.broken = False
        self.events: list[str] = []
        super().__init__("killick-failing", usual, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        kind = "database" if flags[0] & apsw.SQLITE_OPEN_MAIN_DB else "other"
        self.events.append(f"open {kind}")
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, vfs: Failing, name: Any, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__(vfs.usual, name, flags)

    def xSync(self, flags: int) -> None:
        if self._vfs.broken:
            self._vfs.events.append("failed sync")
            raise apsw.IOError("fsync: Input/output error")
        self._vfs.events.append("sync")
        super().xSync(flags)


@pytest.fixture
def vfs() -> Iterator[Failing]:
    usual = apsw.vfs_names()[0]
    made = Failing(usual)
    yield made
    made.unregister()
    assert apsw.vfs_names()[0] == usual


@pytest.fixture
def store(vfs: Failing, path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened
        vfs.broken = False


def names(store: Store) -> list[str]:
    entries = store.session("s").entries()
    return [getattr(entry.body, "name", "") for entry in entries if entry.kind == "note"]


def test_every_acknowledged_write_was_synced(vfs: Failing, store: Store) -> None:
    session = store.create_session(id="s")
    before = vfs.events.count("sync")
    session.note("a")
    assert vfs.events.count("sync") == before + 1


def test_the_write_whose_sync_failed_raises(vfs: Failing, store: Store) -> None:
    session = store.create_session(id="s")
    session.note("good")
    vfs.broken = True
    with pytest.raises(StoreDegraded, match="nothing was acknowledged"):
        session.note("bad")
    assert store.status == "degraded"


def test_nothing_is_acknowledged_while_syncs_fail(vfs: Failing, store: Store) -> None:
    session = store.create_session(id="s")
    vfs.broken = True
    for number in range(5):
        with pytest.raises(StoreDegraded):
            session.note(f"bad {number}")
    assert store.status == "degraded"


def test_the_next_write_opens_the_file_anew_before_it_is_acknowledged(
    vfs: Failing, store: Store
) -> None:
    session = store.create_session(id="s")
    vfs.broken = True
    with pytest.raises(StoreDegraded):
        session.note("bad")
    vfs.broken = False
    vfs.events.clear()
    session.note("good")
    assert "open database" in vfs.events
    assert "sync" in vfs.events[vfs.events.index("open database") :]
    assert store.status == "ok"


def test_what_was_acknowledged_is_there_and_the_journal_has_no_gap(
    vfs: Failing, path: Path, store: Store
) -> None:
    session = store.create_session(id="s")
    acknowledged = []
    for number in range(30):
        vfs.broken = number % 3 == 1
        try:
            session.note(f"note {number}")
        except StoreDegraded:
            continue
        acknowledged.append(f"note {number}")
    vfs.broken = False
    session.note("last")
    assert set(acknowledged) <= set(names(store))
    seqs = [entry.seq for entry in session.entries()]
    assert seqs == list(range(1, len(seqs) + 1))
    with Store(path) as again:
        assert names(again) == names(store)


def test_a_write_repeated_after_its_sync_failed_is_there_once(vfs: Failing, store: Store) -> None:
    session = store.create_session(id="s")
    vfs.broken = True
    with pytest.raises(StoreDegraded):
        session.note("mine", key="k")
    vfs.broken = False
    session.note("mine", key="k")
    assert names(store) == ["mine"]


def test_a_stream_is_told_and_its_text_is_there_afterwards(vfs: Failing, store: Store) -> None:
    session = store.create_session(id="s")
    with session.turn("go") as turn, turn.stream() as reply:
        reply.text("first")
        vfs.broken = True
        until(lambda: reply._core._buffer.error is not None)  # type: ignore[union-attr]
        with pytest.raises(StoreDegraded):
            reply.text(" not taken")
        vfs.broken = False
        until(lambda: store.status == "ok")
        reply.text(" last")
    assert texts(session)[-1] == "first last"


def test_a_file_that_does_not_verify_is_not_written_any_more(vfs: Failing, path: Path) -> None:
    with Store(path) as store:
        session = store.create_session(id="s")
        for number in range(50):
            session.note(f"note {number}", "x" * 600)
    with Store(path) as store:
        session = store.session("s")
        vfs.broken = True
        with pytest.raises(StoreDegraded):
            session.note("bad")
        with path.open("r+b") as file:
            file.seek(-4_096, 2)
            file.write(bytes(4_096))
        vfs.broken = False
        # What all sessions share is checked before the next write; a session's own pages when
        # they are met, so that damage to one does not keep the others from being written.
        with pytest.raises((StoreDegraded, SessionDamaged), match=r"did not pass|is damaged"):
            session.note("worse")


def test_the_session_goes_on_after_a_failed_sync(vfs: Failing, store: Store) -> None:
    session = store.create_session(id="s")
    vfs.broken = True
    with pytest.raises(StoreDegraded), session.turn("go"):
        raise AssertionError("the block must not run")
    vfs.broken = False
    assert is_usable(session)


def test_closing_while_syncs_fail_lets_go_of_everything(vfs: Failing, path: Path) -> None:
    """What was acknowledged is on the disk already, so there is nothing to refuse."""
    store = Store(path)
    session = store.create_session(id="s")
    session.note("good")
    holder = store._core.runtime().database.holder
    vfs.broken = True
    with pytest.raises(StoreDegraded):
        session.note("bad")
    store.close()
    vfs.broken = False
    with Store(path) as again:
        with again._core.runtime().database.reading() as reader:
            assert not reader.is_alive(holder)
        assert "good" in names(again)
        assert is_usable(again.session("s"))


def test_a_turn_whose_beginning_failed_and_is_there_keeps_nobody_waiting(
    vfs: Failing, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that reports an error may have happened; nobody holds the turn that it began."""
    session = store.create_session(id="s")
    commit = SqliteDatabase.commit

    def commit_and_fail(database: SqliteDatabase, connection: apsw.Connection) -> None:
        commit(database, connection)
        raise apsw.IOError("fsync: Input/output error")

    monkeypatch.setattr(SqliteDatabase, "commit", commit_and_fail)
    with pytest.raises(StoreDegraded), session.turn("lost"):
        raise AssertionError("the block must not run")
    monkeypatch.setattr(SqliteDatabase, "commit", commit)
    assert is_usable(session)
    first, _ = session.turns()
    assert (first.status, first.reason) == ("interrupted", "outcome_unknown")
