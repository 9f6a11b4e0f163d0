"""Running rounds: one here, or many in processes of their own until there were enough cases."""

import contextlib
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import msgspec

from torture.campaign import Campaign, Failure, Places, Round, Size, Stopped
from torture.campaigns import load

_MEMORY = Path("/dev/shm")


class Outcome(msgspec.Struct, frozen=True):
    """What came of one round."""

    campaign: str
    seed: int
    cases: int
    failures: list[Failure]
    seconds: float
    cpu_seconds: float


class Total(msgspec.Struct):
    """What came of all rounds of one campaign."""

    name: str
    tries: str
    holds: str
    wanted: int
    cases: int = 0
    rounds: int = 0
    first_seed: int = 0
    last_seed: int = 0
    failures: list[Failure] = []
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    alone: str = ""
    """Of a campaign that was run without the others: when, and of which commit."""


def run_round(
    campaign: Campaign,
    seed: int,
    *,
    only: int | None = None,
    until_failure: bool = False,
    places: Places | None = None,
    size: Size = "torture",
) -> Outcome:
    """One round, here and now; on files, if nothing else is said."""
    began, used = time.monotonic(), _cpu()
    with _folder(None) as folder, _folder(_MEMORY) as quick:
        round_ = Round(
            campaign.name,
            seed,
            folder,
            quick,
            only=only,
            until_failure=until_failure,
            places=places,
            size=size,
        )
        try:
            campaign.run(round_)
        except Stopped:
            pass
        except Exception as error:  # noqa: BLE001  (a round that cannot go on is a failure as well)
            with contextlib.suppress(Stopped):
                round_.fail("the round broke off", error)
    return Outcome(
        campaign.name,
        seed,
        round_.cases,
        round_.failures,
        time.monotonic() - began,
        _cpu() - used,
    )


def run_here(
    campaign: Campaign, seeds: Iterator[int], cases: int, *, until_failure: bool = False
) -> Iterator[Outcome]:
    """Rounds one after the other until there were enough cases, or the first failure."""
    done = 0
    for seed in seeds:
        if done >= cases:
            return
        outcome = run_round(campaign, seed, until_failure=until_failure)
        done += outcome.cases
        yield outcome
        if until_failure and outcome.failures:
            return


class Schedule:
    """Which round comes next, so that every campaign gets its cases and no worker waits."""

    def __init__(
        self, campaigns: Sequence[Campaign], size: Size, first_seed: int, share: float = 1.0
    ) -> None:
        self.totals = [
            Total(
                one.name, one.tries, one.holds, int(one.cases(size) * share), first_seed=first_seed
            )
            for one in campaigns
        ]
        self._whole = share >= 1
        self._campaigns = list(campaigns)
        self._next = [first_seed] * len(campaigns)
        self._running = [0] * len(campaigns)
        self._first = first_seed

    def next(self) -> tuple[int, str, int] | None:
        for number, total in enumerate(self.totals):
            if self._wants(number, total):
                seed = self._next[number]
                self._next[number] += 1
                self._running[number] += 1
                return number, total.name, seed
        return None

    def _wants(self, number: int, total: Total) -> bool:
        if total.wanted == 0:
            return False
        begun = self._next[number] - self._first
        rounds = self._campaigns[number].rounds
        if self._whole and rounds is not None and begun < rounds:
            return True  # every combination once, whatever the number of cases
        expected = total.cases / total.rounds if total.rounds else 0.0
        return total.cases + self._running[number] * expected < total.wanted and (
            total.rounds > 0 or self._running[number] < min(2, total.wanted)
        )

    def took(self, number: int, outcome: Outcome) -> None:
        total = self.totals[number]
        self._running[number] -= 1
        total.cases += outcome.cases
        total.rounds += 1
        total.last_seed = max(total.last_seed, outcome.seed)
        total.failures += outcome.failures
        total.seconds += outcome.seconds
        total.cpu_seconds += outcome.cpu_seconds


def run_all(
    campaigns: Sequence[Campaign],
    size: Size,
    first_seed: int,
    workers: int,
    tell: Callable[[Schedule], None],
    *,
    share: float = 1.0,
) -> list[Total]:
    """Every campaign until it has its cases, on several processes; `tell` hears of each round."""
    schedule = Schedule(campaigns, size, first_seed, share)
    context = multiprocessing.get_context("spawn")  # stores are open here and there: no fork()
    running: dict[Future[Outcome], int] = {}
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_end_with, initargs=(os.getpid(),)
    ) as pool:
        while True:
            while len(running) < workers:
                task = schedule.next()
                if task is None:
                    break
                number, name, seed = task
                running[pool.submit(_work, name, seed, size)] = number
            if not running:
                return schedule.totals
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                schedule.took(running.pop(future), future.result())
            tell(schedule)


def _end_with(parent: int) -> None:
    """A worker whose run was killed does not go on by itself."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        servers = sys.modules.get("tests.postgres_fixtures")
        if servers is not None:
            servers.close_servers()
        os._exit(1)

    threading.Thread(target=watch, name="torture-parent", daemon=True).start()


def _work(name: str, seed: int, size: Size) -> Outcome:
    return run_round(load(name), seed, size=size)


@contextlib.contextmanager
def _folder(where: Path | None) -> Iterator[Path]:
    usable = where is not None and os.access(where, os.W_OK)
    made = Path(tempfile.mkdtemp(prefix="killick-torture-", dir=where if usable else None))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _cpu() -> float:
    """Seconds of processor that this process and its ended children have used."""
    ours, theirs = (
        resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return ours.ru_utime + ours.ru_stime + theirs.ru_utime + theirs.ru_stime
