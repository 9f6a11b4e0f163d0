"""`python -m benchmarks --against COMMIT`: two versions of the package, measured in one run.

Each measurement runs in two processes at once, one for each version, with the benchmarks of the
newer. They take turns: one does a pair of blocks and hands over, the other does one. A measurement
without blocks is done by one, then by the other, in rounds.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import report
from benchmarks.results import Result
from benchmarks.turns import TURNS

_ROOT: Final = Path(__file__).parent.parent

_Found = dict[str, list[Result]]
"""The results of one version, by what was measured; one for each round."""


def compare(names: Sequence[str], commit: str, arguments: Sequence[str], rounds: int) -> int:
    """Print what both versions were measured at, side by side."""
    failed = False
    rows: list[tuple[str, ...]] = [("what", commit, "now", "CPU then", "CPU now")]
    with checked_out(commit) as then:
        for name in names:
            found: tuple[_Found, _Found] = ({}, {})
            for number in range(rounds):
                sides = _measure(name, (then, _ROOT), arguments, first=number % 2)
                failed = failed or not all(sides)
                for side, results in zip(found, sides, strict=True):
                    for one in results:
                        side.setdefault(one.what, []).append(one)
            for what, now in found[1].items():
                both = found[0].get(what, []), now
                rows.append((what, *map(_figures, both), *map(_cpu, both)))
    print(report.aligned(rows))
    return 1 if failed else 0


def _figures(results: Sequence[Result]) -> str:
    return "; ".join(one.figure for one in results)


def _cpu(results: Sequence[Result]) -> str:
    used = [one.ratio.cpu for one in results if one.ratio is not None]
    return "; ".join(f"{seconds * 1e6:.1f} µs" for seconds in used if seconds is not None)


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A work tree of another commit."""
    with tempfile.TemporaryDirectory(prefix="killick-against-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(_ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            if not (tree / "src" / "killick").is_dir():
                # Today's package would be measured in its place, twice.
                raise SystemExit(f"{commit} has no package `killick`: it was renamed since")
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _measure(
    name: str, trees: tuple[Path, Path], arguments: Sequence[str], *, first: int
) -> list[list[Result]]:
    """Run one measurement of both, taking turns; an empty list for one that failed."""
    to_first, to_second = os.pipe(), os.pipe()
    fds = [(to_first[0], to_second[1]), (to_second[0], to_first[1])]
    os.write(to_first[1], b".")
    with tempfile.TemporaryDirectory(prefix="killick-against-") as folder:
        outs = [Path(folder) / str(number) for number in range(2)]
        children = []
        for number, (tree, out) in enumerate(zip(trees, outs, strict=True)):
            own = fds[number ^ first]
            command = [sys.executable, "-m", "benchmarks", "--only", name, "--out", str(out)]
            environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
            environment[TURNS] = f"{own[0]},{own[1]}"
            children.append(
                subprocess.Popen(
                    [*command, *arguments],
                    cwd=_ROOT,
                    env=environment,
                    pass_fds=own,
                    stdout=subprocess.DEVNULL,
                )
            )
        for fd in (*to_first, *to_second):
            os.close(fd)  # so that a process that has ended is noticed by the other
        ended = [child.wait() for child in children]
        return [
            []
            if code
            else msgspec.json.decode((out / "killick.json").read_bytes(), type=report.Run).results
            for code, out in zip(ended, outs, strict=True)
        ]
