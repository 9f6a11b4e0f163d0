"""A session of a million messages beside short ones."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio

from benchmarks.appends import fill
from benchmarks.raw import TEXT
from benchmarks.results import TIMES, Result, Setting, at_most
from benchmarks.stats import bytes_written, paired, timed
from killick import AsyncStore, Message, Session, Store, Text

_MILLION = 1_000_000
_THOUSAND = 1_000
_LAST = 50
_COUNTED = 200
_TRIES = 5
_MB_WHOLE = 1_100
_MB_BY_PAGES = 20
_FRAME = 24 + 4_096
"""A page in a write-ahead log, with its header."""


def million(setting: Setting) -> list[Result]:
    """Takes some minutes, so it runs only when it is named."""
    count = setting.some(_MILLION)
    path = setting.folder / "long.db"

    async def prepare() -> list[str]:
        async with AsyncStore(path, durability="normal", indexing=False) as store:
            return [await fill(store, count), await fill(store, _THOUSAND), await fill(store, 1)]

    ids = anyio.run(prepare)
    with Store(path, indexing=False) as store:
        long, short, tail = (store.session(session_id) for session_id in ids)
        return [
            *_loading(long, count),
            _last(long, short, count, setting.blocks),
            _requests(long, tail, count, setting.blocks),
            _pages(long, short, count),
        ]


def _pages(long: Session, short: Session, count: int) -> Result:
    """Pages written to the log by the same appends to both. A count, so it needs no pairs."""
    few, many = (_log_pages(session) for session in (short, long))
    return Result(
        what=f"pages written by an append number {count:,} against number {_THOUSAND:,}",
        figure=f"{many / few:.2f} {TIMES}",
        goal=f"≤ 1.05 {TIMES}",
        holds=many <= 1.05 * few,
        absolute=f"{many:.0f} and {few:.0f} pages for {_COUNTED} appends",
    )


def _log_pages(session: Session) -> float:
    """The median: now and then a log is copied back into the database, which writes too."""
    said, counts = Message("assistant", [Text(TEXT)]), list[float]()
    with session.turn("Go on.") as turn:
        for _ in range(_TRIES):
            before = bytes_written("wchar")
            for _ in range(_COUNTED):
                turn.record(said)
            counts.append((bytes_written("wchar") - before) / _FRAME)
    return median(counts)


def _loading(long: Session, count: int) -> list[Result]:
    """By pages and whole."""
    whole_mb = _MB_WHOLE * count // _MILLION
    return [
        _held("iter_messages", lambda: sum(1 for _ in long.iter_messages()), count, _MB_BY_PAGES),
        _held("messages", lambda: len(long.messages()), count, whole_mb),
    ]


def _held(name: str, read: Callable[[], int], count: int, limit: int) -> Result:
    grown, took = _grown(read, count)
    return Result(
        what=f"memory for session.{name}() of {count:,}",
        figure=f"{grown:,.0f} MB",
        goal=f"≤ {limit:,} MB",
        holds=grown <= limit,
        absolute=f"{took:.1f} s, {took / count * 1e6:.1f} µs each",
    )


def _grown(read: Callable[[], int], count: int) -> tuple[float, float]:
    """How many MB the process grew by, and how many seconds it read."""
    Path("/proc/self/clear_refs").write_text("5")  # what it took most until now is forgotten
    before = _memory("VmRSS")
    began = perf_counter()
    assert read() == count
    took = perf_counter() - began
    return (_memory("VmHWM") - before) / 1e6, took


def _memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith(name))


def _last(long: Session, short: Session, count: int, blocks: int) -> Result:
    pairs = paired(
        lambda: timed(partial(long.messages, last=_LAST), 1),
        lambda: timed(partial(short.messages, last=_LAST), 1),
        blocks,
    )
    what = f"the last {_LAST} of {count:,} messages against those of {_THOUSAND:,}"
    return at_most(what, pairs.slowdown(), 2.0, f"{median(pairs.ours) * 1e3:.2f} ms")


def _requests(long: Session, tail: Session, count: int, blocks: int) -> Result:
    """The next request of the compacted session, and of one that only has what came after."""
    long.compact("All that was said.", through=long.head)
    for session in (long, tail):
        for number in range(_LAST // 2):
            with session.turn(f"Question {number}") as turn:
                turn.record(Message("assistant", [Text(f"Answer {number}")]))
    pairs = paired(
        lambda: timed(partial(long.context, "anthropic"), 1),
        lambda: timed(partial(tail.context, "anthropic"), 1),
        blocks,
    )
    what = f"the next request of {count:,} compacted messages against that of the tail alone"
    return at_most(what, pairs.slowdown(), 2.0, f"{median(pairs.ours) * 1e3:.2f} ms")
