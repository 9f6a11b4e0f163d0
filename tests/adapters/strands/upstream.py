"""Puts our repository in the place of that of Strands' tests; `python -m pytest -p` loads it."""

import atexit
import tempfile
from pathlib import Path
from typing import Any

import tests.fixtures.mock_session_repository as theirs  # type: ignore[import-not-found]

from killick import Store
from killick.adapters.strands import KillickSessionRepository

_FOLDER = tempfile.TemporaryDirectory()
atexit.register(_FOLDER.cleanup)
_made = 0


class InPlaceOfMock(KillickSessionRepository):
    """Takes what theirs takes; each has a file of its own."""

    def __init__(self) -> None:
        global _made
        _made += 1
        super().__init__(Store(Path(_FOLDER.name) / f"{_made}.db"))


theirs.MockedSessionRepository = InPlaceOfMock


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many repositories were ours, so that nobody counts tests of another."""
    terminalreporter.write_line(f"{_made} repositories were Killick's")
