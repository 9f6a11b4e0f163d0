"""A damaged entry, row or page: its session says so when it is opened, all others work."""

# ruff: noqa: SIM117  (the block that an exception leaves is what is tested)

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from killick import SessionDamaged, Store
from killick.stores.engine import state
from tests.bad_input.helpers import child, is_usable, raw, saying

OTHERS = ["before", "after"]


def fill(path: Path, notes: int = 3) -> None:
    """A session that will be damaged, between two that must not be touched by it."""
    with Store(path, durability="normal") as store:
        for session_id in ["before", "bad", "after"]:
            session = store.create_session(id=session_id, title=session_id)
            with session.turn("go") as turn:
                turn.record(saying("done"))
            if session_id == "bad":
                for number in range(notes):
                    session.note("n", "x" * 600, key=f"old {number}")


def key(connection: apsw.Connection) -> int:
    found = connection.execute("SELECT key FROM sessions WHERE id = CAST('bad' AS BLOB)").get
    assert isinstance(found, int)
    return found


def others_work(path: Path) -> bool:
    with Store(path) as store:
        return all(is_usable(store.session(session_id)) for session_id in OTHERS)


def overwrite_body(connection: apsw.Connection) -> None:
    connection.execute(
        "UPDATE entries SET body = CAST('rubbish' AS BLOB) WHERE session = 2 AND seq = 3"
    )


def flip_one_letter(connection: apsw.Connection) -> None:
    connection.execute(
        "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'done', 'dome') AS BLOB) "
        "WHERE session = 2 AND seq = 4"
    )


def empty_body(connection: apsw.Connection) -> None:
    connection.execute("UPDATE entries SET body = X'' WHERE session = 2 AND seq = 1")


def change_checksum(connection: apsw.Connection) -> None:
    connection.execute("UPDATE entries SET crc = crc + 1 WHERE session = 2 AND seq = 2")


def lose_an_entry(connection: apsw.Connection) -> None:
    connection.execute("DELETE FROM entries WHERE session = 2 AND seq = 4")


def name_a_lost_blob(connection: apsw.Connection) -> None:
    connection.execute("UPDATE entries SET blob = 99 WHERE session = 2 AND seq = 4")


DAMAGES = [
    overwrite_body,
    flip_one_letter,
    empty_body,
    change_checksum,
    lose_an_entry,
    name_a_lost_blob,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_said_when_its_session_is_opened(
    path: Path, damage: Callable[[apsw.Connection], None]
) -> None:
    fill(path)
    with raw(path) as connection:
        assert key(connection) == 2
        damage(connection)
    with Store(path) as store:
        with pytest.raises(
            SessionDamaged, match=r"'bad' is damaged.*others? .*unaffected"
        ) as caught:
            store.session("bad")
        assert caught.value.session_id == "bad"
        assert caught.value.seq is not None
        assert {info.id for info in store.sessions()} == {"before", "bad", "after"}
        assert store.status == "ok"
    assert others_work(path)


def test_figures_of_all_sessions_are_there_though_one_is_damaged(path: Path) -> None:
    fill(path)
    with raw(path) as connection:
        connection.execute("UPDATE entries SET body = X'' WHERE session = 2 AND seq = 2")
    with Store(path) as store:
        (today,) = store.activity()
        assert (today.sessions, today.turns, today.completed) == (3, 3, 3)  # counted before
        store.rebuild_sums()
        (today,) = store.activity()
        assert (today.sessions, today.turns, today.completed) == (3, 2, 2)
        assert list(store.openings(["before", "bad", "after"])) == OTHERS


def test_a_turn_on_a_damaged_session_is_refused_by_whatever_way_it_was_reached(path: Path) -> None:
    fill(path)
    with raw(path) as connection:
        flip_one_letter(connection)
    with Store(path) as store:
        before = store.counts()
        with pytest.raises(SessionDamaged):
            with store.create_session(id="bad", title="bad").turn("go"):
                pass
        assert store.counts() == before
    assert others_work(path)


def test_a_damaged_session_row_is_not_taken_for_a_sound_one(path: Path) -> None:
    """Its title is told from its journal, or it is said to be damaged; it is never just gone."""
    fill(path)
    with raw(path) as connection:
        connection.execute("UPDATE sessions SET about = CAST('rubbish' AS BLOB) WHERE key = 2")
    with Store(path) as store:
        assert _title_of(store, "bad") in ("bad", "damaged")
        assert {info.id for info in store.sessions()} == {"before", "bad", "after"}
    assert others_work(path)


def _title_of(store: Store, session_id: str) -> str | None:
    try:
        return store.session(session_id).title
    except SessionDamaged:
        return "damaged"


def test_a_deleted_session_whose_row_is_damaged_does_not_come_back_by_itself(path: Path) -> None:
    fill(path)
    with Store(path) as store:
        store.delete_session("bad")
    with raw(path) as connection:
        connection.execute("UPDATE sessions SET about = CAST('rubbish' AS BLOB) WHERE key = 2")
    with Store(path) as store, pytest.raises((SessionDamaged, LookupError)):
        store.session("bad")


def test_a_damaged_large_body_is_said_when_its_session_is_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "BODY_BYTES_INLINE", 300)
    fill(path)
    with raw(path) as connection:
        connection.execute("UPDATE blobs SET data = CAST('rubbish' AS BLOB)")
    with Store(path) as store, pytest.raises(SessionDamaged):
        store.session("bad")
    assert others_work(path)


