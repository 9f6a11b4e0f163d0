"""Paired ratios and what can be said about their median."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec

Block = Callable[[], float]
"""Does its share of the work and returns seconds for one unit of it."""


class Ratio(msgspec.Struct, frozen=True):
    """The median of paired ratios, with a 95 % interval for it."""

    median: float
    low: float
    high: float
    blocks: int


class Pairs(msgspec.Struct, frozen=True):
    """Seconds for one unit of work, block by block, of both sides."""

    ours: list[float]
    raw: list[float]

    def slowdown(self) -> Ratio:
        """How many times as long ours takes."""
        return ratio([ours / raw for ours, raw in zip(self.ours, self.raw, strict=True)])

    def speedup(self) -> Ratio:
        """How many times as much ours gets done."""
        return ratio([raw / ours for ours, raw in zip(self.ours, self.raw, strict=True)])


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
    pairs = Pairs([], [])
    for number in range(blocks):
        if number % 2:
            pairs.raw.append(raw())
            pairs.ours.append(ours())
        else:
            pairs.ours.append(ours())
            pairs.raw.append(raw())
    return pairs


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
