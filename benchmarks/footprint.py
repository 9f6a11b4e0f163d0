"""What a store takes on the disk, and what importing it takes."""

import os
import subprocess
import sys

import anyio
import apsw

from benchmarks.appends import fill
from benchmarks.raw import BODY_BYTES
from benchmarks.results import TIMES, Result, Setting, at_most
from benchmarks.stats import paired, timed
from holdfast import AsyncStore

_MESSAGES = 5_000
_BYTES_GOAL = 1.8


def size(setting: Setting) -> list[Result]:
    """The database file, its log written back and cut off, for each byte of text. No index."""
    path = setting.folder / "ours.db"
    count = setting.some(_MESSAGES)

    async def prepare() -> None:
        async with AsyncStore(path, indexing=False) as store:
            await fill(store, count)

    anyio.run(prepare)
    connection = apsw.Connection(str(path))
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    taken = path.stat().st_size
    text = count * BODY_BYTES
    return [
        Result(
            what=f"bytes on disk for each byte of text, {count:,} messages of {BODY_BYTES}",
            figure=f"{taken / text:.2f} {TIMES}",
            goal=f"≤ {_BYTES_GOAL:g} {TIMES}",
            holds=taken / text <= _BYTES_GOAL,
            absolute=f"{taken:,} bytes for {text:,}",
        )
    ]


def imports(setting: Setting) -> list[Result]:
    """A fresh interpreter that imports Holdfast beside one that imports what it stands on.

    Both from bytecode, as an installed package is: the copy of Holdfast in a clone may have none.
    """
    compiled = {**os.environ, "PYTHONPYCACHEPREFIX": str(setting.folder / "bytecode")}
    compiled.pop("PYTHONDONTWRITEBYTECODE", None)

    def block(statement: str) -> float:
        command = [sys.executable, "-c", statement]
        return timed(lambda: subprocess.run(command, check=True, env=compiled), 1)

    ours, raw = "import holdfast; holdfast.Store", "import apsw, msgspec"
    block(ours)
    block(raw)
    pairs = paired(lambda: block(ours), lambda: block(raw), setting.blocks)
    milliseconds = [
        f"{sorted(side)[len(side) // 2] * 1e3:.0f} ms" for side in (pairs.ours, pairs.raw)
    ]
    absolute = f"{milliseconds[0]}, apsw and msgspec alone {milliseconds[1]}, interpreter included"
    return [at_most("importing holdfast", pairs.slowdown(), 2.0, absolute)]
