"""Asking tests about bugs, in a process that has collected them and forks for each bug."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

PYTEST: Final = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "pytest_timeout",
]
"""Only the plugins that are needed: the others take longer than most tests."""


class Planted(msgspec.Struct, frozen=True):
    """A change of one function of a module, whose file has it already."""

    file: str
    function: str
    line: int


class Request(msgspec.Struct, frozen=True):
    """Tests to run, with a bug or while they are measured, and the time they have."""

    seconds: float
    tests: list[str] = []
    file: str | None = None
    """All tests of a file, instead of tests by name."""
    planted: Planted | None = None
    measure: str | None = None
    """Where to write which lines they run."""


class Answer(msgspec.Struct, frozen=True):
    """What became of a request: the exit code of pytest, None if it did not end in time."""

    exit: int | None = None
    failed: str | None = None
    planted: bool = True
    """False if the bug cannot be planted in a process that has imported its module."""
    unknown: list[str] = []
    """Tests that do not exist."""


class Forks:
    """A process that has collected files of tests of a package, while the block lasts."""

    def __init__(
        self, root: Path, package: Path, files: Iterable[str], environment: dict[str, str]
    ) -> None:
        self._root = root
        self._package = package
        self._files = sorted(files)
        self._environment = environment

    def __enter__(self) -> Self:
        self._answers, writes = os.pipe()
        self._output = tempfile.TemporaryFile()
        told = {"MUTATE_ANSWERS": str(writes), "MUTATE_PACKAGE": str(self._package)}
        self._process = subprocess.Popen(
            [*PYTEST, *_OPTIONS, *self._files],
            cwd=self._root,
            env=self._environment | told,
            pass_fds=[writes],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
        )
        os.close(writes)
        self._answer()  # it has imported the package: a change comes after that
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()
        self._output.close()
        os.close(self._answers)

    def ask(self, request: Request) -> Answer:
        """Have tests run in a fork. Raises RuntimeError if there is no such test."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(request) + b"\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer.unknown:
            raise RuntimeError(f"a test is gone: {answer.unknown}")
        return answer

    def _answer(self) -> Answer:
        said = b""
        while not said.endswith(b"\n"):
            more = os.read(self._answers, 65_536)
            if not more:
                self._process.communicate()
                self._output.seek(0)
                raise RuntimeError(f"pytest has ended: {self._output.read()[-2000:].decode()}")
            said += more
        return msgspec.json.decode(said, type=Answer)


_OPTIONS: Final = [
    *("-p", "mutate.forked", "-m", "not campaign"),
    *("--capture=no", "--continue-on-collection-errors"),
]
