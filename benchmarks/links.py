"""`python -m benchmarks.links`: the processor time and the bytes that a link adds to an append.

Both sides run in one process, block by block: with links, and with none made, hashed or saved.
Entries have 600 bytes. An append that shares its commit with 63 others is the usual one under load;
one that is alone in it also pays for one more page of SQLite's log, which is measured by itself:
bare statements with and without it. On PostgreSQL it is the client's time; the server is given 32
bytes more for each of two rows that it writes anyway. There a lone append waits for the server, and
what hashes is no longer in the processor's caches: the hashes alone are measured by themselves.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b, sha256
from pathlib import Path
from statistics import median
from typing import Any

import apsw

from benchmarks import report
from benchmarks.engine import Bare
from benchmarks.raw import TEXT
from benchmarks.results import Result
from benchmarks.stats import Pairs, paired, ratio
from killick import Message, Store, Text
from killick.model import entries as e
from killick.stores.contract import Database
from killick.stores.engine import session_ops, state
from killick.stores.engine.state import EngineState
from killick.stores.sqlite.database import SqliteDatabase
from killick.stores.sqlite.rows import SqliteTransaction
from tests.servers import Server

_MICROSECONDS = 2.0
_BYTES = 40
_NOTHING_HASHED = sha256()
_LINKED = bytes(175)
"""As many bytes as a message's link is of."""


def hash_of_nothing(_: bytes) -> bytes:
    return b""


def both_hashes(data: bytes) -> bytes:
    """The least that a link needs: the hash of the body, and the SHA-256 of as much as it is of."""
    blake2b(data, digest_size=32).digest()
    link = _NOTHING_HASHED.copy()
    link.update(_LINKED)
    return link.digest()


@contextmanager
def unlinked(body_hash: Callable[[bytes], bytes] = hash_of_nothing) -> Iterator[None]:
    """No link is made and none is saved."""
    engine: Any = state
    made, hashed, saved = engine.link_of, engine.body_hash, SqliteTransaction.save_links
    engine.link_of, engine.body_hash = lambda *_: None, body_hash
    SqliteTransaction.save_links = lambda self: self.links.clear()  # type: ignore[method-assign]
    try:
        yield
    finally:
        engine.link_of, engine.body_hash = made, hashed
        SqliteTransaction.save_links = saved  # type: ignore[method-assign]


class Appender:
    """Appends messages to one session, one transaction each, on the caller's thread."""

    def __init__(self, database: Database, session_id: str) -> None:
        self._database = database
        self._engine = EngineState()
        self._number = 0
        with database.writing() as tx:
            self._engine.begin(tx)
            row = session_ops.create_session(
                self._engine,
                session_id=session_id,
                tenant="",
                created=e.SessionCreated(),
                at_us=1,
            )
        assert row is not None
        self._key = row.key

    def append(self, count: int, together: int) -> float:
        """Return the processor seconds of one append, `together` of them in a commit."""
        began = time.process_time()
        for _ in range(count):
            with self._database.writing() as tx:
                self._engine.begin(tx)
                for _ in range(together):
                    self._write()
            self._engine.committed()
        return (time.process_time() - began) / count / together

    def _write(self) -> None:
        self._number += 1
        id_, said = f"msg_{self._number:032x}", (Text(TEXT),)
        body = e.MessageRecorded(id=id_, turn_id="t", role="assistant", parts=said)
        self._engine.write(self._engine.state(self._key), body, self._number)


def cost(database: Database, count: int, together: int, blocks: int) -> Pairs:
    with_ = Appender(database, f"with {together}")
    without = Appender(database, f"without {together}")

    def bare() -> float:
        with unlinked():
            return without.append(count, together)

    with_.append(count, together)
    bare()
    return paired(lambda: with_.append(count, together), bare, blocks)


def hashes_alone(database: Database, count: int, blocks: int) -> Pairs:
    """One row in each commit, with and without the two hashes made; neither is saved."""
    hashing, bare = Appender(database, "hashing"), Appender(database, "bare")

    def append(appender: Appender, body_hash: Callable[[bytes], bytes]) -> float:
        with unlinked(body_hash):
            return appender.append(count, 1)

    for appender in (hashing, bare):
        append(appender, both_hashes)
    return paired(
        lambda: append(hashing, both_hashes), lambda: append(bare, hash_of_nothing), blocks
    )


