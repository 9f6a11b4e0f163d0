"""Failures that can be sent: a report with a lone surrogate in it would end the whole run.

pytest-xdist sends reports as UTF-8, which has no lone surrogates, and tests here are about them.
A conftest takes part by importing the hook.
"""

from collections.abc import Generator
from typing import Any

import pytest

__all__ = ["pytest_runtest_makereport"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.longrepr is not None and not isinstance(report.longrepr, tuple):
        text = str(report.longrepr)
        if _escaped(text) != text:
            replaced: Any = _escaped(text)
            report.longrepr = replaced
    report.sections = [(_escaped(name), _escaped(text)) for name, text in report.sections]
    return report


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
