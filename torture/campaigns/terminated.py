"""Backends are terminated, as an administrator does, at every boundary of a statement.

A seed says how: directly, behind pgbouncer, with the server's last words in place of an answer, or
at moments that chance gives. Where a process has a lock, the connection that has it is ended too,
and another process keeps asking for the session meanwhile.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import psycopg

from killick import SessionNotFound, Store, StoreError
from killick.stores.postgres import PostgresDatabase
from killick.stores.postgres.connection import Connection
from tests.crash import workload
from tests.postgres.proxy import Proxy
from tests.postgres_fixtures import shared
from tests.servers import PGBOUNCER, Server, pooler
from torture.campaign import Campaign, Round, Sizes
from torture.campaigns.on_postgres import VERSION, lacks, places

_STRIDE: Final = 16
"""A round stops at every sixteenth boundary; sixteen rounds of one kind stop at all."""

_KINDS: Final = 4
_STORMS: Final = 10
_ASKING_SECONDS: Final = 0.02
_GONE_MS: Final = 2_000
_NEVER: Final = 10**9

_OURS: Final = "killick-writer"
"""The thread whose statements are counted; those of others come when they come."""

_WORKING: Final = "SELECT pid FROM pg_stat_activity WHERE application_name = 'killick'"
_LOCKING: Final = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
_END: Final = "SELECT pg_terminate_backend(pid, %s) FROM unnest(%s::int[]) AS pid"


class Administrator:
    """Ends the backend that works on the n-th boundary of a statement of the writer."""

    def __init__(self, server: Server, chance: random.Random) -> None:
        self._connection = psycopg.connect(server.conninfo(), autocommit=True)
        self._chance = chance
        self._mutex = threading.Lock()
        self._at = _NEVER
        self.passed = 0

    def arm(self, boundary: int) -> None:
        self.passed, self._at = 0, boundary

    def end(self, pids: list[int]) -> None:
        """End these backends; sometimes return before they are gone: their last words come first,
        and the end of the connection later."""
        with self._mutex:
            milliseconds = self._chance.choice((0, _GONE_MS))
            self._connection.execute(_END, (milliseconds, pids))

    def find(self, sql: str) -> list[int]:
        with self._mutex:
            return [pid for (pid,) in self._connection.execute(sql.encode()).fetchall()]

    def pass_one(self, connection: Connection) -> None:
        self.passed += 1
        if self.passed == self._at:
            self._at = _NEVER
            own = connection.server_pid
            # A pooler has given it another one for each transaction: all of them are ended.
            pids = self.find(_WORKING) if own is None else [own]
            self.end(pids + (self.find(_LOCKING) if self._chance.random() < 0.5 else []))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count before a statement is handed over, and before and after a wait for the server."""
        before = Connection.execute, Connection.wait

        def counted(call: Any, *, after: bool) -> Any:
            def instead(connection: Connection, *args: Any, **kwargs: Any) -> Any:
                ours = threading.current_thread().name == _OURS
                if ours:
                    self.pass_one(connection)
                result = call(connection, *args, **kwargs)
                if ours and after:
                    self.pass_one(connection)
                return result

            return instead

        Connection.execute = counted(Connection.execute, after=False)  # type: ignore[method-assign]
        Connection.wait = counted(Connection.wait, after=True)  # type: ignore[method-assign]
        try:
            yield
        finally:
            Connection.execute, Connection.wait = before  # type: ignore[method-assign]
            self._connection.close()


