"""What the design itself costs, and what SQLite allows: apsw with nothing of ours around it."""

import asyncio
import fcntl
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any
from zlib import crc32

import anyio
import apsw
import msgspec

from benchmarks.appends import beside, paired_async
from benchmarks.raw import CHECKPOINT_PAGES, TEXT, WARM_APPENDS, RawWriter, log_grew, warm_up
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
_LAWFUL_TABLES = """
    CREATE TABLE rows (session INTEGER, seq INTEGER, identity BLOB, body BLOB, crc INTEGER,
                       link BLOB);
    CREATE TABLE newest (session INTEGER PRIMARY KEY, link BLOB);
"""
_LAWFUL_INSERT = "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)"
_NEWEST = "REPLACE INTO newest VALUES (?, ?)"


def _connect(path: Path, *, indexes: bool, table: str = _TABLE) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.wal_autocheckpoint(CHECKPOINT_PAGES)
    connection.execute(table)
    if indexes:
        connection.execute(_INDEXES)
    return connection


class _Plain:
    """A row in a commit."""

    def __init__(self, path: Path) -> None:
        self._connection, self._seq = _connect(path, indexes=True), 0

    def commit(self, _sessions: Sequence[int] = ()) -> None:
        execute = self._connection.execute
        self._seq += 1
        execute("BEGIN IMMEDIATE")
        execute(_INSERT, (1, self._seq, b"%018d" % self._seq, TEXT.encode()))
        execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


class _Lawful:
    """A row of each of some sessions in a commit, as the laws ask for it.

    A row has JSON, an identity, a checksum and a link to the one before; a commit takes the turn of
    the file, looks whether that is still there, and keeps the newest links.
    """

    def __init__(self, path: Path) -> None:
        self._connection = _connect(path, indexes=True, table=_LAWFUL_TABLES)
        self._path, self._turn = path, os.open(f"{path}-turn", os.O_RDWR | os.O_CREAT)
        self._links: dict[int, bytes] = {}
        self._seq = 0

    def commit(self, sessions: Sequence[int] = (1,)) -> None:
        execute = self._connection.execute
        self._seq += 1
        fcntl.lockf(self._turn, fcntl.LOCK_EX, 1)
        self._path.stat()
        execute("BEGIN IMMEDIATE")
        for session in sessions:
            execute(_LAWFUL_INSERT, self._row(session))
        for session in sessions:
            execute(_NEWEST, (session, self._links[session]))
        execute("COMMIT")
        fcntl.lockf(self._turn, fcntl.LOCK_UN, 1)

    def _row(self, session: int) -> tuple[Any, ...]:
        name = f"msg_{self._seq:012x}{session:020x}"
        parts = [{"type": "text", "text": TEXT}]
        body = msgspec.json.encode({"kind": "message", "id": name, "parts": parts})
        identity = bytes.fromhex(name[4:16]) + blake2b(name.encode(), digest_size=10).digest()
        hashed = blake2b(body, digest_size=32).digest()
        before = self._links.get(session, b"")
        link = blake2b(before + hashed + name.encode(), digest_size=32).digest()
        self._links[session] = link
        return session, self._seq, identity, body, crc32(body), link

    def close(self) -> None:
        self._connection.close()
        os.close(self._turn)


class _Handed:
    """Commits that one thread asks another for and waits for, one by one."""

    def __init__(self, rows: _Plain | _Lawful) -> None:
        self._rows = rows
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
        self._rows.close()

    def _run(self) -> None:
        while (answer := self._queue.get()) is not None:
            self._rows.commit()
            answer()


def floor(setting: Setting) -> list[Result]:
    """What the design costs with nothing of Killick in it; then what its laws cost beside."""
    raw = RawWriter(setting.folder)
    plain = "floor of one append: apsw on another thread, two indexes"
    laws = "floor of one append: the same, and what the laws ask of a row"
    results = []
    for what, rows in ((plain, _Plain), (laws, _Lawful)):
        path = setting.folder / f"{rows.__name__}.db"
        handed = _Handed(rows(path))
        warm_up(path, handed.append)
        results += _floor_of(what, handed, raw, setting)
        handed.close()
    raw.close()
    return results


def _floor_of(what: str, handed: _Handed, raw: RawWriter, setting: Setting) -> list[Result]:
    count, blocks = setting.some(_APPENDS), setting.blocks * _FINER
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
    return results


class _Crowd:
    """Tasks that await a row each, and a thread that commits the rows of all of them at once."""

    def __init__(self, path: Path, size: int) -> None:
        self._lawful, self._size = _Lawful(path), size
        self._queue: SimpleQueue[asyncio.Future[None] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def append(self, each: int) -> float:
        """Seconds for one append, all tasks together."""

        async def caller() -> None:
            for _ in range(each):
                done: asyncio.Future[None] = self._loop.create_future()
                self._queue.put(done)
                await done

        began = perf_counter()
        await asyncio.gather(*(caller() for _ in range(self._size)))
        return (perf_counter() - began) / (each * self._size)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._lawful.close()

    def _run(self) -> None:
        waiting: list[asyncio.Future[None]] = []
        while (done := self._queue.get()) is not None:
            waiting.append(done)
            if len(waiting) == self._size:
                self._lawful.commit(range(self._size))
                self._loop.call_soon_threadsafe(_answer, waiting)
                waiting = []


def _answer(waiting: Sequence["asyncio.Future[None]"]) -> None:
    for done in waiting:
        done.set_result(None)


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
    bare = [ceiling_of(setting, sessions, indexes=indexes) for sessions, indexes in kinds]
    return bare + [anyio.run(_lawful_ceiling, setting, size) for size in (8, 64)]


async def _lawful_ceiling(setting: Setting, size: int) -> Result:
    folder = setting.folder / f"lawful {size}"
    folder.mkdir()
    raw, path = RawWriter(folder), folder / "crowd.db"
    crowd = _Crowd(path, size)
    grew, before = True, 0
    while grew:
        await crowd.append(max(2, WARM_APPENDS // size))
        grew, before = log_grew(path, before)
    each, count = max(2, setting.some(_ROWS) // size), setting.some(_RAW_APPENDS)
    pairs = await paired_async(lambda: crowd.append(each), lambda: raw.block(count), setting.blocks)
    crowd.close()
    raw.close()
    absolute = f"{per_second(pairs.ours)}, one raw writer {per_second(pairs.raw)}"
    what = f"ceiling of {size} asyncio tasks: the same, awaited, and what the laws ask of a row"
    return at_least(what, pairs.speedup(), None, absolute)


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
