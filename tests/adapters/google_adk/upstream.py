"""Chooses the session service of the ADK's own tests; `python -m pytest -p` loads it.

`KILLICK_ADK_SERVICE=theirs` leaves the one in memory; without it, ours takes its place. The one on
SQLAlchemy, which is not installed here, is left out.
"""

import atexit
import os
import tempfile
from pathlib import Path
from typing import Any

import google.adk.sessions

from killick import AsyncStore
from killick.adapters.google_adk import KillickSessionService

_FOLDER = tempfile.TemporaryDirectory()
atexit.register(_FOLDER.cleanup)
_made = 0


class InPlaceOfMemory(KillickSessionService):
    """Takes what InMemorySessionService takes; each has a file of its own."""

    def __init__(self, *_: Any) -> None:
        global _made
        _made += 1
        super().__init__(AsyncStore(Path(_FOLDER.name) / f"{_made}.db"))


google.adk.sessions.DatabaseSessionService = object  # type: ignore[misc, assignment]
if os.environ.get("KILLICK_ADK_SERVICE") != "theirs":
    google.adk.sessions.InMemorySessionService = InPlaceOfMemory  # type: ignore[misc, assignment]
