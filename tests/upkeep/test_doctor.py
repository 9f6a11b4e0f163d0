"""The doctor finds what is wrong, names the sessions that it touches, and mends what is derived."""

from pathlib import Path

import apsw
import pytest

from killick import Message, SessionDamaged, Store, Text, Usage
from killick.maintenance.doctor import Examination, examine
from tests.bad_input.helpers import raw


def fill(path: Path) -> None:
    with Store(path, durability="normal") as store:
        for name in ("before", "bad", "after"):
            session = store.create_session(id=name, title=name, tags=("t",))
            for number in range(3):
                with session.turn(f"ask {number}") as turn:
                    with turn.stream(model="m") as reply:
                        reply.text("answer " + "x" * 500)
                        reply.finish(usage=Usage(input=3, output=1))
                    turn.record(Message("assistant", [Text("done")]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "work.db")
    return tmp_path / "work.db"


def damage(path: Path, *statements: str) -> None:
    with raw(path) as connection:
        for statement in statements:
            connection.execute(statement)


def examined(path: Path, *, rebuild: bool = False) -> Examination:
    with Store(path) as store:
        return examine(store, rebuild=rebuild)


def test_a_sound_store_has_no_findings(path: Path) -> None:
    found = examined(path)
    assert (found.sessions, found.contexts, found.findings) == (3, 12, [])
    assert found.sound


def test_a_session_that_is_erased_meanwhile_is_no_finding(path: Path) -> None:
    with Store(path) as store:

        def erase(done: int, _all: int) -> None:
            if done == 1:
                store.erase_session("after")

        found = examine(store, progress=erase)
    assert (found.sessions, found.findings) == (3, [])


def test_examining_writes_nothing(path: Path) -> None:
    """Not even the ending of a turn whose process is gone."""
    damage(
        path,
        "DELETE FROM entries WHERE session = 2 AND mark = 1 AND seq = (SELECT max(seq) "
        "FROM entries WHERE session = 2)",
    )
    before = rows(path)
    assert not examined(path).sound
    assert rows(path) == before


def rows(path: Path) -> list[object]:
    with raw(path) as connection:
        tables = ("sessions", "entries", "labels", "usage")
        connection.execute("UPDATE sessions SET uncounted = 1")  # whether it was noticed by now
        return [connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables]


DERIVED = {
    "title": "UPDATE sessions SET about = CAST('{}' AS BLOB) WHERE key = 2",
    "rubbish": "UPDATE sessions SET about = CAST('rubbish' AS BLOB) WHERE key = 2",
    "running": "UPDATE sessions SET turn_seq = 2 WHERE key = 2",
    "labels": "DELETE FROM labels WHERE session = 2",
    "usage": "UPDATE usage SET input = 999 WHERE session = 2",
}


@pytest.mark.parametrize("name", DERIVED)
def test_what_is_derived_is_made_anew_from_the_journal_alone(path: Path, name: str) -> None:
    whole = rows(path)
    damage(path, DERIVED[name])
    found = examined(path)
    assert [(one.kind, one.session_id) for one in found.findings] == [("derived", "bad")]
    assert "rebuild" in found.findings[0].remedy
    mended = examined(path, rebuild=True)
    assert mended.sound
    assert mended.findings[0].mended
    assert rows(path) == whole


def test_deltas_that_were_left_behind_are_named(path: Path) -> None:
    damage(
        path, "INSERT INTO deltas (session, seq, number, body) VALUES (2, 4, 1, CAST('[]' AS BLOB))"
    )
    assert [(one.kind, one.seq) for one in examined(path).findings] == [("deltas", 4)]


def test_a_broken_rule_is_named_with_its_place(path: Path) -> None:
    with raw(path) as connection:
        moved = connection.execute(
            "SELECT body, crc FROM entries WHERE session = 1 AND seq = 2"
        ).fetchone()
        assert moved is not None
        connection.execute(
            "UPDATE entries SET body = ?, crc = ? WHERE session = 2 AND seq = 4", moved
        )
    found = [one for one in examined(path).findings if one.kind == "rule"]
    assert found
    assert {one.session_id for one in found} == {"bad"}
    assert found[0].seq == 4


def test_every_other_session_reads_lists_and_is_examined(path: Path) -> None:
    """One damaged page, one undecodable entry, one broken index: all three are named."""
    with Store(path, durability="normal") as store:
        long = store.create_session(id="long")
        for number in range(200):
            long.note("n", "y" * 900, key=str(number))
    break_page_of(path, "long")
    damage(path, "UPDATE entries SET body = CAST('rubbish' AS BLOB) WHERE session = 2 AND seq = 4")
    break_index(path, "usage_by_day")
    with Store(path) as store:
        found = examine(store)
        named = {(one.kind, one.session_id) for one in found.findings}
        assert ("entry", "bad") in named
        assert ("entry", "long") in named
        assert any(one.kind == "file" and "index" in one.what for one in found.findings)
        for name in ("before", "after"):
            assert len(store.session(name).messages()) == 9
            assert not any(one.session_id == name for one in found.findings)
        assert {one.id for one in store.sessions()} == {"before", "bad", "after", "long"}
        salvaged = store.salvage("bad")
        assert not salvaged.whole
        assert [one.seq for one in salvaged.damage] == [4]
        assert len(salvaged.entries) == store.salvage("before").entries[-1].seq - 1
        with pytest.raises(SessionDamaged):
            store.session("bad")


def break_page_of(path: Path, session_id: str) -> None:
    """Overwrite a page in the middle of this session's entries."""
    with raw(path) as connection:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        size = int(connection.pragma("page_size"))
    data = bytearray(path.read_bytes())
    pages = [n for n in range(0, len(data), size) if data[n : n + size].count(b"yyyy" * 100) > 1]
    leaf = [n for n in pages if data[n] == 13]
    middle = leaf[len(leaf) // 2]
    data[middle : middle + size] = b"\xff" * size
    path.write_bytes(bytes(data))


def break_index(path: Path, name: str) -> None:
    """Take a row out of an index alone."""
    with raw(path) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).get
        size = int(connection.pragma("page_size"))
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    data = bytearray(path.read_bytes())
    page = (int(root) - 1) * size
    cells = int.from_bytes(data[page + 3 : page + 5])
    assert cells > 1
    data[page + 3 : page + 5] = (cells - 1).to_bytes(2)
    path.write_bytes(bytes(data))


def test_a_broken_index_is_made_anew(path: Path) -> None:
    break_index(path, "sessions_by_time")
    assert not examined(path).sound
    with Store(path) as store:
        examine(store, rebuild=True)
    assert examined(path).sound


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE search_words_data SET block = x'ffffffffffffffffffffffff'",
        "DROP TABLE search_words_idx",
        "DELETE FROM search_state",
    ],
)
def test_a_broken_search_index_is_named_and_made_anew(path: Path, statement: str) -> None:
    with Store(path) as store:
        assert len(store.search("answer")) == 9
    damage(path, statement)
    with Store(path, indexing=False) as store:
        found = examine(store)
        assert {one.kind for one in found.findings} == {"search"}
        assert all(one.remedy for one in found.findings)
        assert examine(store, rebuild=True).sound
        assert len(store.search("answer")) == 9
        assert examine(store).findings == []


@pytest.mark.parametrize("rebuild", [False, True])
def test_progress_is_told(path: Path, rebuild: bool) -> None:
    told: list[tuple[int, int]] = []
    with Store(path) as store:
        examine(store, rebuild=rebuild, progress=lambda *done: told.append(done))
    assert told == [(1, 3), (2, 3), (3, 3)]
