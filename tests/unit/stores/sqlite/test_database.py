"""Rows in and out of one file, and the transactions around them."""

# ruff: noqa: PT012  (the block that an exception leaves is what is tested)

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from killick.errors import StoreDegraded, StoreReplaced
from killick.journal.codec import encode
from killick.model import entries as e
from killick.model.sessions import Description
from killick.stores.contract import Listing, SessionRow
from killick.stores.sqlite import SqliteDatabase


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.db"


@pytest.fixture
def database(path: Path) -> Iterator[SqliteDatabase]:
    opened = SqliteDatabase(path)
    yield opened
    opened.close()


def row(session_id: str = "s", at: int = 1) -> SessionRow:
    return SessionRow(
        key=0,
        id=session_id,
        tenant="default",
        head=0,
        fence=0,
        about=Description(title=session_id),
        created_at_us=at,
        updated_at_us=at,
    )


def create(database: SqliteDatabase, *rows: SessionRow) -> list[int]:
    with database.writing() as tx:
        return [tx.create_session(one) for one in rows]


def test_the_file_its_log_and_its_lock_may_be_read_by_their_owner_only(
    database: SqliteDatabase, path: Path
) -> None:
    create(database, row())
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob("work.db*")}
    assert set(modes) == {"work.db", "work.db-wal", "work.db-shm", "work.db-lock"}
    assert set(modes.values()) == {0o600}


def test_a_session_comes_back_as_it_was_saved(database: SqliteDatabase) -> None:
    (key,) = create(database, row("\ud800\0"))
    with database.writing() as tx:
        found = tx.session(key)
        assert found is not None
        found.fence, found.turn_seq, found.about = 3, 7, Description(title="new", archived=True)
        tx.save_session(found)
    with database.reading() as reader:
        again = reader.find_session("default", "\ud800\0")
        assert again == found


def test_a_transaction_left_by_an_exception_is_rolled_back(database: SqliteDatabase) -> None:
    with pytest.raises(KeyboardInterrupt), database.writing() as tx:
        tx.create_session(row())
        raise KeyboardInterrupt
    with database.reading() as reader:
        assert reader.counts()["sessions"] == 0
    create(database, row())


def test_a_second_entry_of_one_identity_is_not_written(database: SqliteDatabase) -> None:
    (key,) = create(database, row())
    body = encode(e.Note(id="n", name="n"))
    with database.writing() as tx:
        assert tx.insert_entry(key, 1, "n/note", 1, body, blob=None, mark=None, link=None)
        before = tx.writes
        assert not tx.insert_entry(key, 2, "n/note", 1, body, blob=None, mark=None, link=None)
        assert tx.writes == before
    with database.reading() as reader:
        assert [entry.seq for entry in reader.entries(key)] == [1]


def test_two_entries_of_one_seq_cannot_be(database: SqliteDatabase) -> None:
    (key,) = create(database, row())
    body = encode(e.Note(id="n", name="n"))
    with pytest.raises(StoreDegraded), database.writing() as tx:
        tx.insert_entry(key, 1, "a/note", 1, body, blob=None, mark=None, link=None)
        tx.insert_entry(key, 1, "b/note", 1, body, blob=None, mark=None, link=None)
    with database.reading() as reader:
        assert reader.entries(key) == []


def test_a_reader_sees_one_moment(database: SqliteDatabase) -> None:
    with database.reading() as reader:
        assert reader.counts()["sessions"] == 0
        create(database, row())
        assert reader.counts()["sessions"] == 0
    with database.reading() as reader:
        assert reader.counts()["sessions"] == 1


def test_a_flush_of_the_same_number_replaces_the_one_before(database: SqliteDatabase) -> None:
    (key,) = create(database, row())
    with database.writing() as tx:
        tx.put_deltas([(key, 2, 1, encode((e.Delta(0, 0, "text", "a"),)))])
        tx.put_deltas(
            [
                (key, 2, 1, encode((e.Delta(0, 0, "text", "ab"),))),
                (key, 2, 2, encode((e.Delta(0, 2, "text", "c"),))),
            ]
        )
    with database.reading() as reader:
        assert [number for number, _ in reader.deltas(key, 2)] == [1, 2]
        assert [number for number, _ in reader.deltas(key, 2, after=1)] == [2]
        assert reader.deltas(key, 3) == []
    with database.writing() as tx:
        tx.drop_deltas(key, 2)
        assert tx.counts()["deltas"] == 0


