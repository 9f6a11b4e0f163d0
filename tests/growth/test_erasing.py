"""Erasing a session writes what the session is, not what the store is; others write meanwhile."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from killick import Message, Store, Text
from killick.stores.sqlite.lockfile import LockFile
from tests.growth.stores import make_store

COUNTING = Path(__file__).parents[1] / "counts" / "counting.py"


def counted(folder: Path, copies: int) -> dict[str, Any]:
    folder.mkdir()
    path = make_store(folder / "counted.db", copies)
    with Store(path, indexing=False) as store:
        store.rebuild_search()
        store.erase_session("copy_00000003")  # what older versions left goes with the first one
    done = subprocess.run(
        [sys.executable, str(COUNTING), str(folder), "erase"],
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
