"""Writes down which lines of a package each test runs.

The interpreter tells it of every call. Lines are followed in the first calls of each function in
each test only: a loop that runs a million times costs little more than one that runs twice.
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

_CALLS_MAX: Final = 40


class _Lines:
    """The lines of a package that one test has run."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._bits: dict[CodeType, int] = {}
        self._calls: Counter[CodeType] = Counter()

    def call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(self._package):
            return None
        self._calls[code] += 1
        if self._calls[code] > _CALLS_MAX:
            return None
        self._bits.setdefault(code, 0)
        return self._line

    def _line(self, frame: FrameType, _event: str, _argument: object) -> Any:
        code = frame.f_code
        self._bits[code] |= 1 << max(0, frame.f_lineno - code.co_firstlineno)
        return self._line

    def by_function(self) -> dict[str, str]:
        """Return the bits of each function; what is nested in one without a name counts to it."""
        bits: dict[str, int] = {}
        for code, lines in list(self._bits.items()):
            module = code.co_filename.removeprefix(self._package).replace(os.sep, "/")
            name = code.co_qualname
            if name.endswith(">"):
                continue  # a comprehension or a module: its lines are seen in its function
            bits[f"{module}:{name}"] = bits.get(f"{module}:{name}", 0) | lines
        return {name: f"{value:x}" for name, value in bits.items()}


class Measuring:
    """A plugin of pytest that measures the tests of one run."""

    def __init__(self, package: Path, out: Path) -> None:
        self._package = f"{package}{os.sep}"
        self._out = out
        self._tests: dict[str, Any] = {}
        self._passed: set[str] = set()
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        lines = _Lines(self._package)
        began = time.monotonic()
        threading.settrace(lines.call)
        sys.settrace(lines.call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            seconds = round(time.monotonic() - began, 3)
            self._tests[item.nodeid] = {"seconds": seconds, "lines": lines.by_function()}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.add(report.nodeid)
        elif report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Only a test that passes without a bug can catch one."""
        sound = self._passed - self._failed
        kept = {name: test for name, test in self._tests.items() if name in sound}
        self._out.write_text(json.dumps(kept), encoding="utf-8")