def test_sessions_are_listed_newest_first_and_in_pages(database: SqliteDatabase) -> None:
    create(database, row("a", 1), row("b", 3), row("c", 3), row("d", 2))
    with database.reading() as reader:
        first = reader.sessions(Listing(tenant="default", limit=2))
        last = first[-1]
        rest = reader.sessions(Listing(tenant="default", before=(last.updated_at_us, last.id)))
    assert [info.id for info in (*first, *rest)] == ["c", "b", "d", "a"]


def test_a_tenant_sees_its_own_sessions_only(database: SqliteDatabase) -> None:
    create(database, row())
    with database.reading() as reader:
        assert reader.sessions(Listing(tenant="other")) == []
        assert reader.find_session("other", "s") is None


def test_a_commit_of_another_connection_is_noticed_and_an_own_one_is_not(
    database: SqliteDatabase, path: Path
) -> None:
    with database.writing() as tx:
        before = tx.version(1)
    create(database, row())
    with database.writing() as tx:
        assert tx.version(1) == before
    other = SqliteDatabase(path)
    create(other, row("other"))
    with database.writing() as tx:
        after = tx.version(1)
        assert after != before
    with database.writing() as tx:
        assert tx.version(1) == after
    other.close()


def test_the_change_mark_moves_with_every_commit(database: SqliteDatabase) -> None:
    before = database.change_mark()
    assert database.change_mark() == before
    create(database, row())
    assert database.change_mark() != before


def test_blobs_are_kept_once_for_each_tenant(database: SqliteDatabase) -> None:
    with database.writing() as tx:
        tx.put_blob("one", "d", b"x", "nobody")
        assert tx.has_blob("one", "d")
        assert not tx.has_blob("two", "d")
        assert tx.blob("one", "d") == b"x"
        assert tx.blob("two", "d") is None


def test_a_blob_is_collected_when_nothing_refers_to_it_and_its_writer_is_gone(
    database: SqliteDatabase,
) -> None:
    (key,) = create(database, row())
    with database.writing() as tx:
        tx.put_blob("default", "used", b"x", "nobody")
        tx.put_blob("default", "loose", b"x", "nobody")
        tx.put_blob("default", "fresh", b"x", database.holder)
        assert tx.refer(key, "default", "used")
        assert not tx.refer(key, "default", "gone")
        assert tx.collect_blobs() == 1
        assert (tx.has_blob("default", "used"), tx.has_blob("default", "fresh")) == (True, True)


def test_a_closed_database_has_let_go_of_its_life(path: Path) -> None:
    one, other = SqliteDatabase(path), SqliteDatabase(path)
    assert other.is_alive(one.holder)
    one.close()
    one.close()
    assert not other.is_alive(one.holder)
    other.close()


def test_closing_leaves_no_log_behind(path: Path) -> None:
    database = SqliteDatabase(path)
    create(database, row())
    database.close()
    assert {file.name for file in path.parent.iterdir()} == {"work.db", "work.db-lock"}


def test_a_replaced_file_is_noticed_by_reads_writes_and_watching(
    database: SqliteDatabase, path: Path
) -> None:
    path.rename(path.with_name("away.db"))
    with pytest.raises(StoreReplaced), database.reading():
        pass
    with pytest.raises(StoreReplaced), database.writing():
        pass
    with pytest.raises(StoreReplaced):
        database.change_mark()
    path.with_name("away.db").rename(path)


def test_few_readers_are_kept_however_many_there_were(database: SqliteDatabase) -> None:
    readers = [database.reading() for _ in range(10)]
    for reader in readers:
        reader.__enter__()
    for reader in readers:
        reader.__exit__(None, None, None)
    assert len(database._readers) <= 4


def test_a_database_that_was_closed_does_not_keep_fork_from_closing_the_others(
    path: Path, database: SqliteDatabase
) -> None:
    """What is left open when the process forks, the child believes to have locks on."""
    closed = SqliteDatabase(path)
    closed.change_mark()
    closed.close()
    closed.let_go()
    with database.reading():
        pass
    database.let_go()
    assert not database._readers
