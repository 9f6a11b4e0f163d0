"""What a delta costs: its caller, and the process that keeps a thousand streams."""

from contextlib import ExitStack
from statistics import fmean, median
from time import perf_counter, perf_counter_ns, process_time, sleep

from benchmarks.raw import TEXT
from benchmarks.results import Result, Setting
from benchmarks.stats import ratio
from holdfast import Store

_PIECE = TEXT[:20]
_DELTAS = 2_000
_STREAMS = 1_000
_PER_SECOND = 20
_SECONDS = 4.0
_SLICES = 20
"""Streams do not all speak at the same instant: so many groups take turns."""

_GOAL_MICROS = 5.0


def delta(setting: Setting) -> list[Result]:
    """`reply.text` of 20 characters, one after another, while the writer flushes them."""
    count = setting.some(_DELTAS)
    medians: list[float] = []
    means: list[float] = []
    with (
        Store(setting.folder / "ours.db") as store,
        store.create_session().turn("Go.") as turn,
        turn.stream() as reply,
    ):
        for _ in range(setting.blocks):
            spent = []
            began = perf_counter_ns()
            for _ in range(count):
                before = perf_counter_ns()
                reply.text(_PIECE)
                spent.append(perf_counter_ns() - before)
            means.append((perf_counter_ns() - began) / count / 1e3)
            medians.append(median(spent) / 1e3)
            sleep(0.06)  # the window: what was given is flushed before the next block
    typical, mean = ratio(medians), ratio(means)
    return [
        Result(
            what="one delta for its caller, median",
            figure=f"{typical.median:.2f} µs ({typical.low:.2f} to {typical.high:.2f})",
            goal=f"< {_GOAL_MICROS:g} µs",
            holds=typical.median < _GOAL_MICROS,
        ),
        Result(
            what="one delta for its caller, mean",
            figure=f"{mean.median:.2f} µs ({mean.low:.2f} to {mean.high:.2f})",
            goal=f"< {_GOAL_MICROS:g} µs",
            holds=mean.median < _GOAL_MICROS,
            absolute=f"worst block {max(means):.2f} µs, mean of all {fmean(means):.2f} µs",
        ),
    ]


def streams(setting: Setting) -> list[Result]:
    """A thousand open streams, twenty deltas a second each; CPU time of the whole process."""
    count = setting.some(_STREAMS)
    with ExitStack() as stack:
        store = stack.enter_context(Store(setting.folder / "ours.db"))
        replies = [
            stack.enter_context(stack.enter_context(store.create_session().turn("Go.")).stream())
            for _ in range(count)
        ]
        groups = [replies[number::_SLICES] for number in range(_SLICES)]
        used, given, late, began = process_time(), 0, 0.0, perf_counter()
        for tick in range(int(setting.some(int(_SECONDS * 10)) / 10 * _PER_SECOND * _SLICES)):
            due = began + tick / (_PER_SECOND * _SLICES)
            now = perf_counter()
            if now < due:
                sleep(due - now)
            late = max(late, now - due)
            for reply in groups[tick % _SLICES]:
                reply.text(_PIECE)
            given += len(groups[tick % _SLICES])
        used = process_time() - used
        took = perf_counter() - began
    return [
        Result(
            what=f"{count:,} open streams, {_PER_SECOND} deltas/s each",
            figure=f"{used / given * 1e6:.1f} CPU s a million deltas",
            absolute=f"{given:,} deltas in {took:.1f} s, at most {late * 1e3:.0f} ms behind",
        )
    ]