class LastWords(Proxy):
    """Carries everything out; in place of the n-th answer the server says that it was ended."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.passed = 0
        self._at = _NEVER

    def arm(self, boundary: int) -> None:
        self.passed, self._at = 0, boundary

    def _sprung_by(self, data: bytes) -> Any:
        self.passed += 1
        return (b"", "terminated", False) if self.passed == self._at else None


@contextmanager
def asking(url: str, name: list[str]) -> Iterator[None]:
    """Another process, as far as the server knows, opens the session again and again."""
    over = threading.Event()
    with Store(PostgresDatabase(url), indexing=False) as rival:

        def ask() -> None:
            while not over.wait(_ASKING_SECONDS):
                try:
                    rival.session(name[0])
                except (SessionNotFound, StoreError):
                    continue  # it is not there yet, or this one's backend was ended

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class Terminations:
    """One store of one round, and what is checked after each termination."""

    def __init__(self, store: Store, folder: Any, name: list[str]) -> None:
        self._store = store
        self._folder = folder
        self._name = name
        self._count = 0

    def one(self, arm: Callable[[int], None], boundary: int) -> None:
        """A turn with every kind of step in it, and another after it: no call raises."""
        self._count += 1
        name = self._name[0] = f"session-{self._count}"
        notes = str(self._folder / name)
        log = workload.Log(notes)
        arm(boundary)
        session = self._store.create_session(id=name)
        worker = workload.Worker(session, log, self._count)
        worker.every_kind()
        arm(_NEVER)
        worker.every_kind()  # it is not busy with itself
        workload.check_one(self._store, session, notes)
        assert self._store.examine_session(name) == []
        assert {turn.status for turn in session.turns()} == {"completed"}


def run(round_: Round) -> None:
    round_.places = places()
    server, kind = shared(VERSION).server, round_.seed % _KINDS
    url, name = round_.places.at(f"{round_.seed}.db"), ["none yet"]
    with ExitStack() as opened:
        administrator = Administrator(server, round_.chance)
        opened.enter_context(administrator.watching())
        counting: Administrator | LastWords = administrator
        if kind == 1 and PGBOUNCER.exists():
            url = server.url(port=opened.enter_context(pooler(server)))
        elif kind == 2:
            counting = LastWords(server.port)
            opened.callback(counting.close)
            url = server.url(port=counting.port)
        opened.enter_context(asking(server.url(), name))
        database = PostgresDatabase(url, durability="normal")
        store = opened.enter_context(Store(database, indexing=False))
        cases = Terminations(store, round_.folder, name)
        if kind == 3:
            storm(round_, cases, administrator)
            return
        cases.one(counting.arm, _NEVER)  # tenants and the like are there
        counting.arm(_NEVER)
        cases.one(lambda _: None, _NEVER)
        whole = counting.passed // 2
        first = 1 + round_.seed // _KINDS % _STRIDE
        for boundary in range(first, whole + 5, _STRIDE):
            round_.check(f"terminated at boundary {boundary}", cases.one, counting.arm, boundary)


def storm(round_: Round, cases: Terminations, administrator: Administrator) -> None:
    """Terminates backends at moments of chance, those at work and those with locks."""
    over, raging = threading.Event(), threading.Event()

    def end_some() -> None:
        while not over.wait(round_.chance.uniform(0.002, 0.1)):
            raging.wait(_ASKING_SECONDS)
            if raging.is_set():
                pids = administrator.find(_WORKING)
                administrator.end([pid for pid in pids if round_.chance.random() < 0.4])

    def rage(until: int) -> None:
        # A read is not made again, so none is in danger: only writes are.
        (raging.clear if until == _NEVER else raging.set)()

    thread = threading.Thread(target=end_some)
    thread.start()
    try:
        for _ in range(_STORMS):
            round_.check("terminated at random", cases.one, rage, 0)
    finally:
        over.set()
        thread.join()


CAMPAIGN = Campaign(
    name="terminated",
    tries="backends of PostgreSQL are terminated at every boundary of a statement, directly and "
    "behind pgbouncer, between a commit and its answer, and at random; the one with the lock too, "
    "while another process asks for the session",
    holds="no call raises; everything acknowledged is there once; no session is busy with itself; "
    "no delta is left; one ending for each turn, and no other process closes one",
    sizes=Sizes(slice=40, torture=320, long=20_000),
    run=run,
    lacks=lacks,
)
