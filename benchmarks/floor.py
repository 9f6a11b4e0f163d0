"""What the design itself costs: raw apsw on a thread of its own, with the same two indexes."""

import threading
from pathlib import Path
from queue import SimpleQueue

import apsw

from benchmarks.appends import beside
from benchmarks.raw import CHECKPOINT_PAGES, TEXT, RawWriter, warm_up
from benchmarks.results import Result, Setting, at_most
from benchmarks.stats import paired, timed

_APPENDS = 20
_FINER = 3
_TABLE = """
    CREATE TABLE rows (session INTEGER, seq INTEGER, identity BLOB, body BLOB);
    CREATE UNIQUE INDEX by_seq ON rows (session, seq);
    CREATE UNIQUE INDEX by_identity ON rows (session, identity);
"""


class _Handed:
    """Rows that one thread hands to another and waits for, one by one."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", "full")
        self._connection.wal_autocheckpoint(CHECKPOINT_PAGES)
        self._connection.execute(_TABLE)
        self._queue: SimpleQueue[threading.Lock | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def append(self, appends: int) -> None:
        for _ in range(appends):
            done = threading.Lock()
            done.acquire()
            self._queue.put(done)
            done.acquire()

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        execute, body, seq = self._connection.execute, TEXT.encode(), 0
        while (done := self._queue.get()) is not None:
            seq += 1
            execute("BEGIN IMMEDIATE")
            execute("INSERT INTO rows VALUES (1, ?, ?, ?)", (seq, b"%018d" % seq, body))
            execute("COMMIT")
            done.release()


def floor(setting: Setting) -> list[Result]:
    raw = RawWriter(setting.folder)
    path = setting.folder / "handed.db"
    handed = _Handed(path)
    warm_up(path, handed.append)
    count = setting.some(_APPENDS)
    pairs = paired(
        lambda: timed(lambda: handed.append(count), count),
        lambda: raw.block(count),
        setting.blocks * _FINER,
    )
    handed.close()
    raw.close()
    what = "floor of one append: apsw on another thread, two indexes"
    return [at_most(what, pairs.slowdown(), None, beside(pairs))]
