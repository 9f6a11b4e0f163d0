"""A program that uses a store, and counts what that costs: statements, syncs, pages of the log,
calls of Python functions, and memory blocks that are kept.

The search index is brought up between appends, whenever the store is idle, and not counted here.
The store opens its file by path, so what it does is seen from below: a VFS that counts is made
the default one, and a hook of apsw's sets a trace on every connection. Both last as long as the
process, which is why this runs in one of its own:
`python counting.py FOLDER lone|many|crowd|paths|erase|turns`.
"""

import gc
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import apsw

from killick import AsyncStore, Message, Session, Store, Text
from killick.stores import writer
from killick.stores.engine.state import Op
from killick.stores.sqlite.database import SqliteDatabase

LOOKED_AT = (50, 1_000)
"""The first append of each window that is counted."""

WINDOW = 40
"""Appends in a window: pages split now and then, so one append alone says little."""

WRITERS, EACH = 64, 50

STREAMS, FLUSHES, FOLDED_EVERY = 256, 200, 40
"""Streams at once; how often they flush; after how many flushes they are folded."""

PATHS = 30
"""Turns that are counted step by step."""

_SYSTEM = apsw.vfs_names()[0]

counts: Counter[str] = Counter()
statements: list[tuple[apsw.Connection, str]] = []


class _CountingFile(apsw.VFSFile):
    """Counts writes and syncs of a log and of a database."""

    def __init__(self, name: Any, flags: list[int]) -> None:
        self._kind = "log" if flags[0] & apsw.SQLITE_OPEN_WAL else "database"
        super().__init__(_SYSTEM, name, flags)

    def xSync(self, flags: int) -> None:
        counts[f"{self._kind} syncs"] += 1
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        # A page of the log is written as its header of 24 bytes, then itself.
        if len(data) >= 512:
            counts[f"{self._kind} pages"] += 1
        counts["bytes"] += len(data)
        super().xWrite(data, offset)


