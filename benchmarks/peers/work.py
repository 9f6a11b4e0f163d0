"""The same work for everybody, in blocks that take turns, so that all meet the same machine."""

import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import anyio
import msgspec

from benchmarks.peers.contestant import NOT_OFFERED, Contestant, Conversation
from benchmarks.stats import Ratio, bytes_written, ratio

_SLOW_SECONDS = 0.05
"""An append that takes longer than this has one in a block, the others have five."""

_TOO_SLOW_SECONDS = 2.0
_EACH = 5

_LONG_SECONDS = 5.0
_FEW_BLOCKS = 6
"""A round of all sessions that takes longer than that is done so many times, the others as often as
was asked for."""

_LAST = 50


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """What one store did at one size of one kind of work."""

    work: str
    store: str
    durability: str
    size: int
    p50: float
    p99: float
    per_second: float
    times_raw: Ratio
    written: float | None = None
    """Bytes the process wrote to the disk for each message."""

    stored: float | None = None
    """Bytes on the disk for each message, where every one of them was appended."""

    blocks: int = 0
    memory: float | None = None
    """Bytes that Python held at most while it was done once."""

    refused: int = 0
    """Appends that ended in an error."""


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A store that was not measured, and why."""

    work: str
    store: str
    size: int
    reason: str


class _Runner:
    """One store in one measurement."""

    def __init__(self, contestant: Contestant, conversations: list[Conversation]) -> None:
        self.contestant = contestant
        self.conversations = conversations
        self.latencies: list[float] = []
        self.blocks: list[float] = []
        self.written = 0
        self.refused = 0
        self.each = _EACH
        self.rounds: int | None = None
        self.memory: float | None = None

    def stored(self, size: int) -> float | None:
        """Bytes on the disk for each message, where filling is as appending."""
        if self.contestant.bulk_fill:
            return None
        return self.contestant.stored() / (size + len(self.latencies))

    async def once(self, act: Callable[[], Awaitable[object]]) -> float:
        began = perf_counter()
        try:
            await act()
        except Exception:  # noqa: BLE001  (counted and shown in the table)
            self.refused += 1
        spent = perf_counter() - began
        self.latencies.append(spent)
        return spent

    async def weigh(self, act: Callable[["_Runner"], Awaitable[int]]) -> None:
        """Do it once more, apart from what is timed, and see what it takes of memory."""
        tracemalloc.start()
        try:
            await act(self)
            self.memory = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    async def block(self, act: Callable[["_Runner"], Awaitable[int]]) -> None:
        """Carry out one block; `act` says how many units it did."""
        before, began = bytes_written(), perf_counter()
        units = await act(self)
        self.blocks.append((perf_counter() - began) / units)
        self.written += bytes_written() - before


async def growth(
    folder: Path, classes: Sequence[type[Contestant]], size: int, blocks: int
) -> list[Figure | Skipped]:
    """Appends to a session that has `size` messages, one caller."""
    found: list[Figure | Skipped] = []
    runners: list[_Runner] = []
    async with AsyncExitStack() as stack:
        for number, kind in enumerate(classes):
            runner = await _enter(stack, kind(folder / str(number)), 1)
            await runner.conversations[0].fill(size)
            trial = max([await runner.once(runner.conversations[0].append) for _ in range(2)])
            runner.latencies.clear()
            if trial > _TOO_SLOW_SECONDS:
                reason = f"one append took {trial:.1f} s"
                found.append(Skipped(work="append", store=kind.name, size=size, reason=reason))
                continue
            runner.each = 1 if trial > _SLOW_SECONDS else _EACH
            runners.append(runner)
        await _take_turns(runners, _appends, blocks)
    return [*found, *_figures("append", size, runners, on_disk=True)]


async def _appends(runner: _Runner) -> int:
    for _ in range(runner.each):
        await runner.once(runner.conversations[0].append)
    return runner.each


async def together(
    folder: Path, classes: Sequence[type[Contestant]], size: int, blocks: int
) -> list[Figure | Skipped]:
    """`size` sessions on one store, all appending at once."""
    found: list[Figure | Skipped] = []
    runners: list[_Runner] = []
    async with AsyncExitStack() as stack:
        for number, kind in enumerate(classes):
            if kind.together_max is not None and size > kind.together_max:
                reason = f"runs out of files with more than {kind.together_max} sessions"
                found.append(Skipped(work="together", store=kind.name, size=size, reason=reason))
                continue
            # Raw SQLite stays one writer: it is what the others are a multiple of.
            sessions = 1 if kind.name == "raw SQLite" else size
            runner = await _enter(stack, kind(folder / str(number)), sessions)
            for _ in range(2):  # the first round may make connections and tables
                began = perf_counter()
                await _crowd(runner)
            if perf_counter() - began > _LONG_SECONDS:
                runner.rounds = _FEW_BLOCKS
            runner.latencies.clear()
            runner.refused = 0
            runners.append(runner)
        await _take_turns(runners, _crowd, blocks)
    return [*found, *_figures("together", size, runners)]


async def _crowd(runner: _Runner) -> int:
    # Few, so that the sessions stay short: how cost grows with them is measured elsewhere.
    times = max(1, 8 // len(runner.conversations))

    async def write(conversation: Conversation) -> None:
        for _ in range(times):
            await runner.once(conversation.append)

    async with anyio.create_task_group() as group:
        for conversation in runner.conversations:
            group.start_soon(write, conversation)
    return times * len(runner.conversations)


async def loading(
    folder: Path, classes: Sequence[type[Contestant]], size: int, blocks: int
) -> list[Figure | Skipped]:
    """Read a session of `size` messages: all of it, and its newest fifty."""
    async with AsyncExitStack() as stack:
        runners = []
        for number, kind in enumerate(classes):
            runner = await _enter(stack, kind(folder / str(number)), 1)
            await runner.conversations[0].fill(size)
            runners.append(runner)
        await _take_turns(runners, _load, blocks)
        for runner in runners:
            await runner.weigh(_load)
        found: list[Figure | Skipped] = list(_figures("load all", size, runners))
        last = [one for one in runners if await one.conversations[0].load_last(1) != NOT_OFFERED]
        for runner in last:
            runner.latencies, runner.blocks = [], []
        await _take_turns(last, _load_last, blocks)
        for runner in last:
            await runner.weigh(_load_last)
        return [*found, *_figures(f"load the last {_LAST}", size, last)]


async def _load(runner: _Runner) -> int:
    await runner.once(runner.conversations[0].load)
    return 1


async def _load_last(runner: _Runner) -> int:
    await runner.once(lambda: runner.conversations[0].load_last(_LAST))
    return 1


async def _enter(stack: AsyncExitStack, contestant: Contestant, sessions: int) -> _Runner:
    await contestant.open()
    stack.push_async_callback(contestant.close)
    names = [f"s{number}" for number in range(sessions)]
    return _Runner(contestant, [await contestant.conversation(name) for name in names])


async def _take_turns(
    runners: Sequence[_Runner], act: Callable[[_Runner], Awaitable[int]], blocks: int
) -> None:
    """Everybody does one block, then everybody the next, the first one moving on by one."""
    for number in range(blocks):
        first = number % len(runners)
        for runner in [*runners[first:], *runners[:first]]:
            if runner.rounds is None or number < runner.rounds:
                await runner.block(act)


def _figures(
    work: str, size: int, runners: Sequence[_Runner], *, on_disk: bool = False
) -> list[Figure]:
    raw = next(one for one in runners if one.contestant.name == "raw SQLite")
    return [
        Figure(
            work=work,
            store=one.contestant.name,
            durability=one.contestant.durability,
            size=size,
            p50=median(one.latencies),
            p99=quantiles(one.latencies, n=100)[98],
            per_second=1 / median(one.blocks),
            # One that takes part in the first rounds only is compared with raw SQLite in those.
            times_raw=ratio([a / b for a, b in zip(one.blocks, raw.blocks, strict=False)]),
            blocks=len(one.blocks),
            memory=one.memory,
            written=one.written / len(one.latencies) if on_disk else None,
            stored=one.stored(size) if on_disk else None,
            refused=one.refused,
        )
        for one in runners
    ]
