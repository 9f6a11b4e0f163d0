"""`python -m benchmarks`: every measurement, or those that are named."""

import argparse
import gc
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks import report
from benchmarks.against import compare
from benchmarks.appends import async_append, growth, sync_append
from benchmarks.contexts import compacted, contexts, listing
from benchmarks.deltas import delta
from benchmarks.disks import slower_disk
from benchmarks.engine import engine
from benchmarks.floor import ceiling, floor
from benchmarks.footprint import imports, size
from benchmarks.long_sessions import million
from benchmarks.reading import reading
from benchmarks.recording import recording
from benchmarks.results import Result, Setting
from benchmarks.searching import search, search_million, search_size
from benchmarks.streams import lag, recovery, streams
from benchmarks.writers import (
    writers_8,
    writers_64,
    writers_64_indexed,
    writers_64_trio,
    writers_1000,
)

MEASUREMENTS: dict[str, Callable[[Setting], list[Result]]] = {
    "append": sync_append,
    "append-async": async_append,
    "floor": floor,
    "engine": engine,
    "writers-8": writers_8,
    "writers-64": writers_64,
    "writers-64-indexed": writers_64_indexed,
    "ceiling": ceiling,
    "slower-disk": slower_disk,
    "writers-1000": writers_1000,
    "writers-64-trio": writers_64_trio,
    "growth": growth,
    "reading": reading,
    "contexts": contexts,
    "compacted": compacted,
    "listing": listing,
    "delta": delta,
    "streams": streams,
    "lag": lag,
    "recovery": recovery,
    "recording": recording,
    "size": size,
    "search-size": search_size,
    "search": search,
    "import": imports,
    "million": million,
    "search-million": search_million,
}


def main() -> int:
    options = _options()
    names = options.only or list(MEASUREMENTS)
    blocks = 6 if options.quick else options.blocks
    if options.against:
        arguments = ["--blocks", str(blocks), *(["--quick"] if options.quick else [])]
        arguments += ["--dir", options.dir] if options.dir else []
        return compare(names, options.against, arguments, options.rounds)
    scale = 0.1 if options.quick else 1.0
    results: list[Result] = []
    failed: list[str] = []
    where = report.machine(Path(options.dir or tempfile.gettempdir()).resolve())
    commit, date = report.commit_and_date()
    run = report.Run(
        commit=options.commit or commit,
        date=options.date or date,
        blocks=blocks,
        machine=where,
        results=results,
    )
    for name in names:
        began = time.monotonic()
        gc.collect()  # what the one before has left behind is not this one's to clear away
        try:
            with tempfile.TemporaryDirectory(prefix="killick-bench-", dir=options.dir) as folder:
                setting = Setting(Path(folder), blocks, scale)
                results += MEASUREMENTS[name](setting)
        except Exception:  # noqa: BLE001  (the others have taken minutes: none is lost for it)
            traceback.print_exc()
            failed.append(name)
        print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr)
        report.keep(options.out, "killick", run)  # of a run that is ended early, what it has found
    print(report.table(results))
    if options.write_docs:
        report.write_document(run)
    if failed:
        print(f"not measured, see above: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(MEASUREMENTS), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="a smoke run: the figures mean little")
    parser.add_argument("--blocks", type=int, default=40, help="paired blocks (default 40)")
    parser.add_argument("--dir", help="a folder on the disk to measure; default: the temporary one")
    parser.add_argument("--against", metavar="COMMIT", help="measure it too, taking turns with it")
    parser.add_argument("--rounds", type=int, default=1, help="how often both are measured so")
    report.add_out(parser)
    parser.add_argument("--write-docs", action="store_true", help="renew docs/performance.md")
    parser.add_argument("--commit", help="name the commit instead of asking git")
    parser.add_argument("--date", help="name the date instead of asking git")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
