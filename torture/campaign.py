"""What every campaign is: a name, what must hold, how many cases, and rounds that a seed decides.

A round is everything that one seed leads to: one case, or all points of one scenario. Whatever it
chooses it chooses by `Round.chance`, so the same seed does the same again. A case is one attempt to
lose something. `python -m torture --campaign NAME --seed N` runs one round, `--case K` one case.
"""

import random
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

Size = Literal["slice", "torture", "long"]


_FAILURES_MAX = 20
"""More of one round tell nothing new."""


class Sizes(NamedTuple):
    """How many cases at least: in `make test-all`, `make torture` and `make torture-long`."""

    slice: int
    torture: int
    long: int


class Campaign(NamedTuple):
    """One way of trying to lose something."""

    name: str
    tries: str
    holds: str
    sizes: Sizes
    run: "Callable[[Round], None]"
    rounds: int | None = None
    """How many different seeds there are, where a seed names a combination; else no end."""
    lacks: Callable[[], str | None] = lambda: None
    """Says what is missing on this machine to run it; None when nothing is."""

    def cases(self, size: Size) -> int:
        return int(getattr(self.sizes, size))


class Failure(msgspec.Struct, frozen=True):
    """A case in which something did not hold, and how to see it again."""

    campaign: str
    seed: int
    case: int
    what: str
    error: str
    size: Size = "torture"

    @property
    def command(self) -> str:
        long = " --long" if self.size == "long" else ""
        return (
            f"python -m torture --campaign {self.campaign} --seed {self.seed} "
            f"--case {self.case}{long}"
        )


class Places(Protocol):
    """Where the stores of a round lie: files, or a server."""

    slow: bool
    """Whether a case takes much longer than on a file: a round has fewer of them then."""

    def at(self, name: str) -> str:
        """The address of a store in which nothing is, unless it was asked for last."""
        ...

    def died(self, pid: int) -> None:
        """A process was killed; what is known of it by its lease may be known at once."""
        ...


class Files:
    """In a folder."""

    slow = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def at(self, name: str) -> str:
        return str(self._folder / name)

    def died(self, pid: int) -> None:
        """The operating system knows."""


class Stopped(Exception):
    """The case that was asked for has run, or the first failure was found: no more is wanted."""


class Round:
    """One seed of one campaign on its way: what it may use, and what came of it."""

    def __init__(
        self,
        campaign: str,
        seed: int,
        folder: Path,
        quick: Path,
        *,
        only: int | None = None,
        until_failure: bool = False,
        places: Places | None = None,
        size: Size = "torture",
    ) -> None:
        self.seed = seed
        self.size: Size = size
        """Of the run that this is a part of: where time is what is tried, a round lasts longer."""
        self.places = Files(folder) if places is None else places
        self.folder = folder
        """An empty folder on a disk."""
        self.quick = quick
        """An empty folder in memory, for campaigns that bring their own disk."""
        self.chance = random.Random(f"{campaign}/{seed}")
        self.cases = 0
        self.failures: list[Failure] = []
        self._campaign = campaign
        self._only = only
        self._until_failure = until_failure

    def check(self, what: str, case: Callable[..., Any], *arguments: Any, cases: int = 1) -> Any:
        """Run one case, or several that are one call; what it raises is a failure.

        Returns what the case returns, or None if it failed or was not asked for.
        """
        first = self.cases + 1
        self.cases += cases
        if self._only is not None and self._only < first:
            raise Stopped
        if self._only is not None and self._only > self.cases:
            return None
        try:
            return case(*arguments)
        except (KeyboardInterrupt, SystemExit):
            raise  # somebody wants to end all of this
        except BaseException as error:  # noqa: BLE001  (a cancellation that got out is a failure too)
            self.fail(what, error, first)
            return None

    def fail(self, what: str, error: BaseException, case: int | None = None) -> None:
        trace = "".join(traceback.format_exception(error)[-12:])
        number = self.cases if case is None else case
        self.failures.append(Failure(self._campaign, self.seed, number, what, trace, self.size))
        if self._until_failure or len(self.failures) == _FAILURES_MAX:
            raise Stopped

    def more(self, cases: int) -> None:
        """A call that was one case turned out to be several."""
        self.cases += cases
