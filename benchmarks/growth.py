"""`python -m benchmarks.growth`: what reads cost as a store grows, beside the law that each keeps.

Stores of 1,000, 10,000 and 100,000 sessions are made once, by copying the rows of one session, and
kept. In each lie a few sessions that have what no copy has, older than all copies: those are what a
list looks for. Times are medians; `tests/growth` fixes the laws by counting steps and rows.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, Final

from benchmarks import erasing, report
from killick import Message, Session, Store, Text
from killick.model.sessions import Parent, Project
from tests.growth.stores import make_store

SIZES: Final = (1_000, 10_000, 100_000)
LENGTHS: Final = (2_000, 20_000, 200_000)
DOCS: Final = Path(__file__).parents[1] / "docs/performance.md"
BEGIN: Final = "<!-- growth: begin -->"
END: Final = "<!-- growth: end -->"
ERASED: Final = {
    "bytes written": ("flat", "bytes", 1e-6, "MB"),
    "longest turn to write": ("flat", "turn", 1, "ms"),
    "the other process's append, 99th of 100": ("flat", "p99", 1, "ms"),
    "by the clock: the file is read once, without a lock": ("linear", "wall", 1, "ms"),
    "processor time": ("linear", "cpu", 1, "ms"),
}
_ROUNDS: Final = 30
_OLD_US: Final = 1_000_000

IN_STORES: dict[str, tuple[str, Callable[[Store], Any]]] = {
    "the newest sessions": ("flat", lambda store: store.sessions(limit=20)),
    "sessions by a rare tag": ("matches", lambda store: store.sessions(tag="rare")),
    "sessions by a tag that all have": ("flat", lambda store: store.sessions(tag="common")),
    "sessions by model": ("matches", lambda store: store.sessions(model="rare-1")),
    "sessions by project": ("matches", lambda store: store.sessions(project="/rare")),
    "pinned sessions": ("matches", lambda store: store.sessions(pinned=True)),
    "interrupted sessions": ("matches", lambda store: store.sessions(interrupted=True)),
    "sessions by parent": ("matches", lambda store: store.sessions(parent="pattern")),
    "forks of a session": ("matches", lambda store: store.sessions(fork_of="rare")),
    "an id by its prefix": ("flat", lambda store: store.resolve_id("chil")),
    "sessions by a part of a title": ("linear", lambda store: store.sessions(title="rare title")),
    "usage of a session": ("matches", lambda store: store.usage(session="rare")),
    "usage of a day": (
        "flat",
        lambda store: store.usage("day", since=date(1970, 1, 1), until=date(1970, 1, 1)),
    ),
    "usage by model": ("flat", lambda store: store.usage("model")),
    "activity of 30 days": ("flat", lambda store: store.activity()),
}

IN_SESSIONS: dict[str, tuple[str, Callable[[Session], Any]]] = {
    "the last 20 messages": ("flat", lambda session: session.messages(last=20)),
    "what has changed, a few entries": ("flat", lambda s: s.changes(after=s.head - 4)),
    "approvals that wait": ("flat", lambda session: session.approvals()),
    "a context of 50 messages": ("flat", lambda s: s.context("neutral", max_messages=50)),
}


def main() -> None:
    options = _options()
    folder = Path(options.keep)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = SIZES[:2] if options.quick else SIZES
    lengths = LENGTHS[:2] if options.quick else LENGTHS
    rows = [*_in_stores(folder, sizes), *_in_sessions(folder, lengths)]
    text = f"{_table(rows, sizes, lengths)}\n\n{_erased(folder, sizes)}"
    print(text)
    if options.write_docs:
        where = report.machine(folder.resolve())
        document = DOCS.read_text(encoding="utf-8")
        before, rest = document.split(BEGIN)
        made = f"{before}{BEGIN}\n{where}\n\n{text}\n{END}{rest.split(END)[1]}"
        DOCS.write_text(made, encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth")
    parser.add_argument("--quick", action="store_true", help="leave the largest stores out")
    parser.add_argument("--write-docs", action="store_true", help="renew the table of laws")
    parser.add_argument("--keep", default="benchmarks/out/growth", help="where the stores are kept")
    return parser.parse_known_args()[0]  # the rest of `make bench ARGS=…` is for the others


def _in_stores(folder: Path, sizes: tuple[int, ...]) -> list[tuple[str, str, list[float]]]:
    stores = [Store(_store(folder, size), indexing=False) for size in sizes]
    try:
        return [
            (name, law, [_median(read, store) for store in stores])
            for name, (law, read) in IN_STORES.items()
        ]
    finally:
        for store in stores:
            store.close()


def _store(folder: Path, size: int) -> Path:
    path = folder / f"sessions-{size}.db"
    if path.exists():
        return path
    partial = folder / f"{path.name}.part"
    for file in folder.glob(f"{partial.name}*"):
        file.unlink()
    make_store(partial, size)
    with Store(partial, indexing=False, clock=lambda: _OLD_US) as store:
        project = Project("/rare")
        rare = store.create_session(id="rare", tags=["rare"], project=project, title="Rare title")
        rare.pin()
        with suppress(KeyboardInterrupt), rare.turn("go") as turn:
            with turn.stream(model="rare-1") as reply:
                reply.text("a")
            raise KeyboardInterrupt
        rare.fork(id="forked")
        store.create_session(id="child", parent=Parent("pattern", "turn"))
        store.rebuild_sums()
    partial.rename(path)
    return path


def _in_sessions(folder: Path, lengths: tuple[int, ...]) -> list[tuple[str, str, list[float]]]:
    stores = [Store(_long_session(folder, length), indexing=False) for length in lengths]
    try:
        sessions = [store.session("long") for store in stores]
        rows = [
            (name, law, [_median(read, session) for session in sessions])
            for name, (law, read) in IN_SESSIONS.items()
        ]
        for name, what in (
            ("rewound", "the last 20 messages, all but 50 rewound"),
            ("again", "the last 20 messages, after 10, 100 and 1,000 rewinds to one place"),
        ):
            each = [store.session(name) for store in stores]
            last = [_median(lambda session: session.messages(last=20), one) for one in each]
            rows.append((what, "flat", last))
        return rows
    finally:
        for store in stores:
            store.close()


def _long_session(folder: Path, length: int) -> Path:
    path = folder / f"entries-{length}.db"
    if path.exists():
        return path
    partial = folder / f"{path.name}.part"
    for file in folder.glob(f"{partial.name}*"):
        file.unlink()
    with Store(partial, indexing=False, durability="normal") as store:
        for name in ("long", "rewound"):
            session = store.create_session(id=name)
            with session.turn("begin") as turn:
                turn.record_all([_message(n) for n in range(50)])
            kept = session.head
            while session.head < length:
                with session.turn("go on") as turn:
                    turn.record_all([_message(n) for n in range(70)])
            if name == "rewound":
                session.rewind(through=kept)
        again = store.create_session(id="again")
        with again.turn("begin") as turn:
            turn.record_all([_message(n) for n in range(50)])
        kept = again.head
        for _ in range(length // 200):
            with again.turn("again"):
                pass
            again.rewind(through=kept)
    partial.rename(path)
    return path


def _message(number: int) -> Message:
    return Message(role="assistant", parts=[Text(f"answer {number}")])


def _median(read: Callable[[Any], Any], given: Any) -> float:
    """Return the median of some rounds; of few where one takes long."""
    read(given)  # what is read once is in the cache of the file system, for all of them
    took: list[float] = []
    while len(took) < _ROUNDS and sum(took) < 3.0:
        began = time.perf_counter()
        read(given)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def _table(
    rows: list[tuple[str, str, list[float]]], sizes: tuple[int, ...], lengths: tuple[int, ...]
) -> str:
    """Return the table; its last lines are about the entries of one session."""
    columns = [f"{s:,} sessions, or {n:,} entries" for s, n in zip(sizes, lengths, strict=True)]
    lines = [f"| what | law | {' | '.join(columns)} |", f"|---|---|{'---|' * len(columns)}"]
    for name, law, seconds in rows:
        times = " | ".join(f"{each * 1000:.2f} ms" for each in seconds)
        lines.append(f"| {name} | {law} | {times} |")
    return "\n".join(lines)


def _erased(folder: Path, sizes: tuple[int, ...]) -> str:
    """Return the table of erasures, while another process appends."""
    paths = [erasing.make(folder, size) for size in sizes]
    costs = [erasing.erase_some(path) for path in paths]
    firsts = [json.loads(path.with_name(f"{path.name}.first").read_text("utf-8")) for path in paths]
    retained = erasing.retain(paths[-1])
    with tempfile.TemporaryDirectory(dir=folder) as copies:  # the file of a store does not shrink
        blobs = erasing.erase_blobs(Path(shutil.copy(paths[0], copies)))
    heads = [
        f"{size:,} sessions ({path.stat().st_size / 1e6:,.0f} MB)"
        for size, path in zip(sizes, paths, strict=True)
    ]
    count, size = erasing.BLOBS
    large = f"1,000 sessions, one with {count} blobs of {size / 1e6:.0f} MB"
    many = f"{retained['sessions']:.0f} of the last by a rule of retention"
    once = " | ".join(f"{first['bytes'] / 1e6:.1f} MB" for first in firsts)
    lines = [
        f"| erasing a session of 22 entries | law | {' | '.join(heads)} | {many} | {large} |",
        f"|---|---|{'---|' * (len(sizes) + 2)}",
        f"| bytes written by the first in a store | linear, once | {once} | | |",
    ]
    for name, (law, key, factor, unit) in ERASED.items():
        each = (*costs, retained, blobs)
        figures = " | ".join(f"{cost[key] * factor:,.1f} {unit}" for cost in each)
        lines.append(f"| {name} | {law} | {figures} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
