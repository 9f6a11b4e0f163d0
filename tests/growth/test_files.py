"""What a store's files cost: a log that a slow reader let grow, pages that a check reads."""

from pathlib import Path

import apsw
import pytest

from killick import Message, Store, Text
from killick.stores.sqlite import connection, maintain
from tests.growth.stores import make_store


def test_a_log_that_a_slow_reader_let_grow_is_cut_when_it_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 100_000
    monkeypatch.setattr(connection, "LOG_BYTES", limit)
    path = tmp_path / "work.db"
    log = Path(f"{path}-wal")
    with Store(path, indexing=False) as store:
        session = store.create_session()
        slow = apsw.Connection(str(path))
        slow.execute("BEGIN")
        slow.execute("SELECT count(*) FROM entries").fetchall()
        with session.turn("go") as turn:
            for _ in range(20):
                turn.record(Message(role="assistant", parts=[Text("a" * 100_000)]))
            grown = log.stat().st_size
            slow.execute("COMMIT")
            slow.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)  # as after some more writes
            slow.close()
            turn.record(Message(role="assistant", parts=[Text("short")]))
        assert grown > 10 * limit
        assert log.stat().st_size <= limit


def test_a_check_reads_every_page_about_once(tmp_path: Path) -> None:
    path = make_store(tmp_path / "work.db", 10_000)
    opened = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    pages = opened.pragma("page_count")
    assert pages * 4_096 > 3 * 2_000_000  # more than SQLite keeps by itself
    assert maintain.check(opened) == []
    read, _ = opened.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)
    opened.close()
    assert read < 1.2 * pages
