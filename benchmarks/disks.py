"""How the ratios depend on the disk: both sides where every sync takes a millisecond more."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import apsw
import msgspec

from benchmarks.appends import beside, lone_caller
from benchmarks.floor import ceiling_of, floor
from benchmarks.results import Result, Setting, at_least, at_most
from benchmarks.stats import per_second
from benchmarks.writers import many_callers

_SLOWER_SECONDS = 0.001
_WRITERS = 64
_SYSTEM = apsw.vfs_names()[0]


class _SlowFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int]) -> None:
        super().__init__(_SYSTEM, name, flags)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        time.sleep(_SLOWER_SECONDS)


class _SlowDisk(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("slow", _SYSTEM, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _SlowFile(name, flags)


@contextmanager
def _slow_disk() -> Iterator[None]:
    disk = _SlowDisk()
    try:
        yield
    finally:
        disk.unregister()


def slower_disk(setting: Setting) -> list[Result]:
    """What a slower disk does to both ratios: a sync costs both sides the same."""
    lone, many = setting.folder / "lone", setting.folder / "many"
    bare = setting.folder / "bare"
    for folder in (lone, many, bare):
        folder.mkdir()
    with _slow_disk():
        alone = lone_caller(Setting(lone, setting.blocks, setting.scale))
        together = anyio.run(many_callers, many, _WRITERS, setting.blocks, setting.scale)
        on_bare = Setting(bare, setting.blocks, setting.scale)
        bounds = [*floor(on_bare)[:1], ceiling_of(on_bare, _WRITERS, indexes=True)]
    slower = f"where a sync takes {_SLOWER_SECONDS * 1000:g} ms longer"
    absolute = f"{per_second(together.ours)}, one raw writer {per_second(together.raw)}"
    return [
        at_most(f"one durable append, Store, {slower}", alone.slowdown(), 1.1, beside(alone)),
        at_least(
            f"appends/s of {_WRITERS} asyncio writers, {slower}",
            together.speedup(),
            25.0,
            absolute,
        ),
        *(msgspec.structs.replace(bound, what=f"{bound.what}, {slower}") for bound in bounds),
    ]
