"""Many asynchronous writers on one store, each with a session and a turn of its own."""

from pathlib import Path
from time import perf_counter
from typing import Literal

import anyio

from benchmarks.appends import message, paired_async
from benchmarks.raw import WARM_APPENDS, RawWriter, log_grew
from benchmarks.results import Result, Setting, at_least
from benchmarks.stats import Pairs, per_second
from killick import AsyncSession, AsyncStore

_RAW_APPENDS = 200
_OUR_APPENDS = 1_600


class _Crew:
    """Writers that record a given number of messages each, then rest until the next block."""

    def __init__(self, size: int) -> None:
        self.ready = anyio.Event()
        self._expected = size
        self._start = anyio.Event()
        self._done = anyio.Event()
        self._each = 0
        self._size = 0
        self._busy = 0

    async def write(self, session: AsyncSession) -> None:
        said = message()
        async with session.turn("Go.") as turn:
            self._size += 1
            if self._size == self._expected:
                self.ready.set()
            while True:
                await self._start.wait()
                if not self._each:
                    return
                for _ in range(self._each):
                    await turn.record(said)
                self._busy -= 1
                if self._busy:
                    await self._done.wait()
                else:
                    self._start = anyio.Event()
                    self._done.set()

    async def block(self, each: int) -> float:
        """Seconds for one append, all writers together."""
        self._each, self._busy, self._done = each, self._size, anyio.Event()
        began = perf_counter()
        self._start.set()
        await self._done.wait()
        return (perf_counter() - began) / (each * self._size)

    def dismiss(self) -> None:
        self._each = 0
        self._start.set()


async def many_callers(
    folder: Path, writers: int, blocks: int, scale: float, drained: list[str] | None = None
) -> Pairs:
    raw = RawWriter(folder)
    crew = _Crew(writers)
    each = max(2, int(_OUR_APPENDS * scale) // writers)
    count = max(2, int(_RAW_APPENDS * scale))
    path = folder / "ours.db"
    indexing = drained is not None
    async with AsyncStore(path, indexing=indexing) as store, anyio.create_task_group() as group:
        for _ in range(writers):
            group.start_soon(crew.write, await store.create_session())
        await crew.ready.wait()
        grew, size = True, 0
        while grew:
            await crew.block(max(2, WARM_APPENDS // writers))
            grew, size = log_grew(path, size)
        pairs = await paired_async(lambda: crew.block(each), lambda: raw.block(count), blocks)
        if drained is not None:
            drained.append(await _drain(store))
        crew.dismiss()
    raw.close()
    return pairs


async def _drain(store: AsyncStore) -> str:
    """How long the index takes to catch up, once nobody writes any more."""
    began = perf_counter()
    behind = (await store.search("nowhere", wait_seconds=0)).behind
    assert (await store.search("nowhere", wait_seconds=600)).behind == 0
    return f"{behind:,} entries behind, caught up with in {perf_counter() - began:.1f} s"


def _run(
    setting: Setting,
    writers: int,
    goal: float | None,
    backend: Literal["asyncio", "trio"] = "asyncio",
) -> list[Result]:
    pairs = anyio.run(
        many_callers, setting.folder, writers, setting.blocks, setting.scale, backend=backend
    )
    absolute = f"{per_second(pairs.ours)}, one raw writer {per_second(pairs.raw)}"
    return [
        at_least(f"appends/s of {writers:,} {backend} writers", pairs.speedup(), goal, absolute)
    ]


def writers_8(setting: Setting) -> list[Result]:
    return _run(setting, 8, 2.0)


def writers_64(setting: Setting) -> list[Result]:
    return _run(setting, 64, 6.0)


def writers_64_indexed(setting: Setting) -> list[Result]:
    """As by default: the search index is kept up, when there is time for it."""
    drained: list[str] = []
    pairs = anyio.run(many_callers, setting.folder, 64, setting.blocks, setting.scale, drained)
    absolute = f"{per_second(pairs.ours)}; then {drained[0]}"
    what = "appends/s of 64 asyncio writers, with the search index"
    return [at_least(what, pairs.speedup(), 6.0, absolute)]


def writers_1000(setting: Setting) -> list[Result]:
    """No less than 64."""
    return _run(setting, 1_000, 6.0)


def writers_64_trio(setting: Setting) -> list[Result]:
    return _run(setting, 64, None, "trio")
