"""Puts our step store in the place of the harness' one in memory; `python -m pytest -p` loads it.

`KILLICK_STEP_STORE=theirs` leaves theirs.
"""

import atexit
import os
import tempfile
from pathlib import Path
from typing import Any

import pydantic_ai_harness.step_persistence as theirs

from killick import AsyncStore
from killick.adapters.pydantic_ai.step_store import KillickStepStore

_FOLDER = tempfile.TemporaryDirectory()
atexit.register(_FOLDER.cleanup)
_made = 0


class InPlaceOfMemory(KillickStepStore):
    """Takes what theirs takes; each has a file of its own."""

    def __init__(self, *_: Any, **__: Any) -> None:
        global _made
        _made += 1
        super().__init__(AsyncStore(Path(_FOLDER.name) / f"{_made}.db"))


if os.environ.get("KILLICK_STEP_STORE") != "theirs":
    theirs.InMemoryStepStore = InPlaceOfMemory


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many stores were ours, so that nobody counts tests of another."""
    terminalreporter.write_line(f"{_made} stores were Killick's")
