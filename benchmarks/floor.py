"""What the design itself costs, and what SQLite allows: apsw with nothing of ours around it."""

import threading
from pathlib import Path
from queue import SimpleQueue

import apsw

from benchmarks.appends import beside
from benchmarks.raw import CHECKPOINT_PAGES, TEXT, RawWriter, warm_up
from benchmarks.results import Result, Setting, at_least, at_most
from benchmarks.stats import paired, per_second, timed

_APPENDS = 20
_FINER = 3
_RAW_APPENDS = 200
_SESSIONS = 64
_COMMITS = 25
_TABLE = "CREATE TABLE rows (session INTEGER, seq INTEGER, identity BLOB, body BLOB)"
_INDEXES = """
    CREATE UNIQUE INDEX by_seq ON rows (session, seq);
    CREATE UNIQUE INDEX by_identity ON rows (identity);
"""
_INSERT = "INSERT INTO rows VALUES (?, ?, ?, ?)"


def _connect(path: Path, *, indexes: bool) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.wal_autocheckpoint(CHECKPOINT_PAGES)
    connection.execute(_TABLE)
    if indexes:
        connection.execute(_INDEXES)
    return connection


class _Handed:
    """Rows that one thread hands to another and waits for, one by one."""

    def __init__(self, path: Path) -> None:
        self._connection = _connect(path, indexes=True)
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
            execute(_INSERT, (1, seq, b"%018d" % seq, body))
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


class _Batched:
    """A row of each of 64 sessions in one commit, on the caller's own thread."""

    def __init__(self, path: Path, *, indexes: bool) -> None:
        self._connection = _connect(path, indexes=indexes)
        self._body, self._seq = TEXT.encode(), 0
        warm_up(path, lambda appends: self.append(appends // _SESSIONS))

    def append(self, commits: int) -> None:
        for _ in range(commits):
            self._seq += 1
            seq, body = self._seq, self._body
            rows = [(one, seq, b"%09d%09d" % (seq, one), body) for one in range(_SESSIONS)]
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_INSERT, rows)
            self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def ceiling(setting: Setting) -> list[Result]:
    """What no store on SQLite can exceed here, with the indexes that ours has and with none."""
    results = []
    for indexes in (True, False):
        folder = setting.folder / ("indexes" if indexes else "bare")
        folder.mkdir()
        raw, batched = RawWriter(folder), _Batched(folder / "batched.db", indexes=indexes)
        commits, count = setting.some(_COMMITS), setting.some(_RAW_APPENDS)
        appends = commits * _SESSIONS
        pairs = paired(
            lambda: timed(lambda: batched.append(commits), appends),  # noqa: B023
            lambda: raw.block(count),  # noqa: B023
            setting.blocks,
        )
        batched.close()
        raw.close()
        with_what = "two indexes" if indexes else "no index"
        what = f"ceiling of 64 writers: apsw alone, 64 rows in each commit, {with_what}"
        absolute = f"{per_second(pairs.ours)}, one raw writer {per_second(pairs.raw)}"
        results.append(at_least(what, pairs.speedup(), None, absolute))
    return results
