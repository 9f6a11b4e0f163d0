"""What the design itself costs, and what SQLite allows: apsw with nothing of ours around it."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter

import apsw

from benchmarks.appends import beside, paired_async
from benchmarks.raw import CHECKPOINT_PAGES, TEXT, RawWriter, warm_up
from benchmarks.results import Result, Setting, at_least, at_most
from benchmarks.stats import paired, per_second, timed

_APPENDS = 20
_FINER = 3
_RAW_APPENDS = 200
_ROWS = 1_600
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
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def append(self, appends: int) -> None:
        for _ in range(appends):
            done = threading.Lock()
            done.acquire()
            self._queue.put(done.release)
            done.acquire()

    async def append_awaited(self, appends: int) -> None:
        """The same for an event loop, which a descriptor wakes as it does in Killick."""
        loop, bell = asyncio.get_running_loop(), os.eventfd(0)
        done: asyncio.Future[None]

        def look() -> None:
            os.eventfd_read(bell)
            done.set_result(None)

        loop.add_reader(bell, look)
        for _ in range(appends):
            done = loop.create_future()
            self._queue.put(partial(os.eventfd_write, bell, 1))
            await done
        loop.remove_reader(bell)
        os.close(bell)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        execute, body, seq = self._connection.execute, TEXT.encode(), 0
        while (answer := self._queue.get()) is not None:
            seq += 1
            execute("BEGIN IMMEDIATE")
            execute(_INSERT, (1, seq, b"%018d" % seq, body))
            execute("COMMIT")
            answer()


def floor(setting: Setting) -> list[Result]:
    """What the design costs with nothing of Killick in it."""
    raw = RawWriter(setting.folder)
    path = setting.folder / "handed.db"
    handed = _Handed(path)
    warm_up(path, handed.append)
    count, blocks = setting.some(_APPENDS), setting.blocks * _FINER
    what = "floor of one append: apsw on another thread, two indexes"
    pairs = paired(
        lambda: timed(lambda: handed.append(count), count), lambda: raw.block(count), blocks
    )
    results = [at_most(what, pairs.slowdown(), None, beside(pairs))]
    if sys.platform == "linux":

        async def awaited() -> float:
            began = perf_counter()
            await handed.append_awaited(count)
            return (perf_counter() - began) / count

        pairs = asyncio.run(paired_async(awaited, lambda: raw.block(count), blocks))
        results.append(at_most(f"{what}, awaited", pairs.slowdown(), None, beside(pairs)))
    handed.close()
    raw.close()
    return results


class _Batched:
    """A row of each of some sessions in one commit, on the caller's own thread."""

    def __init__(self, path: Path, sessions: int, *, indexes: bool) -> None:
        self._connection = _connect(path, indexes=indexes)
        self._sessions, self._body, self._seq = sessions, TEXT.encode(), 0
        warm_up(path, lambda appends: self.append(max(1, appends // sessions)))

    def append(self, commits: int) -> None:
        for _ in range(commits):
            self._seq += 1
            seq, body = self._seq, self._body
            rows = [(one, seq, b"%09d%09d" % (seq, one), body) for one in range(self._sessions)]
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_INSERT, rows)
            self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def ceiling(setting: Setting) -> list[Result]:
    """What no store on SQLite can exceed here, with the indexes that ours has and with none."""
    kinds = ((8, True), (64, True), (64, False), (1_000, True))
    return [ceiling_of(setting, sessions, indexes=indexes) for sessions, indexes in kinds]


def ceiling_of(setting: Setting, sessions: int, *, indexes: bool) -> Result:
    folder = setting.folder / f"{sessions} {indexes}"
    folder.mkdir()
    raw, batched = RawWriter(folder), _Batched(folder / "batched.db", sessions, indexes=indexes)
    commits, count = max(1, setting.some(_ROWS) // sessions), setting.some(_RAW_APPENDS)
    appends = commits * sessions
    pairs = paired(
        lambda: timed(lambda: batched.append(commits), appends),
        lambda: raw.block(count),
        setting.blocks,
    )
    batched.close()
    raw.close()
    with_what = "two indexes" if indexes else "no index"
    what = (
        f"ceiling of {sessions:,} writers: apsw alone, {sessions:,} rows in each commit, "
        f"{with_what}"
    )
    absolute = f"{per_second(pairs.ours)}, one raw writer {per_second(pairs.raw)}"
    return at_least(what, pairs.speedup(), None, absolute)
