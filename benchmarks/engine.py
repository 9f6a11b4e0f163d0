"""The processor's time of the engine for one append, without threads, beside bare statements."""

from pathlib import Path
from time import process_time

import apsw

from benchmarks.raw import TEXT
from benchmarks.results import Result, Setting, at_most
from benchmarks.stats import Pairs, paired
from killick.model import entries as e
from killick.model.messages import Text
from killick.stores.contract import Claim
from killick.stores.engine import session_ops, turn_ops
from killick.stores.engine.state import EngineState
from killick.stores.sqlite.database import SqliteDatabase

_APPENDS = 640
_BEGUN = 1_700_000_000_000_000


class Appender:
    """Appends messages to the turns of some sessions, one each in every commit."""

    def __init__(self, database: SqliteDatabase, sessions: int, name: str = "s") -> None:
        self._database, self._engine, self._number = database, EngineState(), 0
        self._turns: list[tuple[int, Claim]] = []
        with database.writing() as tx:
            self._engine.begin(tx)
            for number in range(sessions):
                row = session_ops.create_session(
                    self._engine,
                    session_id=f"ses_{name}{number:031x}",
                    tenant="",
                    created=e.SessionCreated(),
                    at_us=_BEGUN,
                )
                assert row is not None
                start = turn_ops.TurnStart(f"turn_{number:032x}", database.holder, None)
                entered = turn_ops.start_turn(self._engine, row.key, start, _BEGUN)
                self._turns.append((row.key, entered.claim))
        self._engine.committed()

    def append(self, appends: int) -> float:
        """Return the processor's seconds for one append."""
        engine, number = self._engine, self._number
        commits = max(1, appends // len(self._turns))
        began = process_time()
        for _ in range(commits):
            with self._database.writing() as tx:
                engine.begin(tx)
                for key, claim in self._turns:
                    number += 1
                    body = e.MessageRecorded(
                        id=f"msg_{number:012x}{number:020x}",
                        turn_id=claim.turn_id,
                        role="assistant",
                        parts=(Text(TEXT),),
                    )
                    turn_ops.append(engine, key, claim, (body,), _BEGUN + number)
            engine.committed()
        self._number = number
        return (process_time() - began) / commits / len(self._turns)


class Bare:
    """The same rows, with the same indexes, and nothing of ours.

    With a row `beside` them, one of another table is changed in each commit.
    """

    def __init__(self, path: Path, sessions: int, *, beside: bool = False) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", "normal")
        self._connection.execute(
            """
            CREATE TABLE entries (session INTEGER, seq INTEGER, identity BLOB, at_us INTEGER,
                                  crc INTEGER, body BLOB, blob INTEGER, mark INTEGER, link BLOB);
            CREATE UNIQUE INDEX by_seq ON entries (session, seq);
            CREATE UNIQUE INDEX by_identity ON entries (identity);
            CREATE TABLE newest (key INTEGER PRIMARY KEY, link BLOB);
            INSERT INTO newest VALUES (1, zeroblob(32));
            """
        )
        self._sessions, self._number, self._beside = sessions, 0, beside

    def append(self, appends: int) -> float:
        execute, number, link = self._connection.execute, self._number, bytes(32)
        commits = max(1, appends // self._sessions)
        body = b"{%s}" % (TEXT + " " * 150).encode()
        sql = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        began = process_time()
        for commit in range(commits):
            execute("BEGIN IMMEDIATE")
            for session in range(self._sessions):
                number += 1
                execute(
                    sql, (session, number, b"%016d" % number, commit, 1, body, None, None, link)
                )
            if self._beside:
                execute("UPDATE newest SET link = ? WHERE key = 1", (b"%032d" % number,))
            execute("COMMIT")
        self._number = number
        return (process_time() - began) / commits / self._sessions

    def close(self) -> None:
        self._connection.close()


def engine(setting: Setting) -> list[Result]:
    """Alone in its commit, and with one each of 63 other sessions."""
    results = []
    for sessions, with_whom in ((1, "alone in its commit"), (64, "64 in a commit")):
        database = SqliteDatabase(setting.folder / f"ours{sessions}.db", durability="normal")
        ours, bare = Appender(database, sessions), Bare(setting.folder / f"{sessions}.db", sessions)
        pairs = _compare(ours, bare, setting)
        bare.close()
        database.close()
        what = f"engine's CPU for one append, {with_whom}, against bare statements"
        used = f"{pairs.cpu * 1e6:.1f} µs"
        results.append(at_most(what, pairs.slowdown(), None, used))
    return results


def _compare(ours: Appender, bare: Bare, setting: Setting) -> Pairs:
    count = setting.some(_APPENDS)
    for one in (ours, bare):
        one.append(10 * count)
    pairs = paired(lambda: ours.append(count), lambda: bare.append(count), setting.blocks)
    pairs.ours_cpu[:] = pairs.ours
    return pairs
