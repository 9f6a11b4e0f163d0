"""A thousand open streams at once: what they cost, whom they hold up, and what a kill leaves."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from statistics import median, quantiles
from time import monotonic, perf_counter, process_time, sleep

import anyio

from benchmarks.raw import TEXT
from benchmarks.results import Result, Setting
from benchmarks.stats import bytes_written
from killick import AsyncStore, Store

_PIECE = TEXT[:20]
_STREAMS = 1_000
_PER_SECOND = 20
_SECONDS = 60.0
"""What a store writes for a delta may grow with the age of its streams."""

_LAG_SECONDS = 4.0
_SPAN_SECONDS = 10
_SPAN_GOAL = 12.0
_SLICES = 20
"""Streams do not all speak at the same instant: so many groups take turns."""

_CPU_GOAL = 10.0
_LAG_GOAL = 10.0
_TICK = 0.002
_SPOKEN_SECONDS = 1.0


def streams(setting: Setting) -> list[Result]:
    """Twenty deltas a second each; CPU time and written bytes of the whole process."""
    count = setting.some(_STREAMS)
    with ExitStack() as stack:
        store = stack.enter_context(Store(setting.folder / "ours.db", indexing=False))
        replies = [
            stack.enter_context(stack.enter_context(store.create_session().turn("Go.")).stream())
            for _ in range(count)
        ]
        groups = [replies[number::_SLICES] for number in range(_SLICES)]
        used, given, late = process_time(), 0, 0.0
        seconds: list[tuple[int, int]] = []  # at each: what was given, what was written
        began = perf_counter()
        for tick in range(int(setting.some(int(_SECONDS * 10)) / 10 * _PER_SECOND * _SLICES)):
            due = began + tick / (_PER_SECOND * _SLICES)
            now = perf_counter()
            if now < due:
                sleep(due - now)
            late = max(late, now - due)
            if tick % (_PER_SECOND * _SLICES) == 0:
                seconds.append((given, bytes_written()))
            for reply in groups[tick % _SLICES]:
                reply.text(_PIECE)
            given += len(groups[tick % _SLICES])
        used, took = process_time() - used, perf_counter() - began
        seconds.append((given, bytes_written()))
    spent = used / given * 1e6
    spans = _spans(seconds)
    return [
        Result(
            what=f"{count:,} open streams, {_PER_SECOND} deltas/s each",
            figure=f"{spent:.1f} CPU s a million deltas",
            goal=f"≤ {_CPU_GOAL:g}",
            holds=spent <= _CPU_GOAL,
            absolute=f"{given:,} deltas in {took:.1f} s, at most {late * 1e3:.0f} ms behind",
        ),
        Result(
            what=f"{count:,} open streams, bytes written for each byte of text, the worst "
            f"{_SPAN_SECONDS} seconds",
            figure=f"{max(spans):.1f}",
            goal=f"≤ {_SPAN_GOAL:g}",
            holds=max(spans) <= _SPAN_GOAL,
            absolute=f"the first {spans[0]:.1f}, the last {spans[-1]:.1f}",
        ),
    ]


def _spans(seconds: list[tuple[int, int]]) -> list[float]:
    """Bytes written for each byte of text in any ten seconds; of all where there are fewer."""
    span = min(_SPAN_SECONDS, len(seconds) - 1)
    return [
        (wrote - before) / ((given - earlier) * len(_PIECE))
        for (earlier, before), (given, wrote) in zip(seconds, seconds[span:], strict=False)
    ]


def lag(setting: Setting) -> list[Result]:
    """How late an event loop is with streams in it, above the same program without Killick."""
    count = setting.some(_STREAMS)
    seconds = setting.some(int(_LAG_SECONDS * 10)) / 10
    ours = anyio.run(_lag_with_streams, setting.folder / "ours.db", count, seconds)
    alone = anyio.run(_lag_alone, count, seconds)
    above = (ours - alone) * 1e3
    return [
        Result(
            what=f"lag of an event loop with {count:,} streams, 99.9th percentile, above none",
            figure=f"{above:.1f} ms",
            goal=f"≤ {_LAG_GOAL:g} ms",
            holds=above <= _LAG_GOAL,
            absolute=f"{ours * 1e3:.1f} ms with, {alone * 1e3:.1f} ms without",
        )
    ]


async def _lag_with_streams(path: Path, count: int, seconds: float) -> float:
    async with AsyncStore(path, indexing=False) as store, AsyncExitStack() as stack:
        replies = []
        for _ in range(count):
            session = await store.create_session()
            turn = await stack.enter_async_context(session.turn("Go."))
            replies.append(await stack.enter_async_context(turn.stream()))
        return await _lag([reply.text for reply in replies], seconds)


async def _lag_alone(count: int, seconds: float) -> float:
    kept: list[list[str]] = [[] for _ in range(count)]
    return await _lag([one.append for one in kept], seconds)


async def _lag(speak: list[Callable[[str], None]], seconds: float) -> float:
    """The 99.9th percentile of how late a ticker wakes while every stream speaks."""
    late: list[float] = []
    async with anyio.create_task_group() as group:
        for number in range(_SLICES):
            group.start_soon(_speak, speak[number::_SLICES], number / _SLICES, seconds)
        until = perf_counter() + seconds
        while (before := perf_counter()) < until:
            await anyio.sleep(_TICK)
            late.append(perf_counter() - before - _TICK)
    return quantiles(late, n=1_000)[998]


async def _speak(speak: list[Callable[[str], None]], phase: float, seconds: float) -> None:
    began = perf_counter() + phase / _PER_SECOND
    for number in range(int(seconds * _PER_SECOND)):
        await anyio.sleep(max(0.0, began + number / _PER_SECOND - perf_counter()))
        for one in speak:
            one(_PIECE)


def recovery(setting: Setting) -> list[Result]:
    """A process with open streams is killed; how long until their sessions can be used again."""
    path = setting.folder / "ours.db"
    count = setting.some(_STREAMS)
    command = [sys.executable, "-m", "benchmarks.streams", str(path), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        ids = [child.stdout.readline().strip() for _ in range(count)]
        assert child.stdout.readline() == "speaking\n"
        sleep(_SPOKEN_SECONDS)
        os.kill(child.pid, signal.SIGKILL)
        killed = monotonic()
    times, ages = [], []
    began = perf_counter()
    with Store(path, indexing=False) as store:
        opened = perf_counter() - began
        for session_id in ids:
            before = perf_counter()
            session = store.session(session_id)
            times.append(perf_counter() - before)
            assert session.turns()[-1].status == "interrupted"
            ages.append(killed - float(session.messages(last=1)[0].text.split()[-1]))
    return [
        Result(
            what=f"opening a session after kill -9 with {count:,} open streams",
            figure=f"{median(times) * 1e3:.1f} ms",
            goal="< 1,000 ms",
            holds=max(times) < 1,
            absolute=f"slowest {max(times) * 1e3:.0f} ms, the store itself {opened * 1e3:.0f} ms",
        ),
        Result(
            what=f"age at kill -9 of the newest text that is kept of {count:,} open streams",
            figure=f"{median(ages) * 1e3:.0f} ms",
            absolute=f"at most {max(ages) * 1e3:.0f} ms; each speaks {_PER_SECOND} times a second",
        ),
    ]


def _speak_until_killed(path: Path, count: int) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(Store(path, indexing=False))
        sessions = [store.create_session() for _ in range(count)]
        replies = [
            stack.enter_context(stack.enter_context(session.turn("Go.")).stream())
            for session in sessions
        ]
        print(*(session.id for session in sessions), sep="\n")
        for reply in replies:
            reply.text(TEXT)
        sleep(0.1)  # two windows, so that there is something on the disk to recover
        print("speaking", flush=True)
        while True:
            for reply in replies:
                reply.text(f" {monotonic():.6f}")  # as long as a piece, nearly
            sleep(1 / _PER_SECOND)


if __name__ == "__main__":
    _speak_until_killed(Path(sys.argv[1]), int(sys.argv[2]))
