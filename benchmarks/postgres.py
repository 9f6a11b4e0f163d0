"""`python -m benchmarks.postgres`: the store on PostgreSQL, against raw psycopg and by itself.

The server is PostgreSQL 18 with fsync on, on this machine: its processor time and its disk are
those of the clients too.
"""

import argparse
import os
import resource
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec
import psycopg

from benchmarks import report
from benchmarks.appends import beside, message, paired_async
from benchmarks.raw import TEXT
from benchmarks.results import Result, Setting, at_least, at_most
from benchmarks.stats import Pairs, paired, per_second, timed
from benchmarks.writers import _Crew
from killick import AsyncStore, Store
from killick.model import entries as e
from tests.servers import Server

DOCUMENT = Path(__file__).parent.parent / "docs" / "scale.md"
_APPENDS = 20
_WARM = 200
_DELTAS_GOAL = 15.0
COSTS: dict[str, float] = {}
"""Of one append and one delta among many, in seconds and bytes: what the arithmetic stands on."""

_TICKS = os.sysconf("SC_CLK_TCK")


class RawPostgres:
    """One transaction for each row: the row of the session, and the entry. Nothing around it."""

    def __init__(self, server: Server) -> None:
        self._connection = psycopg.connect(server.conninfo())
        self._connection.execute("CREATE TABLE heads (session bigint PRIMARY KEY, head bigint)")
        self._connection.execute("INSERT INTO heads VALUES (1, 0)")
        self._connection.execute(
            "CREATE TABLE rows (session bigint, seq bigint, body bytea, PRIMARY KEY (session, seq))"
        )
        self._connection.commit()
        self._body, self._seq = TEXT.encode(), 0
        self._append(_WARM)

    def block(self, appends: int) -> float:
        return timed(lambda: self._append(appends), appends)

    def _append(self, appends: int) -> None:
        for _ in range(appends):
            self._seq += 1
            with self._connection.transaction():
                self._connection.execute(
                    "UPDATE heads SET head = %s WHERE session = 1", (self._seq,)
                )
                self._connection.execute(
                    "INSERT INTO rows VALUES (1, %s, %s)", (self._seq, self._body)
                )

    def close(self) -> None:
        self._connection.close()


class Spent(msgspec.Struct):
    """Processor seconds of this process and of the server, and bytes of log, since it was made."""

    server: Server
    ours: float = 0.0
    theirs: float = 0.0
    wal: int = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        ours, theirs, wal = _own(), _of_server(self.server), _wal(self.server)
        yield
        self.ours += _own() - ours
        self.theirs += _of_server(self.server) - theirs
        self.wal += _wal(self.server) - wal


def _own() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _of_server(server: Server) -> float:
    """Of all processes of the server, those that have ended too."""
    assert server._process is not None
    parent, total = server._process.pid, 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if parent in (int(fields[1]), int(folder.name)):
                total += int(fields[11]) + int(fields[12])
            if parent == int(folder.name):
                total += int(fields[13]) + int(fields[14])
    return total / _TICKS


