"""The index of a file: behind and caught up with, made anew, migrated to, and taken out of."""

import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from killick import InvalidQuery, Message, Store, StoreReadOnly, Text
from killick.model.entries import Entry
from killick.search import documents
from killick.search.documents import read_batch
from killick.search.port import Batch, Document
from killick.stores import engine as ops
from killick.stores.engine.state import EngineState, Op
from killick.stores.sqlite import SqliteDatabase
from killick.stores.writer import SliceSchedule, Writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.db"


def say(store: Store, *texts: str, session_id: str = "s") -> None:
    with store.create_session(id=session_id).turn(None) as turn:
        for text in texts:
            turn.record(Message("assistant", [Text(text)]))


def raw(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute(sql))
    finally:
        connection.close()


def eventually(true: Callable[[], bool]) -> None:
    """Wait for a thread that tells nobody."""
    rest = threading.Event()
    end = time.monotonic() + 20
    while not true() and time.monotonic() < end:
        rest.wait(0.02)
    assert true()


def behind(path: Path) -> int:
    database = SqliteDatabase(path)
    try:
        with database.reading() as reader:
            return reader.index_behind()
    finally:
        database.close()


def test_what_was_written_is_indexed_when_the_store_is_idle(path: Path) -> None:
    with Store(path) as store:
        say(store, "needle")
        eventually(lambda: behind(path) == 0)
        say(store, "needle", session_id="later")
        eventually(lambda: behind(path) == 0)
        assert raw(path, "SELECT count(*) FROM search_documents") == [(2,)]


def test_what_another_process_left_is_indexed_by_who_opens_the_store_next(path: Path) -> None:
    with Store(path, indexing=False) as store:
        say(store, "needle")
    assert behind(path) > 0
    with Store(path):
        eventually(lambda: behind(path) == 0)


def test_a_store_that_is_closed_indexes_what_it_wrote(path: Path) -> None:
    with Store(path) as store:
        say(store, *("needle" for _ in range(500)))
    assert behind(path) == 0


def test_a_store_that_wrote_nothing_indexes_nothing_when_it_is_closed(path: Path) -> None:
    with Store(path, indexing=False) as store:
        say(store, "needle")
    with Store(path) as store:
        store.sessions()
    assert behind(path) > 0


