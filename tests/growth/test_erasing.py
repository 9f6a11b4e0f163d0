"""Erasing a session writes what the session is, not what the store is; others write meanwhile."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from killick import Image, Message, Session, Store, Text
from killick.journal.kinds import digest
from killick.stores.sqlite.database import SqliteDatabase
from killick.stores.sqlite.lockfile import LockFile
from tests.growth.stores import make_store

COUNTING = Path(__file__).parents[1] / "counts" / "counting.py"


def counted(folder: Path, copies: int, what: str = "erase") -> dict[str, Any]:
    folder.mkdir()
    path = make_store(folder / "counted.db", copies)
    with Store(path, indexing=False) as store:
        store.rebuild_search()
        store.erase_session("copy_00000003")  # what older versions left goes with the first one
    done = subprocess.run(
        [sys.executable, str(COUNTING), str(folder), what],
        check=True,
        capture_output=True,
        text=True,
    )
    counts: dict[str, Any] = json.loads(done.stdout)
    return counts


def test_bytes_that_erasing_writes_do_not_grow_with_the_store(tmp_path: Path) -> None:
    small, large = counted(tmp_path / "small", 200), counted(tmp_path / "large", 4_000)
    assert small["verified"]
    assert large["verified"]
    assert large["bytes"] < 3 * small["bytes"]
    assert large["bytes"] < 2_000_000
    assert large["log"] <= small["log"] + 20, "no transaction does more in a larger store"


def test_no_turn_of_a_sweep_waits_for_the_disk_more_than_its_checkpoint_does(
    tmp_path: Path,
) -> None:
    """Another writer commits before each turn: then the log is never copied back already."""
    found = counted(tmp_path / "small", 200, "turns")
    assert found["verified"]
    assert max(found["syncs"]) == 2, "the log and the database, as every checkpoint"


def test_no_writer_waits_long_while_many_sessions_are_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn to write is short in what it does: counted in statements, not in seconds."""
    path = make_store(tmp_path / "work.db", 300)
    turns: list[float] = []
    taken = threading.local()
    acquire, release = LockFile.acquire_turn, LockFile.release_turn

    def acquire_turn(lock: LockFile, seconds: float) -> None:
        acquire(lock, seconds)
        taken.at = time.thread_time()

    def release_turn(lock: LockFile) -> None:
        turns.append(time.thread_time() - taken.at)
        release(lock)

    with Store(path) as store, Store(path) as other:
        store.rebuild_search()
        for number in range(1, 41):
            store.delete_session(f"copy_{number:08d}")
        session, over = other.create_session(), threading.Event()
        appended = 0
        monkeypatch.setattr(LockFile, "acquire_turn", acquire_turn)
        monkeypatch.setattr(LockFile, "release_turn", release_turn)

        def append() -> None:
            nonlocal appended
            with session.turn("go") as turn:
                while not over.is_set():
                    turn.record(Message("assistant", [Text("x" * 600)]))
                    appended += 1

        writer = threading.Thread(target=append)
        writer.start()
        try:
            from datetime import timedelta

            done = store.clean_up(deleted_after=timedelta(0), dry_run=False)
        finally:
            over.set()
            writer.join()
        assert sum(removal.done for removal in done) == 40
        assert appended > 40, "others wrote throughout"
        assert max(turns) < 0.1, "processor time of the longest turn to write"
        assert store.check_file() == []
        assert len(session.messages()) == appended + 1


def test_each_step_of_an_erasure_writes_little_however_large_the_session_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in bytes of the log, which cannot begin anew while another reads it."""
    path, secret = tmp_path / "work.db", b"the kelp is counted"
    log = path.with_name("work.db-wal")
    written: list[int] = []
    began = [0]
    acquire, release = LockFile.acquire_turn, LockFile.release_turn

    def acquire_turn(lock: LockFile, seconds: float) -> None:
        acquire(lock, seconds)
        began[0] = log.stat().st_size

    def release_turn(lock: LockFile) -> None:
        written.append(log.stat().st_size - began[0])
        release(lock)

    with Store(path, indexing=False, durability="normal") as store:
        session, kept = store.create_session(), store.create_session()
        with session.turn("go") as turn:
            for number in range(6):
                data = number.to_bytes(4) + secret * 50_000
                picture = Image(store.put_blob(data), "image/png")
                turn.record(Message("user", [Text("y" * 700_000 + str(number)), picture]))
            large = Image(store.put_blob(secret * 1_000_000), "image/png")
            turn.record(Message("user", [large]))
        shared = kept_blob(store, kept, secret)
        with session.turn("and this") as turn:
            turn.record(Message("user", [shared]))
        reader = apsw.Connection(str(path))
        reader.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchall()
        monkeypatch.setattr(LockFile, "acquire_turn", acquire_turn)
        monkeypatch.setattr(LockFile, "release_turn", release_turn)
        receipt = store.erase_session(session.id, verify=False)
        assert receipt.blobs == 7
        assert max(written) < 3_000_000
        assert sum(written) > 5_000_000
        monkeypatch.undo()
        reader.close()
        assert store.verify_erased().verified
        assert store.blob(shared.blob).startswith(b"shared")
        assert store.check_file() == []
    assert path.read_bytes().count(secret) == 2, "those of the blob that another session has"


def kept_blob(store: Store, session: Session, secret: bytes) -> Image:
    image = Image(store.put_blob(b"shared" + secret + bytes(2_000_000) + secret), "image/png")
    with session.turn("keep") as turn:
        turn.record(Message("user", [image]))
    return image


def test_a_blob_that_is_needed_again_in_the_transaction_that_removes_it_stays(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "work.db", indexing=False) as store:
        session, other = store.create_session(), store.create_session()
        data = b"again" * 500_000
        with session.turn("go") as turn:
            turn.record(Message("user", [Image(store.put_blob(data), "image/png")]))
    database = SqliteDatabase(tmp_path / "work.db")
    try:
        with database.writing() as tx:
            row = tx.session(session._core.key)
            assert row is not None
            tx.erase_session(row, 1, None)
            while tx.erase_rows(row.key, lambda: False)[2]:
                pass
            name = digest(data)
            assert tx.claim_blob(row.tenant, name, database.holder)
            assert tx.refer(other._core.key, row.tenant, name)
        with database.reading() as reader:
            assert reader.blob(row.tenant, name) == data
    finally:
        database.close()


def test_pages_that_were_freed_as_they_were_are_zero_where_a_row_ends_in_them(
    tmp_path: Path,
) -> None:
    """SQLite clears a free page when it takes it, but for one freed in the same transaction."""
    path = tmp_path / "freed.db"
    connection = apsw.Connection(str(path))
    connection.pragma("secure_delete", 1)
    connection.execute("CREATE TABLE a (b BLOB)")
    connection.execute("INSERT INTO a VALUES (?)", (b"secret" * 100_000,))
    connection.pragma("secure_delete", 0)
    connection.execute("DELETE FROM a")
    connection.pragma("secure_delete", 1)
    for _ in range(300):  # each ends in a page of its own, nearly empty
        connection.execute("INSERT INTO a VALUES (?)", (b"x" * 4_100,))
    freed = connection.pragma("freelist_count")
    connection.close()
    assert freed == 0
    assert b"secret" not in path.read_bytes()