def added(what: str, pairs: Pairs, goal: float | None = _MICROSECONDS) -> Result:
    more = [(ours - raw) * 1e6 for ours, raw in zip(pairs.ours, pairs.raw, strict=True)]
    between = ratio(more)
    return Result(
        what=what,
        figure=f"{between.median:+.2f} µs ({between.low:+.2f} to {between.high:+.2f})",
        goal="" if goal is None else f"≤ {goal:g} µs",
        holds=None if goal is None else between.median <= goal,
        absolute=f"{median(pairs.ours) * 1e6:.1f} µs beside {median(pairs.raw) * 1e6:.1f} µs",
    )


def size_of(where: str, size: float) -> Result:
    goal, holds = f"≤ {_BYTES}", size <= _BYTES
    return Result(
        what=f"{where}, bytes for each entry", figure=f"{size:.1f}", goal=goal, holds=holds
    )


def costs(where: str, database: Database, count: int, blocks: int) -> list[Result]:
    shared = cost(database, max(2, count // 20), 64, blocks)
    alone = cost(database, count, 1, blocks)
    return [
        added(f"{where}, 64 in a commit", shared),
        added(f"{where}, alone in its commit", alone),
    ]


def on_sqlite(folder: Path, count: int, blocks: int) -> list[Result]:
    database = SqliteDatabase(folder / "links.db", durability="normal")
    results = costs("SQLite", database, count, blocks)
    database.close()
    page = _floor(folder, count, blocks)
    size = _bytes_on_sqlite(folder / "size.db", count * 10)
    floor = "floor of the line before: bare SQLite, one more page in a commit"
    return [*results, added(floor, page, None), size_of("SQLite", size)]


def _floor(folder: Path, count: int, blocks: int) -> Pairs:
    """One row in each commit, with and without the row beside it that has the newest link."""
    two, one = (Bare(folder / f"{beside}.db", 1, beside=beside) for beside in (True, False))
    for bare in (two, one):
        bare.append(10 * count)
    pairs = paired(lambda: two.append(count), lambda: one.append(count), blocks)
    for bare in (two, one):
        bare.close()
    return pairs


def _bytes_on_sqlite(path: Path, count: int) -> float:
    """Of entries of many sizes: of one size alone, few or many may fit on a page."""
    chance = random.Random(21)
    said = [Text(TEXT[: chance.randrange(1, len(TEXT))]) for _ in range(count)]
    with Store(path, indexing=False) as store, store.create_session().turn("Go.") as turn:
        turn.record_all([Message("assistant", [text]) for text in said])
    connection = apsw.Connection(str(path))

    def size() -> int:
        connection.execute("VACUUM")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return path.stat().st_size

    linked = size()
    connection.execute("UPDATE entries SET link = NULL")
    bare = size()
    connection.close()
    return (linked - bare) / count


def on_postgres(count: int, blocks: int) -> list[Result]:
    from killick.stores.postgres import PostgresDatabase

    server = Server("18", fsync="off").create()
    try:
        database = PostgresDatabase(server.url())
        results = costs("PostgreSQL", database, count, blocks)
        hashes = hashes_alone(database, count, blocks)
        floor = "floor of the line before: the same, with both hashes made and nothing saved"
        results.append(added(floor, hashes, None))
        database.close()
        size = "SELECT sum(pg_column_size(e.*)) FROM killick.entries AS e"
        entries = int(
            server.execute("SELECT count(*) FROM killick.entries WHERE link IS NOT NULL")[0][0]
        )
        linked = int(server.execute(size)[0][0])
        server.execute("UPDATE killick.entries SET link = NULL")
        bare = int(server.execute(size)[0][0])
    finally:
        server.remove()
    return [*results, size_of("PostgreSQL", (linked - bare) / entries)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.links", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: the figures mean little")
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--appends", type=int, default=200)
    report.add_out(parser)
    parser.add_argument("--write-docs", action="store_true", help="renew docs/performance.md")
    options = parser.parse_args()
    blocks = 6 if options.quick else options.blocks
    with tempfile.TemporaryDirectory(prefix="killick-bench-") as folder:
        where = report.machine(Path(folder))
        results = on_sqlite(Path(folder), options.appends, blocks)
        results += on_postgres(options.appends, blocks)
    print(report.table(results))
    report.keep(options.out, "links", results)
    if options.write_docs:
        commit, date = report.commit_and_date()
        about = f"Commit {commit}, {date}; PostgreSQL 18, {where}; {blocks} paired blocks."
        found = f"{about}\n\n{report.table(results)}"
        report.replace_between(report.DOCUMENT, "links", found)


if __name__ == "__main__":
    main()
