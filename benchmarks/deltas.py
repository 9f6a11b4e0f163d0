"""What a delta costs its caller."""

from statistics import fmean, median
from time import perf_counter_ns, sleep

from benchmarks.raw import TEXT
from benchmarks.results import Result, Setting
from benchmarks.stats import ratio
from killick import Store

_PIECE = TEXT[:20]
_DELTAS = 2_000
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
