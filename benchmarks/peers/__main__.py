"""`python -m benchmarks.peers`: every store on the same work. `make bench` runs it."""

import argparse
import logging
import sys
import tempfile
import traceback
import warnings
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import monotonic

import anyio

from benchmarks import report
from benchmarks.peers import plots, tables
from benchmarks.peers.contestant import Contestant
from benchmarks.peers.contestants import ALL
from benchmarks.peers.work import Figure, Skipped, growth, loading, together

Work = Callable[[Path, Sequence[type[Contestant]], int, int], Awaitable[list[Figure | Skipped]]]

PLAN: tuple[tuple[Work, tuple[int, ...]], ...] = (
    (growth, (100, 1_000, 10_000)),
    (together, (1, 8, 64, 1_000)),
    (loading, (100, 1_000, 10_000)),
)


async def run(options: argparse.Namespace) -> tuple[list[Figure | Skipped], list[str]]:
    """The figures, and what could not be measured."""
    found: list[Figure | Skipped] = []
    failed: list[str] = []
    for work, sizes in PLAN:
        for size in sizes[:2] if options.quick else sizes:
            began = monotonic()
            try:
                with tempfile.TemporaryDirectory(prefix="killick-bench-", dir=options.dir) as dir_:
                    blocks = 4 if options.quick else options.blocks
                    found += await work(Path(dir_), ALL, size, blocks)
            except Exception:  # noqa: BLE001  (the others have taken minutes: none is lost for it)
                traceback.print_exc()
                failed.append(f"{work.__name__} {size:,}")
            print(f"{work.__name__} {size:,}: {monotonic() - began:.0f} s", file=sys.stderr)
    return found, failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: the figures mean little")
    parser.add_argument("--blocks", type=int, default=30, help="blocks of each store (default 30)")
    parser.add_argument("--dir", help="a folder on the disk to measure; default: the temporary one")
    report.add_out(parser)
    parser.add_argument(
        "--write-docs", action="store_true", help="renew docs/performance.md and its plots"
    )
    options = parser.parse_args()
    # The peers warn of their own futures and log; neither is ours to show.
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    where = report.machine(Path(options.dir or tempfile.gettempdir()).resolve())
    found, failed = anyio.run(run, options)
    print(tables.show(found))
    report.keep(options.out, "peers", found)
    figures = [one for one in found if isinstance(one, Figure)]
    plots.draw(figures, options.out)
    if options.write_docs:
        commit, date = report.commit_and_date()
        tables.write(found, f"Commit {commit}, {date}; {where}; {options.blocks} blocks of each.")
        plots.draw(figures, plots.DOCUMENTED)
    if failed:
        print(f"not measured, see above: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