def _wal(server: Server) -> int:
    return int(server.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")[0][0])


# -- appends ---------------------------------------------------------------------------------------


def one_append(server: Server, setting: Setting) -> list[Result]:
    """`turn.record` of a message of 600 bytes, one after another."""
    raw, said, spent = RawPostgres(server), message(), Spent(server)
    count = setting.some(_APPENDS)
    with Store(server.url()) as store, store.create_session().turn("Go.") as turn:

        def ours(appends: int) -> None:
            for _ in range(appends):
                turn.record(said)

        ours(_WARM)
        pairs = paired(
            lambda: timed(lambda: ours(count), count), lambda: raw.block(count), setting.blocks
        )
        many = setting.some(2_000)
        with spent.counting():
            ours(many)
    raw.close()
    what = "one durable append against a raw transaction of two statements"
    return [
        at_most(what, pairs.slowdown(), 1.4, beside(pairs)),
        Result(
            what="an append costs, the search index kept up",
            figure=f"{spent.ours / many * 1e6:,.0f} µs of the client's processor, "
            f"{spent.theirs / many * 1e6:,.0f} µs of the server's",
            absolute=f"{spent.wal / many:,.0f} bytes of log",
        ),
    ]


def many_writers(server: Server, setting: Setting) -> list[Result]:
    """64 asyncio writers in one process, each with a session, against one raw writer."""
    spent, appended = Spent(server), 0

    async def main() -> Pairs:
        nonlocal appended
        server.execute("DROP TABLE heads, rows")
        raw, crew = RawPostgres(server), _Crew(64)
        each, count = max(2, setting.some(1_280) // 64), setting.some(40)
        async with (
            AsyncStore(server.url(), indexing=False) as store,
            anyio.create_task_group() as group,
        ):
            for _ in range(64):
                group.start_soon(crew.write, await store.create_session())
            await crew.ready.wait()
            await crew.block(each)
            pairs = await paired_async(
                lambda: crew.block(each), lambda: raw.block(count), setting.blocks
            )
            with spent.counting():
                await crew.block(each * 4)
            appended = each * 4 * 64
            crew.dismiss()
        raw.close()
        return pairs

    pairs = anyio.run(main)
    COSTS["append client"], COSTS["append server"] = spent.ours / appended, spent.theirs / appended
    COSTS["append log"] = spent.wal / appended
    absolute = f"{per_second(pairs.ours)}, one raw writer {per_second(pairs.raw)}"
    what = "appends/s of 64 writers in one process against one raw writer"
    return [
        at_least(what, pairs.speedup(), 8.0, absolute),
        Result(
            what="an append of 64 writers costs",
            figure=f"{spent.ours / appended * 1e6:,.0f} µs of the client's processor, "
            f"{spent.theirs / appended * 1e6:,.0f} µs of the server's",
            absolute=f"{spent.wal / appended:,.0f} bytes of log",
        ),
    ]


# -- deltas, followers, bytes ----------------------------------------------------------------------


def deltas(server: Server, setting: Setting) -> list[Result]:
    """A thousand streams in one process, 20 deltas a second each, for a minute."""
    spent, streams = Spent(server), setting.some(1_000)
    seconds = setting.some(600) / 10
    said = 0

    async def speak(store: AsyncStore, until: float) -> None:
        nonlocal said
        session = await store.create_session()
        async with session.turn("Go.") as turn, turn.stream() as reply:
            while time.monotonic() < until:
                reply.text("twenty characters of")
                said += 1
                await anyio.sleep(0.05)

    async def main() -> None:
        async with AsyncStore(server.url(), indexing=False) as store:
            until = time.monotonic() + seconds
            async with anyio.create_task_group() as group:
                for _ in range(streams):
                    group.start_soon(speak, store, until)

    with spent.counting():
        anyio.run(main)
    COSTS["delta client"], COSTS["delta server"] = spent.ours / said, spent.theirs / said
    COSTS["delta log"] = spent.wal / said
    ours, theirs = spent.ours / said * 1e6, spent.theirs / said * 1e6
    return [
        Result(
            what=f"{streams:,} streams, 20 deltas/s each",
            figure=f"{ours:,.1f} CPU s of the client a million deltas, {theirs:,.1f} of the server",
            goal=f"≤ {_DELTAS_GOAL:g} each",
            holds=max(ours, theirs) <= _DELTAS_GOAL,
            absolute=f"{said:,} deltas in {seconds:.0f} s, "
            f"{spent.wal / said:,.0f} bytes of log each",
        )
    ]


def followers(server: Server, setting: Setting) -> list[Result]:
    """What waiting costs, and how long a commit of another opening takes to be shown."""
    seconds, count = 5.0 * min(1.0, setting.scale * 2), setting.some(60)
    with Store(server.url()) as writer, Store(server.url()) as reader:
        session = writer.create_session()
        shown: dict[str, float] = {}
        ready = threading.Event()

        def follow() -> None:
            for item in reader.session(session.id).follow():
                ready.set()
                if isinstance(item, e.Entry) and isinstance(item.body, e.Note):
                    shown[item.body.name] = time.perf_counter()
                    if item.body.name == "end":
                        return

        thread = threading.Thread(target=follow)
        thread.start()
        ready.wait()
        time.sleep(1)
        spent = Spent(server)
        with spent.counting():
            time.sleep(seconds)
        late = []
        for number in range(count):
            session.note(str(number), None)
            began = time.perf_counter()
            while str(number) not in shown:
                time.sleep(0.0005)
            late.append(shown[str(number)] - began)
        session.note("end", None)
        thread.join()
    late.sort()
    return [
        Result(
            what="a process that follows, while nothing happens",
            figure=f"{spent.ours / seconds * 1e3:,.1f} ms of its processor a second, "
            f"{spent.theirs / seconds * 1e3:,.1f} ms of the server's",
        ),
        Result(
            what="from a commit to its follower in another opening",
            figure=f"median {statistics.median(late) * 1e3:,.0f} ms",
            goal="< 250 ms",
            holds=late[int(len(late) * 0.95)] < 0.25,
            absolute=f"95 % within {late[int(len(late) * 0.95)] * 1e3:,.0f} ms, "
            f"the slowest {late[-1] * 1e3:,.0f} ms",
        ),
    ]


def size(server: Server, setting: Setting) -> list[Result]:
    """Bytes on the disk for each stored message of 600 bytes, before and after the index."""
    messages, sessions = setting.some(20_000), 20
    server.execute("DROP SCHEMA killick CASCADE")

    async def fill(store: AsyncStore) -> None:
        said = message()
        session = await store.create_session()
        async with session.turn("Go.") as turn:
            for _ in range(messages // sessions):
                await turn.record(said)

    async def main() -> None:
        async with (
            AsyncStore(server.url(), indexing=False) as store,
            anyio.create_task_group() as group,
        ):
            for _ in range(sessions):
                group.start_soon(fill, store)

    Store(server.url()).close()
    empty = _bytes(server)
    anyio.run(main)
    server.execute("VACUUM")
    plain = _bytes(server) - empty
    with Store(server.url()) as store:
        store.search("nowhere", wait_seconds=600)
    server.execute("VACUUM")
    indexed = _bytes(server) - empty
    COSTS["message"] = indexed / messages
    return [
        Result(
            what="a stored message with 600 bytes of text",
            figure=f"{plain / messages:,.0f} bytes, "
            f"{indexed / messages:,.0f} with the search index",
            absolute=f"{messages:,} messages in {sessions} sessions",
        )
    ]


def _bytes(server: Server) -> int:
    found = server.execute(
        "SELECT coalesce(sum(pg_relation_size(c.oid)), 0) FROM pg_class AS c "
        "JOIN pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname IN ('killick', 'pg_toast') AND c.relkind IN ('r', 'i', 't')"
    )
    return int(found[0][0])


# -- arithmetic ------------------------------------------------------------------------------------


def on_paper(sessions: int) -> Result:
    """So many turns at work at once: each says 20 deltas a second for a fifth of the time, and
    appends an entry every two seconds."""
    said, appended = 4 * sessions, sessions / 2
    server = said * COSTS["delta server"] + appended * COSTS["append server"]
    client = said * COSTS["delta client"] + appended * COSTS["append client"]
    log = said * COSTS["delta log"] + appended * COSTS["append log"]
    disk = appended * COSTS["message"] * 86_400
    return Result(
        what=f"on paper: {sessions:,} turns at work at once",
        figure=f"{server:,.0f} cores of servers, {client:,.0f} of clients",
        absolute=f"{log / 1e6:,.0f} MB of log a second, {disk / 1e9:,.0f} GB of messages a day",
    )


MEASUREMENTS = (followers, one_append, many_writers, deltas, size)
"""First what is measured while nothing happens: a server works on after it was busy."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: the figures mean little")
    parser.add_argument("--blocks", type=int, default=40, help="paired blocks (default 40)")
    report.add_out(parser)
    parser.add_argument("--write-docs", action="store_true", help="renew docs/scale.md")
    options = parser.parse_args()
    blocks = 6 if options.quick else options.blocks
    server = Server("18", shared_buffers="256MB", max_wal_size="2GB")
    results: list[Result] = []
    where = report.machine(server.folder)
    try:
        server.create()
        machine = f"PostgreSQL {server.version}, {where}"
        for measure in MEASUREMENTS:
            began = time.monotonic()
            setting = Setting(server.folder, blocks, 0.1 if options.quick else 1.0)
            results += measure(server, setting)
            print(f"{measure.__name__}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    finally:
        server.remove()
    results += [on_paper(10_000), on_paper(10_000_000)]
    print(report.table(results))
    commit, date = report.commit_and_date()
    machine = f"PostgreSQL 18, {where}"
    run = report.Run(commit=commit, date=date, blocks=blocks, machine=machine, results=results)
    report.keep(options.out, "postgres", run)
    if options.write_docs:
        report.write_document(run, DOCUMENT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
