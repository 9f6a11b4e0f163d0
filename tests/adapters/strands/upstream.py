"""Chooses the repository of Strands' own tests; `python -m pytest -p` loads it.

`KILLICK_STRANDS_REPOSITORY=theirs` leaves the one of their tests; without it, ours takes its place.
"""

import atexit
import os
import tempfile
from pathlib import Path

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


if os.environ.get("KILLICK_STRANDS_REPOSITORY") != "theirs":
    theirs.MockedSessionRepository = InPlaceOfMock
