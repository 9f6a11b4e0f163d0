"""`python -m benchmarks.backups`: what another process's appends wait while a store is backed up.

Rounds with a whole backup, with one that is renewed, and with neither come in turns.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import erasing, report
from killick import Store

SESSIONS: Final = 10_000
_ROUNDS: Final = 5
_REST_SECONDS: Final = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backups", description=__doc__)
    parser.add_argument("--write-docs", action="store_true", help="renew the table")
    parser.add_argument("--keep", default="benchmarks/out/growth", help="where the store is kept")
    options = parser.parse_known_args()[0]  # the rest of `make bench ARGS=…` is for the others
    folder = Path(options.keep)
    folder.mkdir(parents=True, exist_ok=True)
    path = erasing.make(folder, SESSIONS)
    text = f"{report.machine(folder.resolve())}\n\n{_table(path)}"
    print(text)
    if options.write_docs:
        report.replace_between(report.DOCUMENT, "backups", text)


def _table(path: Path) -> str:
    rows = [("while another process appends", "its appends, 99th of 100", "slowest", "written")]
    with (
        tempfile.TemporaryDirectory(dir=path.parent) as folder,
        Store(path, indexing=False) as store,
    ):
        kept = Path(folder) / "kept.db"
        store.backup(kept)

        def rest() -> int:
            time.sleep(_REST_SECONDS)
            return 0

        def whole() -> int:
            written = store.backup(Path(folder) / "whole.db").written
            (Path(folder) / "whole.db").unlink()
            return written

        def renewed() -> int:
            return store.backup(kept, renew=True).written

        costs: dict[str, list[tuple[float, float, int]]] = {}
        for _ in range(_ROUNDS):
            for work in (rest, whole, renewed):
                costs.setdefault(work.__name__, []).append(_beside(path, work))
    names = {
        "rest": "no backup",
        "whole": f"a backup of {path.stat().st_size / 1e6:.0f} MB",
        "renewed": "renewing it",
    }
    for name, each in costs.items():
        p99, slowest, written = (statistics.median(figures) for figures in zip(*each, strict=True))
        figures = (f"{p99 * 1e3:.1f} ms", f"{slowest * 1e3:.1f} ms", f"{written / 1e6:.1f} MB")
        rows.append((names[name], *figures))
    return report.aligned(rows)


def _beside(path: Path, work: Callable[[], int]) -> tuple[float, float, int]:
    """Return the 99th of 100 and the slowest of another process's appends, and bytes written."""
    with erasing.appending(path) as appended:
        written = work()
    took = sorted(appended)
    return took[int(len(took) * 0.99)], took[-1], written


if __name__ == "__main__":
    main()