_DIES_IN_A_STREAM = """
import os, sys
from killick import Store
store = Store(sys.argv[1], window_seconds=0.001)
with store.session("bad").turn("go") as turn, turn.stream() as reply:
    reply.text("so far")
    while not store.counts()["deltas"]:
        pass
    print("streaming", flush=True)
    os._exit(9)
"""


def test_damaged_deltas_of_a_dead_turn_are_said_when_their_session_is_opened(path: Path) -> None:
    fill(path)
    with child(_DIES_IN_A_STREAM, path):
        pass
    with raw(path) as connection:
        connection.execute("UPDATE deltas SET body = CAST('rubbish' AS BLOB)")
    with Store(path) as store, pytest.raises(SessionDamaged):
        store.session("bad")
    assert others_work(path)


def overwrite_page(path: Path, table: str, change: Callable[[bytes], bytes]) -> None:
    """Damage a page in the middle of a table: it holds rows of the large session only."""
    with raw(path) as connection:
        size = int(connection.pragma("page_size"))
        rows: list[Any] = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path", (table,)
        ).fetchall()
        assert len(rows) > 4
        page = rows[len(rows) // 2][0]
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        old = file.read(size)
        file.seek((page - 1) * size)
        file.write(change(old))


def zeros(page: bytes) -> bytes:
    return bytes(len(page))


def noise(page: bytes) -> bytes:
    return bytes((byte * 7 + at * 13 + 1) % 256 for at, byte in enumerate(page))


def broken_middle(page: bytes) -> bytes:
    half = len(page) // 2
    return page[: half - 50] + b"\xaa" * 100 + page[half + 50 :]


def fewer_cells(page: bytes) -> bytes:
    """The page says it has one row less than it has: nothing in it is malformed."""
    cells = int.from_bytes(page[3:5], "big")
    return page[:3] + (cells - 1).to_bytes(2, "big") + page[5:]


@pytest.mark.parametrize("table", ["entries", "entries_by_seq"])
@pytest.mark.parametrize("change", [zeros, noise, broken_middle, fewer_cells])
def test_a_damaged_page_is_said_when_its_session_is_opened(
    path: Path, table: str, change: Callable[[bytes], bytes]
) -> None:
    fill(path, notes=2_500 if table == "entries_by_seq" else 200)
    overwrite_page(path, table, change)
    with Store(path) as store:
        with pytest.raises(SessionDamaged, match="'bad'"):
            store.session("bad")
        for session_id in OTHERS:
            assert is_usable(store.session(session_id))
    assert others_work(path)


@pytest.mark.parametrize("table", ["entries", "entries_by_seq", "entries_by_identity"])
def test_writing_into_a_damaged_page_does_not_stop_the_writes_of_others(
    path: Path, table: str
) -> None:
    """The writer meets the damage itself: that session is refused, and only that one."""
    fill(path, notes=2_500)
    overwrite_page(path, table, zeros)
    with Store(path) as store:
        # What lands beside the damage may go well; whatever is refused is damage to this session.
        with contextlib.suppress(SessionDamaged):
            bad = store.create_session(id="bad", title="bad")
            for number in range(200):
                bad.note("n", number, key=f"new {number}")
            bad.entries()
        for session_id in OTHERS:
            assert is_usable(store.session(session_id))
        assert store.status == "ok"
