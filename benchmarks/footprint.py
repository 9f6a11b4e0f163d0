"""What a store takes on the disk, and what importing it takes."""

import os
import subprocess
import sys
from functools import partial
from statistics import median

import anyio
import apsw

from benchmarks.appends import fill
from benchmarks.raw import BODY_BYTES
from benchmarks.results import TIMES, Result, Setting, at_most
from benchmarks.stats import Ratio, paired, timed
from killick import AsyncStore

_MESSAGES = 5_000
_BYTES_GOAL = 1.6


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


class Interpreter:
    """Fresh interpreters that run from bytecode, as an installed package does.

    The copy of Killick in a clone may have none.
    """

    def __init__(self, setting: Setting) -> None:
        self._environment = {
            **os.environ,
            "PYTHONPYCACHEPREFIX": str(setting.folder / "bytecode"),
        }
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def beside_imports(self, *arguments: str, blocks: int) -> tuple[Ratio, str]:
        """Its time against that of importing what Killick stands on, and both in words."""
        raw = ("-c", "import apsw, msgspec")
        self._block(*arguments)
        self._block(*raw)
        pairs = paired(lambda: self._block(*arguments), lambda: self._block(*raw), blocks)
        ours, theirs = (f"{median(side) * 1e3:.0f} ms" for side in (pairs.ours, pairs.raw))
        words = f"{ours}, importing apsw and msgspec alone {theirs}, interpreter included"
        return pairs.slowdown(), words

    def _block(self, *arguments: str) -> float:
        command = [sys.executable, *arguments]
        run = partial(
            subprocess.run,
            command,
            check=True,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return timed(run, 1)


def imports(setting: Setting) -> list[Result]:
    """A fresh interpreter that imports Killick beside one that imports what it stands on."""
    statement = "import killick; killick.Store"
    ratio, words = Interpreter(setting).beside_imports("-c", statement, blocks=setting.blocks)
    return [at_most("importing killick", ratio, 2.0, words)]
