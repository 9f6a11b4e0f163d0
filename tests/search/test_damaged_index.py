"""A broken search index: writes go on, all is read and listed, search says how to mend it."""

# ruff: noqa: SIM117  (the block that an exception leaves is what is tested)

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from killick import Message, SearchDamaged, Store, Text
from tests.search.test_index import eventually

SESSIONS = 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.db"


def say(store: Store, session_id: str, text: str) -> None:
    with store.create_session(id=session_id).turn(None) as turn:
        turn.record(Message("assistant", [Text(text)]))


def fill(path: Path) -> None:
    with Store(path, indexing=False) as store:
        for number in range(SESSIONS):
            words = " ".join(f"word{number * 100 + each}" for each in range(100))
            say(store, f"s{number}", f"needle {words}")
        assert len(store.search("needle")) == SESSIONS


def scribble(table: str) -> Callable[[Path], None]:
    """Overwrite the root page of a table in the file."""

    def damage(path: Path) -> None:
        connection = apsw.Connection(str(path))
        page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).get
        size = connection.pragma("page_size")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        connection.close()
        assert isinstance(page, int)
        with path.open("r+b") as file:
            file.seek((page - 1) * size)
            file.write(b"\xff" * size)

    damage.__name__ = f"scribble on {table}"
    return damage


def run(sql: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        connection = apsw.Connection(str(path))
        connection.execute(sql)
        connection.close()

    damage.__name__ = sql
    return damage


DAMAGES = [
    scribble("search_words_data"),
    scribble("search_words_idx"),
    scribble("search_words_docsize"),
    scribble("search_words_config"),
    scribble("search_documents"),
    scribble("search_documents_by_place"),
    scribble("search_state"),
    run("UPDATE search_words_data SET block = x'ffffffffffffffffffffffff'"),
    run("DELETE FROM search_words_data"),
    run("DROP TABLE search_words_idx"),
    run("DROP TABLE search_words_config"),
    run("DROP TABLE search_documents"),
    run("DROP TABLE search_state"),
    run("DELETE FROM search_state"),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: str(damage.__name__))
def test_writing_goes_on_and_the_index_can_be_made_anew(
    path: Path, damage: Callable[[Path], None]
) -> None:
    fill(path)
    damage(path)
    with Store(path) as store:
        say(store, "later", "needle again")
        assert store.status == "ok"
        assert len(store.sessions()) == SESSIONS + 1
        assert all(store.session(info.id).messages() for info in store.sessions())
        store._core.runtime().writer.index_soon()
        say(store, "and later", "needle once more")
        try:
            found = len(store.search("needle"))
        except SearchDamaged as error:
            assert "store.rebuild_search()" in str(error)  # noqa: PT017
            assert store.status == "ok"
            with pytest.raises(SearchDamaged):
                store.search("needle")
        else:
            # Some damage is to what this search did not need.
            assert found <= SESSIONS + 2
        say(store, "last", "needle at last")
        store.rebuild_search()
        hits = store.search("needle")
        assert (len(hits), hits.behind) == (SESSIONS + 3, 0)
    with Store(path) as store:
        assert len(store.search("needle")) == SESSIONS + 3


def test_what_is_wrong_is_kept_in_the_file(path: Path) -> None:
    fill(path)
    run("UPDATE search_words_data SET block = x'ffffffffffffffffffffffff'")(path)
    with Store(path, indexing=False) as store, pytest.raises(SearchDamaged, match="damaged"):
        store.search("needle")
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT damage IS NOT NULL FROM search_state").get == 1
    connection.close()
    with Store(path, indexing=False) as store:
        with pytest.raises(SearchDamaged, match=r"rebuild_search\(\)"):
            store.search("nowhere")


def test_what_is_found_wrong_in_an_idle_moment_is_kept_in_the_file(path: Path) -> None:
    def is_told() -> bool:
        connection = apsw.Connection(str(path))
        told = connection.execute("SELECT damage IS NOT NULL FROM search_state").get
        connection.close()
        return bool(told)

    fill(path)
    run("UPDATE search_words_data SET block = x'ffffffffffffffffffffffff'")(path)
    with Store(path) as store:
        say(store, "later", "needle")
        eventually(is_told)
        assert store.status == "ok"
        say(store, "and later", "needle")


def test_erasing_is_not_kept_from_a_session_by_a_damaged_index(path: Path) -> None:
    fill(path)
    run("UPDATE search_words_data SET block = x'ffffffffffffffffffffffff'")(path)
    with Store(path, indexing=False) as store:
        store.erase_session("s1")
        hits = store.search("needle")
        assert (len(hits), hits.behind) == (SESSIONS - 1, 0)


def test_a_damaged_session_is_passed_over_and_named(path: Path) -> None:
    fill(path)
    run("UPDATE entries SET crc = crc + 1 WHERE session = 2")(path)
    with Store(path, indexing=False) as store:
        hits = store.search("needle")
        assert len(hits) == SESSIONS - 1
        assert hits.damaged == ("s1",)
        store.rebuild_search()
        hits = store.search("needle")
        assert (len(hits), hits.damaged, hits.behind) == (SESSIONS - 1, (), 0)


def test_a_damaged_page_of_the_journal_does_not_stop_the_index(path: Path) -> None:
    with Store(path, indexing=False) as store:
        for number in range(60):
            say(store, f"s{number}", f"needle {number} " + "x" * 600)
    connection = apsw.Connection(str(path))
    leaf = connection.execute(
        "SELECT pageno FROM dbstat WHERE name = 'entries' AND pagetype = 'leaf' "
        "ORDER BY path LIMIT 1 OFFSET 5"
    ).get
    size = connection.pragma("page_size")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    assert isinstance(leaf, int)
    with path.open("r+b") as file:
        file.seek((leaf - 1) * size)
        file.write(b"\xff" * size)
    with Store(path, indexing=False) as store:
        hits = store.search("needle", limit=100)
        assert hits.behind == 0
        assert 50 <= len(hits) < 60
