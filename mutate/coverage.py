"""Which test runs which lines, measured once for each file of tests and kept in a cache.

Lines are counted from the beginning of their function, so the cache outlives changes elsewhere in
a module. A file of tests is measured again when it has changed.
"""

import contextlib
import hashlib
import json
import os
import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from mutate.asking import Forks, Request
from mutate.operators import Mutant

TESTS_MAX = 40
SECONDS_MAX = 25.0
"""Of one mutant: the tests that are run, and how long they took when they were measured."""

_MEASURING_SECONDS = 1_800.0
"""For one file of tests."""


class Measured(msgspec.Struct):
    """One test that passed: how long it took, and the lines it ran, as bits, by function."""

    seconds: float
    lines: dict[str, str]

    def runs(self, mutant: Mutant) -> tuple[bool, bool]:
        """Return whether it runs the mutant's function, and whether its very line."""
        bits = self.lines.get(f"{mutant.module}:{mutant.function}")
        if bits is None:
            return False, False
        return True, bool(int(bits, 16) >> (mutant.line - mutant.first_line) & 1)


class MeasuredFile(msgspec.Struct):
    digest: str
    tests: dict[str, Measured]


class Project(msgspec.Struct, frozen=True):
    """A package, the tests that are asked, and where they are run."""

    root: Path
    package: Path
    tests: tuple[str, ...]
    cache: Path
    scratch: Path | None = None
    """Where tests put their files: in memory, for a disk that syncs takes most of their time."""

    def files(self) -> list[str]:
        """Return the files of tests, by their paths from the root."""
        found = []
        for name in self.tests:
            path = self.root / name
            found += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        return [path.relative_to(self.root).as_posix() for path in found]

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the environment in which the package is the one in the folder."""
        scratch = {} if self.scratch is None else {"TMPDIR": str(self.scratch)}
        return {
            **os.environ,
            **scratch,
            "PYTHONPATH": f"{folder}{os.pathsep}{Path(__file__).parents[1]}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }

    def forks(self, folder: Path, files: Iterable[str]) -> Forks:
        """Return what asks tests of these files about the package in the folder."""
        package = folder / self.package.name
        return Forks(self.root, package, files, self.environment(folder))


def empty(waiting: "queue.SimpleQueue[Any]") -> None:
    """Take everything out of a queue, so that nobody goes on with it."""
    with contextlib.suppress(queue.Empty):
        while True:
            waiting.get_nowait()


class Coverage:
    """What was measured of all files of tests."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._folder = project.cache / "coverage"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._nearest: dict[str, list[str]] = {}
        self.files: dict[str, MeasuredFile] = {}

    def measure(
        self, say: Callable[[str], None], is_over: Callable[[], bool], workers: int = 1
    ) -> None:
        """Read the cache, and measure what is not in it.

        If interrupted: what was measured is kept, the rest is measured next time.
        """
        missing = []
        for file in self._project.files():
            kept = self._kept(file)
            if kept.exists():
                known = msgspec.json.decode(kept.read_bytes(), type=MeasuredFile)
                if known.digest == self._digest(file):
                    self.files[file] = known
                    continue
            missing.append(file)
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for file in missing:
            waiting.put(file)
        with ThreadPoolExecutor(workers) as pool:
            measuring = [
                pool.submit(self._measure_some, missing, waiting, say, is_over)
                for _ in range(min(workers, len(missing)))
            ]
            try:
                for one in measuring:
                    one.result()
            except BaseException:
                empty(waiting)
                raise

    def _measure_some(
        self,
        missing: list[str],
        waiting: "queue.SimpleQueue[str]",
        say: Callable[[str], None],
        is_over: Callable[[], bool],
    ) -> None:
        with self._project.forks(self._project.package.parent, missing) as forks:
            while not is_over():
                try:
                    file = waiting.get_nowait()
                except queue.Empty:
                    return
                tests, trouble = self._measured(file, forks)
                say(f"measured {file}, {len(tests)} tests{trouble}; {waiting.qsize()} files wait")
                if not trouble:
                    self.files[file] = MeasuredFile(self._digest(file), tests)
                    self._kept(file).write_bytes(msgspec.json.encode(self.files[file]))

    def _kept(self, file: str) -> Path:
        return self._folder / (file.replace("/", "+") + ".json")

    def _digest(self, file: str) -> str:
        """Name the tests of a file as they are; the checks of the conformance suite lie apart."""
        texts = [(self._project.root / file).read_bytes()]
        if b"conformance" in texts[0]:
            checks = sorted((self._project.package / "testing").rglob("*.py"))
            texts += [path.read_bytes() for path in checks]
        return hashlib.sha256(b"".join(texts)).hexdigest()

    def _measured(self, file: str, forks: Forks) -> tuple[dict[str, Measured], str]:
        """Return the tests of a file that pass, and why there are none if that is no good sign."""
        out = self._kept(file).with_suffix(".part")
        out.unlink(missing_ok=True)
        answer = forks.ask(Request(_MEASURING_SECONDS, file=file, measure=str(out)))
        tests = json.loads(out.read_bytes()) if out.exists() else {}
        out.unlink(missing_ok=True)
        if answer.exit is None:
            return {}, f": not done in {_MEASURING_SECONDS} s"
        if not tests and answer.exit not in (0, 5):
            return {}, f": none passed, {answer.failed} did not"
        return msgspec.convert(tests, dict[str, Measured]), ""

    def nearest(self, mutant: Mutant) -> list[str]:
        """Return the tests that are asked about a mutant.

        Those that run its line come before those that only run its function. Half of them are
        chosen so that together they run as much as possible of its module: what a line does shows
        in the branches around it. The others are those that run least of the package, in turn of
        every file of tests, the unit tests of the module first.
        """
        if mutant.id not in self._nearest:
            at_line, in_function = self._near(mutant, line=True), self._near(mutant, line=False)
            wide = _widest(at_line, mutant.module)
            ranked = [*wide, *_narrowest(at_line, mutant), *_narrowest(in_function, mutant)]
            self._nearest[mutant.id] = list(_within_limits(dict.fromkeys(ranked), self._seconds()))
        return self._nearest[mutant.id]

    def _near(self, mutant: Mutant, *, line: bool) -> dict[str, Measured]:
        """Return the tests that run its line, or only its function."""
        return {
            name: test
            for measured in self.files.values()
            for name, test in measured.tests.items()
            if test.runs(mutant) == (True, line)
        }

    def _seconds(self) -> dict[str, float]:
        return {
            name: test.seconds
            for measured in self.files.values()
            for name, test in measured.tests.items()
        }

    def digest_of(self, tests: list[str]) -> str:
        """Return a name for these tests as they are now."""
        files = sorted({name.partition("::")[0] for name in tests})
        text = json.dumps([tests, [self.files[file].digest for file in files]])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _widest(tests: dict[str, Measured], module: str) -> Iterator[str]:
    """Choose, one after the other, the test that adds most lines of a module for its time."""
    places: dict[str, int] = {}
    lines: dict[str, int] = {}
    for name, test in tests.items():
        lines[name] = 0
        for function, bits in test.lines.items():
            if function.startswith(f"{module}:"):
                place = places.setdefault(function, 500 * len(places))
                lines[name] |= int(bits, 16) << place
    seen = 0
    for _ in range(TESTS_MAX // 2):
        gains = {
            name: (bits & ~seen).bit_count() / (tests[name].seconds + 0.3)
            for name, bits in lines.items()
        }
        best = max(gains, key=gains.__getitem__, default=None)
        if best is None or not gains[best]:
            return
        seen |= lines.pop(best)
        yield best


def _narrowest(tests: dict[str, Measured], mutant: Mutant) -> Iterator[str]:
    """Order tests by how little of the package they run, in turn of every file of tests."""
    own = f"test_{Path(mutant.module).stem}"
    by_file: dict[str, list[tuple[int, float, str]]] = {}
    for name, test in tests.items():
        file = name.partition("::")[0]
        by_file.setdefault(file, []).append((len(test.lines), test.seconds, name))
    ranked: list[tuple[int, bool, int, str]] = []
    for file, found in by_file.items():
        is_own = Path(file).name.startswith(own)
        for place, (width, _, name) in enumerate(sorted(found)):
            ranked.append((place // (5 if is_own else 1), not is_own, width, name))
    return (name for *_, name in sorted(ranked))


def _within_limits(names: Iterable[str], seconds: dict[str, float]) -> Iterator[str]:
    used, count = 0.0, 0
    for name in names:
        if count and used + seconds[name] > SECONDS_MAX:
            continue
        used += seconds[name]
        count += 1
        yield name
        if count == TESTS_MAX:
            return
