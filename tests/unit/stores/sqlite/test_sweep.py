"""A sweep clears what no row accounts for, and nothing else, whatever others write meanwhile."""

import random
import struct
import threading
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, nullcontext
from itertools import islice
from pathlib import Path

import apsw
import pytest

from killick.stores.sqlite import frozen, pages
from killick.stores.sqlite.frozen import DatabaseFile
from killick.stores.sqlite.sweep import Sweeper, Swept

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE rows (key INTEGER PRIMARY KEY, text TEXT, n INTEGER DEFAULT 0);
CREATE INDEX rows_by_text ON rows (text);
CREATE TABLE pairs (a TEXT, b TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID;
"""


def connect(path: Path, *, secure: bool = True) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("secure_delete", int(secure))
    connection.set_busy_timeout(10_000)
    return connection


def run(path: Path, turn: threading.Lock, *, wait: float = 10.0) -> Swept | None:
    @contextmanager
    def having_turn() -> Iterator[None]:
        with turn:
            yield

    return Sweeper(path, lambda: connect(path), having_turn, wait).run()


class Workload:
    """Writes rows of every size, changes and removes them; `gone` are texts no row has any more."""

    def __init__(self, connection: apsw.Connection, seed: int, name: str = "secret") -> None:
        self.connection = connection
        self.chance = random.Random(seed)
        self.name = name
        self.rows: dict[int, str] = {}
        self.gone: set[str] = set()
        self.number = 0

    def text(self) -> str:
        self.number += 1
        size = self.chance.choice([0, 3, 30, 300, 900, 3_000, 9_000])
        return f"{self.name}-{self.number:06d}-" + "filling " * (size // 8)

    def step(self) -> None:
        what = self.chance.random()
        if what < 0.45 or not self.rows:
            text = self.text()
            key = self.number if self.chance.random() < 0.6 else self.chance.randrange(10**9)
            if key not in self.rows:
                self.connection.execute("INSERT INTO rows (key, text) VALUES (?, ?)", (key, text))
                self.connection.execute("INSERT INTO pairs VALUES (?, ?)", (text[:14], text))
                self.rows[key] = text
            return
        key = self.chance.choice(list(self.rows))
        old = self.rows.pop(key)
        self.connection.execute("DELETE FROM pairs WHERE a = ?", (old[:14],))
        self.gone.add(old)
        if what < 0.7:
            new = self.text()
            self.connection.execute("UPDATE rows SET text = ? WHERE key = ?", (new, key))
            self.connection.execute("INSERT INTO pairs VALUES (?, ?)", (new[:14], new))
            self.rows[key] = new
        else:
            self.connection.execute("DELETE FROM rows WHERE key = ?", (key,))

    def commit(self, steps: int) -> None:
        with self.connection:
            for _ in range(steps):
                self.step()


def left_in(path: Path, texts: set[str]) -> list[str]:
    """Those of which the number is still in the file or its log."""
    log = Path(f"{path}-wal")
    data = path.read_bytes() + (log.read_bytes() if log.exists() else b"")
    return sorted(text[:14] for text in texts if text[:13].encode() in data)


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_sqlite_moved_leave_nothing_behind(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "work.db"
    connection = connect(path)
    connection.execute(SCHEMA + "INSERT INTO meta VALUES ('swept', 0);")
    work = Workload(connection, seed)
    moved = 0
    for _ in range(3):
        for _ in range(20):
            work.commit(10)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        moved += len(left_in(path, work.gone))
        swept = run(path, threading.Lock())
        assert swept is not None
        assert swept.damaged == 0
        assert left_in(path, work.gone) == []
    assert moved, "no page was made that the test is about"
    assert connection.pragma("integrity_check") == "ok"
    assert dict(connection.execute("SELECT key, text FROM rows")) == work.rows
    connection.close()


def test_what_an_older_version_left_is_cleared_once(tmp_path: Path) -> None:
    """Free pages, free blocks, and the ends of long rows: without `secure_delete` all hold text."""
    path = tmp_path / "work.db"
    connection = connect(path, secure=False)
    connection.execute(SCHEMA)
    work = Workload(connection, 7)
    for _ in range(60):
        work.commit(10)
    for _ in range(40):  # a row in the place of a longer one, in one transaction
        with connection:
            connection.execute(
                "INSERT INTO rows (key, text) VALUES (-1, ?)", ("wider-0000001-" + "x" * 30_000,)
            )
            connection.execute("DELETE FROM rows WHERE key = -1")
            connection.execute("INSERT INTO rows (key, text) VALUES (-2, ?)", ("y" * 5_000,))
        connection.execute("DELETE FROM rows WHERE key = -2")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    assert len(left_in(path, work.gone)) > 50
    swept = run(path, threading.Lock())
    assert swept is not None
    assert left_in(path, work.gone) == []
    assert b"xxxxxxxx" not in path.read_bytes()
    assert connection.pragma("integrity_check") == "ok"
    assert dict(connection.execute("SELECT key, text FROM rows")) == work.rows
    assert connection.execute("SELECT value FROM meta WHERE name = 'swept'").get == 1
    again = run(path, threading.Lock())
    assert again is not None
    assert again.cleared == 0
    connection.close()


@pytest.mark.parametrize("few", [8, 512])
def test_others_write_meanwhile_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """The other one remembers pages as they were, and writes them again."""
    monkeypatch.setattr(frozen, "_WITH_THE_TURN", few)
    monkeypatch.setattr(frozen, "_PAGES_A_PIECE", 4)
    path = tmp_path / "work.db"
    connection = connect(path)
    connection.execute(SCHEMA + "INSERT INTO meta VALUES ('swept', 0);")
    work = Workload(connection, 11)
    for _ in range(120):
        work.commit(10)
    gone, turn, over = set(work.gone), threading.Lock(), threading.Event()
    commits = 0

    def write() -> None:
        nonlocal commits
        while not over.is_set():
            with turn:
                work.commit(3)
            commits += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(4):
            assert run(path, turn, wait=60) is not None
    finally:
        over.set()
        writer.join()
    assert commits > 10
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    assert left_in(path, gone) == []
    assert connection.pragma("integrity_check") == "ok"
    assert dict(connection.execute("SELECT key, text FROM rows")) == work.rows
    connection.close()


def test_a_page_that_another_one_remembers_and_writes_again_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "work.db"
    connection = connect(path)
    connection.execute(SCHEMA + "INSERT INTO meta VALUES ('swept', 0);")
    work = Workload(connection, 5)
    for _ in range(100):
        work.commit(10)
    other, visit = connect(path), Sweeper._visit
    rounds = 0

    def remembered(sweeper: Sweeper, file: DatabaseFile, pages: Collection[int] | None) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            other.execute("SELECT sum(n) FROM rows").fetchall()
        visit(sweeper, file, pages)
        if rounds == 1:
            other.execute("UPDATE rows SET n = 1 - n")  # in place: nothing else of a page changes

    monkeypatch.setattr(Sweeper, "_visit", remembered)
    assert run(path, threading.Lock()) is not None
    assert rounds > 1
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    assert left_in(path, work.gone) == []
    assert connection.pragma("integrity_check") == "ok"
    other.close()
    connection.close()


def test_a_reader_that_keeps_the_log_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    connection = connect(path)
    connection.execute(SCHEMA)
    reader = connect(path)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM rows").fetchall()
    Workload(connection, 1).commit(10)
    assert run(path, threading.Lock(), wait=0.1) is None
    reader.execute("COMMIT")
    assert run(path, threading.Lock(), wait=0.1) is not None
    reader.close()
    connection.close()


@pytest.mark.parametrize("seed", range(3))
def test_one_bit_that_is_wrong_never_costs_a_row(tmp_path: Path, seed: int) -> None:
    """A bit of a page's head, pointers or free blocks is turned, and turned back after a visit."""
    path = tmp_path / "work.db"
    connection = connect(path, secure=False)
    connection.execute(SCHEMA)
    work = Workload(connection, seed)
    for _ in range(25):
        work.commit(10)
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    sound, chance, damaged = path.read_bytes(), random.Random(seed), 0
    for place, bit in islice(_bits(sound, chance), 200):
        path.write_bytes(_turned(sound, place, bit))
        sweeper = Sweeper(path, lambda: connect(path), nullcontext, 1)
        sweeper._tails = True
        with closing(DatabaseFile(path)) as file:
            sweeper._visit(file, None)
        damaged += sweeper._damaged
        path.write_bytes(_turned(path.read_bytes(), place, bit))
        with closing(apsw.Connection(str(path))) as connection:
            assert connection.pragma("integrity_check") == "ok", (place, bit)
            assert dict(connection.execute("SELECT key, text FROM rows")) == work.rows
    assert damaged > 50


def _bits(sound: bytes, chance: random.Random) -> Iterator[tuple[int, int]]:
    """Yield bits by which pages are found and taken apart: a place in the file, and one of 8."""
    trees = [at for at in range(0, len(sound), 4_096) if pages.is_tree(sound, at or 100)]
    while True:
        at = chance.choice(trees)
        head = at or 100
        _, block, cells = struct.unpack_from(">BHH", sound, head)
        places = [head + chance.randrange(8), head + 8 + chance.randrange(2 * cells or 2)]
        places += [at + block + chance.randrange(4)] if block else []
        for place in (*places, chance.choice(trees) + chance.randrange(4_096)):
            yield place, chance.randrange(8)


def _turned(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def test_a_list_of_free_pages_that_does_not_add_up_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "work.db"
    connection = connect(path, secure=False)
    connection.execute(SCHEMA)
    connection.execute("INSERT INTO rows (text) VALUES (?)", ("gone" * 50_000,))
    connection.execute("DELETE FROM rows")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    data = path.read_bytes()
    path.write_bytes(data[:39] + bytes([data[39] - 1]) + data[40:])
    sweeper = Sweeper(path, lambda: connect(path), nullcontext, 1)
    with closing(DatabaseFile(path)) as file:
        sweeper._visit(file, None)
    assert sweeper._damaged == 1
    assert b"gonegone" in path.read_bytes()


def test_a_damaged_file_is_swept_again_once_it_is_sound(tmp_path: Path) -> None:
    """The ends of long rows are cleared by the first sweep that finds nothing damaged."""
    path = tmp_path / "work.db"
    connection = connect(path)
    connection.execute(SCHEMA)
    connection.execute("INSERT INTO rows (text) VALUES (?)", ("wide" * 2_000,))
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    sound = path.read_bytes()
    filled = [at for at in range(0, len(sound), 4_096) if b"wide" in sound[at : at + 4_096]]
    root = filled[0]
    end = next(at for at in filled if not sound[at] and sound.startswith(bytes(6), at + 4_090))
    old = bytearray(sound)
    old[end + 4_090 : end + 4_096] = b"secret"
    path.write_bytes(_turned(bytes(old), root + 3, 0))  # it counts a row too few, or too many
    swept = run(path, threading.Lock())
    assert swept is not None
    assert swept.damaged
    assert b"secret" in path.read_bytes()
    path.write_bytes(_turned(path.read_bytes(), root + 3, 0))
    swept = run(path, threading.Lock())
    assert swept is not None
    assert not swept.damaged
    assert b"secret" not in path.read_bytes()


def row_leaf() -> bytearray:
    """Return a page with one row of 96 bytes, at its end."""
    page = bytearray(4_096)
    page[0] = 13
    page[3:5] = (1).to_bytes(2, "big")
    page[5:7] = (4_000).to_bytes(2, "big")
    page[8:10] = (4_000).to_bytes(2, "big")
    page[4_000:4_002] = bytes([94, 1])
    return page


def test_a_page_that_is_not_as_sqlite_makes_them_is_left_alone() -> None:
    page = row_leaf()
    assert pages.leftovers(bytes(page), 0, 0, 4_096) == []
    page[2_000] = 1
    assert pages.leftovers(bytes(page), 0, 0, 4_096) == [(10, 4_000)]
    page[4_000] = 93  # a byte belongs to no row
    with pytest.raises(pages.PageDamaged):
        pages.leftovers(bytes(page), 0, 0, 4_096)
    page[7] = 1  # and the page says so
    assert pages.leftovers(bytes(page), 0, 0, 4_096) == [(10, 4_000)]
    page[8:10] = (3_000).to_bytes(2, "big")  # a row where there are none
    with pytest.raises(pages.PageDamaged):
        pages.leftovers(bytes(page), 0, 0, 4_096)
    page[5:7] = (9).to_bytes(2, "big")
    with pytest.raises(pages.PageDamaged):
        pages.leftovers(bytes(page), 0, 0, 4_096)


def test_a_free_block_is_cleared_but_for_its_head() -> None:
    page = bytearray(4_096)
    page[0] = 10
    page[1:3] = (4_050).to_bytes(2, "big")
    page[3:5] = (2).to_bytes(2, "big")
    page[5:7] = (4_000).to_bytes(2, "big")
    page[8:12] = (4_000).to_bytes(2, "big") + (4_070).to_bytes(2, "big")
    page[4_000], page[4_070] = 49, 25
    page[4_050:4_054] = bytes([0, 0, 0, 20])
    assert pages.leftovers(bytes(page), 0, 0, 4_096) == []
    page[4_060] = 1
    assert pages.leftovers(bytes(page), 0, 0, 4_096) == [(4_054, 4_070)]
    page[4_053] = 24  # it reaches into the row behind it
    with pytest.raises(pages.PageDamaged):
        pages.leftovers(bytes(page), 0, 0, 4_096)