class _CountingVfs(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("counting", _SYSTEM, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _CountingFile(name, flags)


def _trace(connection: apsw.Connection) -> None:
    def note(_: apsw.Cursor, statement: str, __: object) -> bool:
        statements.append((connection, statement))
        return True

    connection.exec_trace = note


def lone(folder: Path) -> dict[str, Any]:
    """One caller: what each of its appends costs, early and late in a session."""
    said = Message(role="assistant", parts=[Text("x" * 600)])
    windows: dict[str, Any] = {}
    with (
        Store(folder / "counted.db", indexing=False) as store,
        store.create_session().turn("Go.") as turn,
    ):
        for number in range(2, LOOKED_AT[-1] + WINDOW):
            counts.clear()
            statements.clear()
            turn.record(said)
            began = max((first for first in LOOKED_AT if first <= number), default=None)
            if began is not None and number < began + WINDOW:
                cost = {**counts, "statements": _of_the_writer()}
                windows.setdefault(str(began), []).append(cost)
    return windows


def _of_the_writer() -> list[str]:
    """The statements of the connection that commits; a watcher looks in on another one."""
    writer = next(connection for connection, text in statements if text == "COMMIT")
    return [text.split()[0] for connection, text in statements if connection is writer]


def many(folder: Path) -> dict[str, Any]:
    """Many writers, each in a session of its own: what all of their appends cost together."""

    async def write(store: AsyncStore, ready: anyio.Event, go: anyio.Event) -> None:
        session = await store.create_session()
        async with session.turn("Go.") as turn:
            ready.set()
            await go.wait()
            for _ in range(EACH):
                await turn.record(Message(role="assistant", parts=[Text("x" * 600)]))
            counts["appends"] += EACH
            if counts["appends"] == WRITERS * EACH:
                found.update(counts)

    async def main() -> None:
        go = anyio.Event()
        async with (
            AsyncStore(folder / "counted.db", indexing=False) as store,
            anyio.create_task_group() as group,
        ):
            for _ in range(WRITERS):
                ready = anyio.Event()
                group.start_soon(write, store, ready, go)
                await ready.wait()
            counts.clear()
            go.set()

    found: dict[str, Any] = {}
    anyio.run(main)
    return found


def crowd(folder: Path) -> dict[str, Any]:
    """Streams that flush together: what each flush costs, when they are young and when they are
    old, and what it costs to fold all of them once."""
    writer._FOLD_SECONDS = 3_600.0  # type: ignore[misc]  # folded here, and not by the clock
    flushes: list[dict[str, Any]] = []
    with Store(folder / "counted.db", indexing=False, window_seconds=3_600) as store:
        turns = [store.create_session().turn("Go.").begin() for _ in range(STREAMS)]
        replies = [turn.stream().begin() for turn in turns]
        thread = store._core.runtime().writer
        for number in range(FLUSHES):
            for reply in replies:
                reply.text("x" * 20)
            counts.clear()
            statements.clear()
            thread.at_once()
            thread.submit(Op(lambda engine: None)).wait()
            flushes.append({**counts, "statements": _of_the_writer()})
            if number % FOLDED_EVERY == FOLDED_EVERY - 1:
                counts.clear()
                thread.submit(Op(lambda engine: engine.tx.fold_deltas(at_once=True))).wait()
                flushes[-1]["fold"] = counts["log pages"]
    return {"flushes": flushes}


def paths(folder: Path) -> dict[str, Any]:
    """Every step of a turn, and the reads that follow it, many times over."""
    costs: dict[str, list[dict[str, Any]]] = {}

    @contextmanager
    def cost_of(step: str) -> Iterator[None]:
        counts.clear()
        statements.clear()
        kept = sys.getallocatedblocks()
        sys.setprofile(_profile)
        try:
            yield
        finally:
            sys.setprofile(None)
        kept = sys.getallocatedblocks() - kept
        texts = [text.split()[0] for _, text in statements]
        costs.setdefault(step, []).append({**counts, "statements": texts, "kept": kept})

    threading.setprofile(_profile)  # of the writer's thread, which does not exist yet
    # Nothing is flushed by the clock, so that each step is counted alone.
    with Store(folder / "counted.db", indexing=False, window_seconds=3_600) as store:
        session = store.create_session()
        for number in range(PATHS):
            one_turn(session, number, cost_of)
            gc.collect()
    return costs


def one_turn(session: Session, number: int, cost_of: Callable[[str], Any]) -> None:
    with ExitStack() as stack:
        with cost_of("entering a turn"):
            turn = stack.enter_context(session.turn("Go."))
        with cost_of("recording a message"):
            turn.record(Message(role="assistant", parts=[Text("x" * 600)]))
        with cost_of("entering a stream"):
            reply = turn.stream()
            reply.__enter__()
        reply.text("x")
        with cost_of("handing a delta over"):
            reply.text("x" * 20)
        reply.tool_call(f"call_{number}", name="shell", arguments="{}")
        with cost_of("leaving a stream"):
            reply.__exit__(None, None, None)
        with cost_of("entering a tool"):
            tool = turn.tool(f"call_{number}")
            tool.__enter__()
        with cost_of("finishing a tool"):
            tool.finish("done")
        tool.__exit__(None, None, None)
        with cost_of("leaving a turn"):
            stack.close()
    with cost_of("reading the newest message"):
        session.messages(last=1)


def erase(folder: Path) -> dict[str, Any]:
    """Erasing one session of a store that is there: bytes written, and the longest transaction."""
    with Store(folder / "counted.db", indexing=False) as store:
        counts.clear()
        statements.clear()
        receipt = store.erase_session("copy_00000007")
        return {**counts, "verified": receipt.verified, "log": _longest_commit()}


def turns(folder: Path) -> dict[str, Any]:
    """Erasing one session while another writer commits before each turn: syncs in each turn."""
    said = Message(role="assistant", parts=[Text("x" * 600)])
    syncs: list[int] = []
    having_turn = SqliteDatabase._having_turn

    @contextmanager
    def counted_turn(database: SqliteDatabase) -> Iterator[None]:
        turn.record(said)
        with having_turn(database):
            counts.clear()
            yield
            syncs.append(counts["log syncs"] + counts["database syncs"])

    path = folder / "counted.db"
    with (
        Store(path, indexing=False) as store,
        Store(path, indexing=False) as other,
        other.create_session().turn("Go.") as turn,
    ):
        SqliteDatabase._having_turn = counted_turn  # type: ignore[assignment, method-assign]
        receipt = store.erase_session("copy_00000007")
        SqliteDatabase._having_turn = having_turn  # type: ignore[method-assign]
    return {"verified": receipt.verified, "syncs": syncs}


def _longest_commit() -> int:
    """The most statements between two commits of one connection."""
    by_connection: dict[int, list[str]] = {}
    for connection, text in statements:
        by_connection.setdefault(id(connection), []).append(text)
    lengths = [0]
    for texts in by_connection.values():
        length = 0
        for text in texts:
            length = 0 if text == "COMMIT" else length + 1
            lengths.append(length)
    return max(lengths)


def _profile(_frame: object, event: str, _argument: object) -> None:
    if event == "call":
        counts["calls"] += 1


if __name__ == "__main__":
    vfs = _CountingVfs()
    apsw.connection_hooks.append(_trace)
    what = {
        "lone": lone,
        "many": many,
        "crowd": crowd,
        "paths": paths,
        "erase": erase,
        "turns": turns,
    }
    print(json.dumps(what[sys.argv[2]](Path(sys.argv[1]))))
