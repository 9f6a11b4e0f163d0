"""Planting a sample of mutants, one at a time, in a copy of the package, and asking the tests."""

import hashlib
import queue
import random
import subprocess
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Literal

import msgspec

from mutate.asking import PYTEST, Answer, Forks, Planted, Request
from mutate.coverage import Coverage, Project, empty
from mutate.operators import Mutant, mutants
from tests.museum.museum import copy_and_compile

Verdict = Literal["caught", "hangs", "survived", "not covered"]
"""A mutant that hangs was caught too: its tests did not pass in several times their time."""

_TIMES: Final = 5
_MORE_SECONDS: Final = 90.0
"""How much longer than measured the tests of a mutant may take."""

Key = tuple[str, str]


class Outcome(msgspec.Struct, frozen=True):
    """What the tests said of one mutant."""

    id: str
    verdict: Verdict
    tests: int
    seconds: float
    function: str
    """A digest of the function with the change, so that an outcome ends with its code."""
    asked: str
    """A digest of the tests that were asked."""


class Equivalent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mutant that a person has judged to change nothing that a test could see."""

    id: str
    line: str
    reason: str


def sample(project: Project, packages: Iterable[str], count: int, seed: int) -> list[Mutant]:
    """Return mutants drawn by the seed, the same number of every module as far as it has them."""
    drawn: list[list[Mutant]] = []
    for package in packages:
        for path in sorted((project.package / package).rglob("*.py")):
            module = path.relative_to(project.package).as_posix()
            found = mutants(module, path.read_bytes())
            random.Random(f"{seed} {module}").shuffle(found)
            drawn.append(found)
    random.Random(seed).shuffle(drawn)
    in_turn = [
        found[place]
        for place in range(max(map(len, drawn), default=0))
        for found in drawn
        if place < len(found)
    ]
    return in_turn[:count]


def read_equivalents(path: Path) -> dict[str, Equivalent]:
    rows = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
    return {row.id: row for row in msgspec.convert(rows, list[Equivalent])}


def is_equivalent(mutant: Mutant, source: bytes, judged: dict[str, Equivalent]) -> bool:
    """Return whether it was judged so, in a line that has not changed since."""
    known = judged.get(mutant.id)
    line = source.decode().splitlines()[mutant.line - 1].strip()
    return known is not None and known.line == line


class Trial:
    """One run over a sample; what it has found out is kept, for the next run to go on."""

    def __init__(self, project: Project, coverage: Coverage, seed: int) -> None:
        self._project = project
        self._coverage = coverage
        self._kept = project.cache / f"outcomes-{seed}.jsonl"
        self._mutex = threading.Lock()
        self._sound: set[str] = set()
        self._unsound: set[str] = set()
        """Tests that pass and that fail in a fork without any bug, as far as they were tried."""
        self.outcomes: dict[Key, Outcome] = {}
        if self._kept.exists():
            for line in self._kept.read_bytes().splitlines():
                outcome = msgspec.json.decode(line, type=Outcome)
                self.outcomes[outcome.id, outcome.function] = outcome

    def known(self, mutant: Mutant) -> Outcome | None:
        """Return the outcome of the same change of the same code, if it still holds.

        One that was caught stays so; one that was not is tried again when other tests are near.
        """
        outcome = self.outcomes.get((mutant.id, self._digest(mutant)))
        if outcome is None or outcome.verdict in ("caught", "hangs"):
            return outcome
        asked = self._coverage.digest_of(self._coverage.nearest(mutant))
        return outcome if outcome.asked == asked else None

    def _digest(self, mutant: Mutant) -> str:
        """Name the code around a change and the change itself, wherever in its module it lies."""
        source = self.source(mutant)
        lines = source.splitlines()[mutant.first_line - 1 : mutant.line + 3]
        text = b"\n".join(lines) + mutant.new.encode() + source[mutant.begin : mutant.end]
        return hashlib.sha256(text).hexdigest()[:16]

    def source(self, mutant: Mutant) -> bytes:
        return (self._project.package / mutant.module).read_bytes()

    def run(
        self,
        wanted: Sequence[Mutant],
        folders: Sequence[Path],
        say: Callable[[Mutant, Outcome], None],
        is_over: Callable[[], bool],
    ) -> None:
        """Try those that have no outcome yet, one in each folder at a time.

        If interrupted: the outcomes so far are kept.
        """
        waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
        for mutant in wanted:
            if self.known(mutant) is None:
                waiting.put(mutant)
        with ThreadPoolExecutor(len(folders)) as pool:
            futures = [pool.submit(self._work, one, waiting, say, is_over) for one in folders]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                empty(waiting)
                raise

    def _work(
        self,
        folder: Path,
        waiting: "queue.SimpleQueue[Mutant]",
        say: Callable[[Mutant, Outcome], None],
        is_over: Callable[[], bool],
    ) -> None:
        if waiting.empty():
            return
        copy_and_compile(folder, self._project.package)
        with self._project.forks(folder, self._coverage.files) as forks:
            while not is_over():
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                outcome = self.plant(mutant, folder, forks)
                if outcome is None:
                    continue
                with self._mutex:
                    self.outcomes[outcome.id, outcome.function] = outcome
                    with self._kept.open("ab") as file:
                        file.write(msgspec.json.encode(outcome) + b"\n")
                    say(mutant, outcome)

    def plant(self, mutant: Mutant, folder: Path, forks: Forks) -> Outcome | None:
        """Change the copy in the folder, ask the tests, and change it back.

        Returns None when the machine is too busy to tell: the tests do not end in time without the
        change either.
        """
        tests = self._coverage.nearest(mutant)
        digests = self._digest(mutant), self._coverage.digest_of(tests)
        if not tests:
            return Outcome(mutant.id, "not covered", 0, 0.0, *digests)
        began = time.monotonic()
        verdict = self._verdict(mutant, tests, folder, forks)
        if verdict == "hangs" and forks.ask(Request(self._limit(tests), tests)).exit is None:
            return None
        seconds = round(time.monotonic() - began, 1)
        return Outcome(mutant.id, verdict, len(tests), seconds, *digests)

    def _verdict(self, mutant: Mutant, tests: list[str], folder: Path, forks: Forks) -> Verdict:
        """Ask until a test has failed that passes without the bug, or none fails any more."""
        asked = [name for name in tests if name not in self._unsound]
        while asked:
            answer = self._ask(mutant, asked, folder, forks)
            if answer.exit is None:
                return "hangs"
            if answer.exit == 0:
                break
            blamed = asked if answer.failed is None else [answer.failed]
            if self._sound.issuperset(blamed) or self._pass(blamed, forks):
                self._sound.update(blamed)
                return "caught"
            self._unsound.update(blamed)
            asked = [name for name in asked if name not in blamed]
        return "survived"

    def _ask(self, mutant: Mutant, tests: list[str], folder: Path, forks: Forks) -> Answer:
        file = folder / self._project.package.name / mutant.module
        source = self.source(mutant)
        _write(file, mutant.apply(source))
        try:
            planted = Planted(str(file), mutant.function, mutant.line)
            answer = forks.ask(Request(self._limit(tests), tests, planted=planted))
            return answer if answer.planted else self._ask_apart(tests, folder)
        finally:
            _write(file, source)

    def _pass(self, tests: list[str], forks: Forks) -> bool:
        return forks.ask(Request(self._limit(tests), tests)).exit == 0

    def _limit(self, tests: Sequence[str]) -> float:
        measured = {
            name: test.seconds
            for file in self._coverage.files.values()
            for name, test in file.tests.items()
        }
        return _MORE_SECONDS + _TIMES * sum(measured[name] for name in tests)

    def _ask_apart(self, tests: Sequence[str], folder: Path) -> Answer:
        """Ask in a process of their own: the change is in what runs when it is imported."""
        try:
            done = subprocess.run(
                [*PYTEST, "-x", *tests],
                cwd=self._project.root,
                env=self._project.environment(folder),
                capture_output=True,
                text=True,
                timeout=self._limit(tests),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Answer()
        if "ERROR: not found" in done.stderr + done.stdout:
            raise RuntimeError(f"a test is gone: {done.stderr[-500:]}{done.stdout[-500:]}")
        return Answer(done.returncode)


def _write(file: Path, source: bytes) -> None:
    for bytecode in file.parent.glob(f"__pycache__/{file.stem}.*"):
        bytecode.unlink()
    file.write_bytes(source)
