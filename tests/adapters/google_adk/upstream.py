"""Chooses the session service of the ADK's own tests; `python -m pytest -p` loads it.

`KILLICK_ADK_SERVICE=theirs` leaves those in memory and on SQLite; without it, ours is in their
place.
"""

import atexit
import os
import tempfile
from pathlib import Path
from typing import Any

import google.adk.sessions.in_memory_session_service
import google.adk.sessions.sqlite_session_service

from killick import AsyncStore
from killick.adapters.google_adk import KillickSessionService

_FOLDER = tempfile.TemporaryDirectory()
atexit.register(_FOLDER.cleanup)
_made = 0


class InPlaceOfTheirs(KillickSessionService):
    """Takes what their services take; each has a file of its own."""

    def __init__(self, *_: Any) -> None:
        global _made
        _made += 1
        super().__init__(AsyncStore(Path(_FOLDER.name) / f"{_made}.db"))


def _put_in_place() -> None:
    """Give our service to whoever imports one of theirs after this."""
    theirs: tuple[tuple[Any, str], ...] = (
        (google.adk.sessions, "InMemorySessionService"),
        (google.adk.sessions.in_memory_session_service, "InMemorySessionService"),
        (google.adk.sessions.sqlite_session_service, "SqliteSessionService"),
    )
    for module, name in theirs:
        setattr(module, name, InPlaceOfTheirs)


if os.environ.get("KILLICK_ADK_SERVICE") != "theirs":
    _put_in_place()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many services were ours, so that nobody counts tests of another."""
    terminalreporter.write_line(f"{_made} services were Killick's")