def test_closing_a_store_indexes_for_a_second_at_most(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(path, indexing=False) as store:
        say(store, *("needle" for _ in range(30)))
    left = behind(path)
    slow = threading.Event()

    def index_one(engine: EngineState, batch: Batch) -> Batch | None:
        slow.wait(0.3)
        return ops.index(engine, batch, seconds=0)

    monkeypatch.setattr("killick.stores.behind.index", index_one)
    store = Store(path)
    store.session("s").note("n")
    began = time.monotonic()
    store.close()
    assert time.monotonic() - began < 4  # all of it takes longer than ten
    assert 0 < behind(path) < left


def test_a_store_whose_index_takes_long_is_closed_as_one_that_wrote_everything(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = threading.Event()

    def index_slowly(engine: EngineState, batch: Batch) -> Batch | None:
        slow.wait(1.5)
        return ops.index(engine, batch)

    monkeypatch.setattr("killick.stores.behind.index", index_slowly)
    store = Store(path)
    store.create_session()
    store._core.runtime().close(seconds=1)  # raises StoreBusy if something is not written
    assert behind(path) == 0


def test_a_search_says_how_much_it_could_not_look_at(path: Path) -> None:
    with Store(path, indexing=False) as store:
        say(store, "needle", "another needle")
        hits = store.search("needle", wait_seconds=0)
        assert (len(hits), hits.behind) == (0, store.session("s").head)
        hits = store.search("needle")
        assert (len(hits), hits.behind) == (2, 0)


def test_a_store_that_may_not_be_written_is_searched_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(path, indexing=False) as store:
        say(store, "needle")
        assert len(store.search("needle")) == 1
        say(store, "needle", session_id="later")
    monkeypatch.setattr("killick.stores.sqlite.database.is_writable", lambda _: False)
    with Store(path) as store:
        hits = store.search("needle")
        assert len(hits) == 1
        assert hits.behind > 0
        with pytest.raises(StoreReadOnly):
            store.rebuild_search()


def test_an_append_writes_nothing_to_the_index(path: Path) -> None:
    with Store(path, indexing=False) as store:
        say(store, "needle")
    assert raw(path, "SELECT count(*) FROM search_documents") == [(0,)]
    assert raw(path, "SELECT mark FROM search_state") == [(0,)]


def test_a_slice_ends_when_its_time_is_over(path: Path) -> None:
    database = SqliteDatabase(path)
    writer = Writer(database, indexing=False)
    try:
        with Store(path, indexing=False) as store:
            say(store, *("needle" for _ in range(20)))
        with database.reading() as reader:
            batch = read_batch(reader)
        op = writer.submit(Op(lambda engine: ops.index(engine, batch, seconds=0)))
        assert op.wait(10)
        assert op.result() is not None
        with database.reading() as reader:
            left = reader.index_behind()
        assert 0 < left == store_entries(path) - 1
    finally:
        writer.close(5)
        database.close()


def test_what_a_slice_has_left_is_not_made_into_documents_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def document(entry: Entry, find: documents.Lookup) -> Document | None:
        made.append(entry.seq)
        return make(entry, find)

    make = documents.document
    monkeypatch.setattr(documents, "document", document)
    monkeypatch.setattr("killick.stores.behind.index", functools.partial(ops.index, seconds=0))
    monkeypatch.setattr("killick.session.core.queries._CATCH_UP_SECONDS", 0)
    with Store(path) as store:
        say(store, *("needle" for _ in range(20)))
        eventually(lambda: behind(path) == 0)
        assert made == list(range(1, store_entries(path) + 1))
    made.clear()
    with Store(path, indexing=False) as store:
        store.rebuild_search()
        assert made == list(range(1, store_entries(path) + 1))


def test_a_slice_that_somebody_else_has_taken_meanwhile_is_taken_once(path: Path) -> None:
    with Store(path, indexing=False) as store:
        say(store, "needle")
        runtime = store._core.runtime()
        with runtime.database.reading() as reader:
            batch = read_batch(reader)
        for _ in range(2):
            op = runtime.writer.submit(Op(lambda engine: ops.index(engine, batch, seconds=60)))
            assert op.wait(10)
        assert op.result() is None
        assert len(store.search("needle")) == 1


def test_a_session_that_was_erased_while_a_slice_was_prepared_stays_erased(path: Path) -> None:
    with Store(path, indexing=False) as store:
        say(store, "needle kept", session_id="kept")
        say(store, "needle gone", session_id="gone")
        runtime = store._core.runtime()
        with runtime.database.reading() as reader:
            batch = read_batch(reader)
        store.erase_session("gone")
        op = runtime.writer.submit(Op(lambda engine: ops.index(engine, batch, seconds=60)))
        assert op.wait(10)
        op.result()
        assert [hit.snippet for hit in store.search("needle")] == ["needle kept"]
    assert raw(path, "SELECT count(*) FROM search_documents") == [(1,)]


def store_entries(path: Path) -> int:
    (count,) = raw(path, "SELECT count(*) FROM entries")[0]
    assert isinstance(count, int)
    return count


def test_parts_of_words_need_an_index_of_their_own(path: Path) -> None:
    with Store(path) as store:
        say(store, "The Linker")
        with pytest.raises(InvalidQuery, match=r"rebuild_search\(substrings=True\)"):
            store.search("inke", substring=True)
        store.rebuild_search(substrings=True)
    with Store(path) as store:
        assert len(store.search("inke", substring=True)) == 1
        store.rebuild_search()
        assert len(store.search("inke", substring=True)) == 1
        store.rebuild_search(substrings=False)
        with pytest.raises(InvalidQuery):
            store.search("inke", substring=True)
    assert raw(path, "SELECT name FROM sqlite_schema WHERE name GLOB 'search_sub*'") == []


def test_an_index_of_parts_of_words_that_somebody_else_makes_or_drops_is_kept_up(
    path: Path,
) -> None:
    with Store(path, indexing=False) as store, Store(path, indexing=False) as other:
        say(store, "one linker", session_id="a")
        assert len(store.search("linker", wait_seconds=5)) == 1  # it knows of no such index
        other.rebuild_search(substrings=True)
        say(store, "two linkers", session_id="b")
        assert len(store.search("linkers", wait_seconds=5)) == 1
        assert len(other.search("inke", substring=True, wait_seconds=0)) == 2
        other.rebuild_search(substrings=False)
        say(store, "three", session_id="c")
        assert len(store.search("three", wait_seconds=5)) == 1


def test_a_store_of_the_format_before_is_migrated_empty_and_indexed_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(path, indexing=False) as store:
        say(store, "needle")
    connection = apsw.Connection(str(path))
    for name in ("search_words", "search_documents", "search_state"):
        connection.execute(f"DROP TABLE {name}")
    connection.execute("DROP INDEX sessions_stopping")
    for name in ("news", "packs", "dropped_streams", "counted", "usage_sums", "activity_sums"):
        connection.execute(f"DROP TABLE {name}")
    connection.execute("DELETE FROM meta WHERE name = 'store'")
    for index in ("due", "held", "by_project", "interrupted", "pinned", "uncounted"):
        connection.execute(f"DROP INDEX sessions_{index}")
    for index in ("erasures_by_id", "erasures_unfinished", "blob_references_by_session"):
        connection.execute(f"DROP INDEX {index}")
    connection.execute("DROP TABLE retention")
    connection.execute("ALTER TABLE deltas DROP COLUMN crc")
    for column in ("base", "base_seq", "because"):
        connection.execute(f"ALTER TABLE erasures DROP COLUMN {column}")
    for column in ("holder", "due", "due_us", "imported", "link", "uncounted"):
        connection.execute(f"ALTER TABLE sessions DROP COLUMN {column}")
    connection.execute("ALTER TABLE entries DROP COLUMN link")
    connection.execute("DELETE FROM migrations WHERE number > 2")
    connection.execute("UPDATE meta SET value = 2 WHERE name = 'version'")
    connection.close()
    with Store(path, indexing=False) as store:
        assert raw(path, "SELECT count(*) FROM search_documents") == [(0,)]
        assert len(store.search("needle")) == 1


# -- the mark ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [1_000, -20])
def test_a_renumbered_table_is_gone_through_again_and_nothing_is_lost_or_doubled(
    path: Path, shift: int
) -> None:
    with Store(path, indexing=False) as store:
        say(store, *("before" for _ in range(20)), session_id="removed")
        say(store, "needle one", "needle two")
        assert len(store.search("needle")) == 2
        connection = apsw.Connection(str(path))
        connection.execute("DELETE FROM entries WHERE session = 1")
        connection.execute(f"UPDATE entries SET rowid = rowid + {shift}")
        connection.close()
        say(store, "needle three", session_id="later")
        hits = store.search("needle")
        assert [hit.snippet for hit in hits] == ["needle three", "needle two", "needle one"]
        assert hits.behind == 0
    assert raw(path, "SELECT count(*) FROM search_documents WHERE session > 1") == [(3,)]


@pytest.mark.parametrize("substrings", [False, True])
def test_the_words_of_an_erased_session_are_gone_from_the_file(
    path: Path, substrings: bool
) -> None:
    with Store(path, indexing=False) as store:
        say(store, "kept words", session_id="first")
        store.rebuild_search(substrings=substrings)
        say(store, "zyxsecret and more", "zyxsecret again", session_id="gone")
        say(store, "kept as well", session_id="last")
        assert len(store.search("zyxsecret")) == 2
        store.erase_session("gone")
        assert len(store.search("zyxsecret")) == 0
        assert len(store.search("kept")) == 2
    assert b"zyx" not in path.read_bytes()
    with Store(path) as store:
        assert [hit.session_id for hit in store.search("kept")] == ["last", "first"]


@pytest.mark.parametrize("indexed", [False, True])
def test_after_erasing_the_newest_session_new_entries_are_indexed(
    path: Path, indexed: bool
) -> None:
    """SQLite gives the rows of what was removed at the end of the table out again."""
    with Store(path, indexing=False) as store:
        say(store, "needle first", session_id="first")
        say(store, "needle second", session_id="second")
        if indexed:
            store.search("needle")
        store.erase_session("second")
        say(store, "needle third", session_id="third")
        added = store.session("third").head
        if indexed:
            assert store.search("needle", wait_seconds=0).behind == added
        hits = store.search("needle")
        assert [hit.snippet for hit in hits] == ["needle third", "needle first"]
        assert hits.behind == 0


def test_erasing_the_only_session_leaves_an_index_that_works(path: Path) -> None:
    with Store(path, indexing=False) as store:
        say(store, "needle")
        store.search("needle")
        store.erase_session("s")
        assert (len(store.search("needle")), store.search("needle").behind) == (0, 0)
        say(store, "needle again", session_id="t")
        assert len(store.search("needle")) == 1


# -- when a slice is due -----------------------------------------------------------------------


class Hands:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_slice_waits_until_nothing_was_written_for_a_while() -> None:
    hands = Hands()
    schedule = SliceSchedule(wanted=True, clock=hands)
    schedule.done(more=False)
    assert schedule.due is None
    for _ in range(5):
        schedule.wrote()
        hands.now += 0.05
        assert not schedule.is_due()
    hands.now += 0.06
    assert schedule.is_due()
    schedule.done(more=True)
    assert schedule.is_due()
    schedule.done(more=False)
    assert schedule.due is None


def test_writing_that_never_rests_puts_a_slice_off_for_a_second_at_most() -> None:
    hands = Hands()
    schedule = SliceSchedule(wanted=True, clock=hands)
    schedule.done(more=False)
    for _ in range(21):
        schedule.wrote()
        hands.now += 0.05
    assert schedule.is_due()


def test_an_index_that_is_not_wanted_or_damaged_is_never_due() -> None:
    from killick.errors import SearchDamaged, StoreDegraded

    hands = Hands()
    unwanted = SliceSchedule(wanted=False, clock=hands)
    unwanted.wrote()
    assert unwanted.due is None
    damaged = SliceSchedule(wanted=True, clock=hands)
    damaged.failed(SearchDamaged("x"))
    damaged.wrote()
    assert damaged.due is None
    damaged.wake()
    assert damaged.due is not None
    damaged.failed(StoreReadOnly("x"))
    assert damaged.due is None
    failed = SliceSchedule(wanted=True, clock=hands)
    failed.failed(StoreDegraded("full"))
    assert not failed.is_due()
    assert failed.due is not None
