"""Paired ratios and what can be said about their median."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import msgspec

from benchmarks.turns import turns

Block = Callable[[], float]
"""Does its share of the work and returns seconds for one unit of it."""


class Ratio(msgspec.Struct, frozen=True):
    """The median of paired ratios, with a 95 % interval for it; the processor's seconds of ours."""

    median: float
    low: float
    high: float
    blocks: int
    cpu: float | None = None


class Pairs(msgspec.Struct, frozen=True):
    """Seconds for one unit of work, block by block, of both sides; of ours, also the processor's.

    The processor's time is that of all threads.
    """

    ours: list[float]
    raw: list[float]
    ours_cpu: list[float]

    @property
    def cpu(self) -> float:
        """The processor's seconds for one unit of ours, at the median."""
        return median(self.ours_cpu)

    def slowdown(self) -> Ratio:
        """How many times as long ours takes."""
        return self._ratio([ours / raw for ours, raw in zip(self.ours, self.raw, strict=True)])

    def speedup(self) -> Ratio:
        """How many times as much ours gets done."""
        return self._ratio([raw / ours for ours, raw in zip(self.ours, self.raw, strict=True)])

    def _ratio(self, values: list[float]) -> Ratio:
        return msgspec.structs.replace(ratio(values), cpu=self.cpu)


def ratio(values: Sequence[float]) -> Ratio:
    ordered = sorted(values)
    rank = _rank(len(ordered))
    return Ratio(median(ordered), ordered[rank], ordered[-1 - rank], len(ordered))


def _rank(count: int) -> int:
    """The order statistic, from below, with which the interval for the median begins.

    The median lies outside of [x(rank), x(-1-rank)] with the chance of a fair coin showing heads
    at most `rank` times, twice; that sum must stay under 5 %.
    """
    total, rank = 0.0, -1
    while rank + 1 < (count - 1) // 2:
        total += math.comb(count, rank + 1) / 2**count
        if 2 * total > 0.05:
            break
        rank += 1
    return max(rank, 0)


def paired(ours: Block, raw: Block, blocks: int) -> Pairs:
    """Both in turn, the other one first in every second pair."""
    pairs = Pairs([], [], [])
    for number in range(blocks):
        with turns:
            if number % 2:
                pairs.raw.append(raw())
            clock = Clock()
            pairs.ours.append(ours())
            pairs.ours_cpu.append(clock.cpu(pairs.ours[-1]))
            if not number % 2:
                pairs.raw.append(raw())
    return pairs


class Clock:
    """Both clocks at the beginning of a block."""

    def __init__(self) -> None:
        self._began, self._used = perf_counter(), process_time()

    def cpu(self, seconds: float) -> float:
        """The processor's share of a unit that took so many seconds of this block."""
        used = process_time() - self._used
        return seconds * used / (perf_counter() - self._began)


def timed(work: Callable[[], object], units: int) -> float:
    """Seconds for one unit."""
    began = perf_counter()
    work()
    return (perf_counter() - began) / units


def bytes_written(counter: str = "write_bytes") -> int:
    """What this process has caused to be written to disks; nothing where that is not told.

    With "wchar": what it has handed to the system to be written, byte by byte.
    """
    told = Path("/proc/self/io")
    if not told.exists():
        return 0
    return int(dict(line.split(": ") for line in told.read_text().splitlines())[counter])


def micros(seconds: Sequence[float]) -> str:
    return f"{median(seconds) * 1e6:,.0f} µs"


def per_second(seconds: Sequence[float]) -> str:
    return f"{1 / median(seconds):,.0f}/s"
