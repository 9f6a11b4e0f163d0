"""What one measurement found, and whether it is good enough."""

from pathlib import Path
from typing import Final

import msgspec

from benchmarks.stats import Ratio

TIMES: Final = "\N{MULTIPLICATION SIGN}"

_STEADY: Final = 1.4
"""An interval wider than this says that the machine was busy with something else: run again."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table. Without a goal there is nothing to hold."""

    what: str
    figure: str
    goal: str = ""
    holds: bool | None = None
    absolute: str = ""
    ratio: Ratio | None = None


class Setting(msgspec.Struct, frozen=True):
    """How much to measure, and where the files lie."""

    folder: Path
    blocks: int = 40
    scale: float = 1.0

    def some(self, count: int) -> int:
        """A number of operations, fewer in a quick run."""
        return max(2, int(count * self.scale))


def at_most(what: str, ratio: Ratio, goal: float | None, absolute: str) -> Result:
    """A ratio that holds when the nearer end of its interval does."""
    return _of(what, ratio, goal, absolute, "≤", goal is not None and ratio.low <= goal)


def at_least(what: str, ratio: Ratio, goal: float | None, absolute: str) -> Result:
    """The same, of what is better when it is larger."""
    return _of(what, ratio, goal, absolute, "≥", goal is not None and ratio.high >= goal)


def _of(
    what: str, ratio: Ratio, goal: float | None, absolute: str, sign: str, holds: object
) -> Result:
    unsteady = ", unsteady" if ratio.high > _STEADY * ratio.low else ""
    return Result(
        what=what,
        figure=f"{ratio.median:.2f} {TIMES} ({ratio.low:.2f} to {ratio.high:.2f}{unsteady})",
        goal="" if goal is None else f"{sign} {goal:g} {TIMES}",
        holds=None if goal is None else bool(holds),
        absolute=absolute,
        ratio=ratio,
    )
