"""Puts KillickSession in the place of SQLiteSession; `python -m pytest -p` loads it."""

import asyncio
import atexit
import tempfile
from pathlib import Path
from typing import Any

import agents
import agents.memory
import agents.memory.sqlite_session

from killick.adapters.openai_agents import KillickSession

_FOLDER = tempfile.TemporaryDirectory()
atexit.register(_FOLDER.cleanup)
_made = 0


class InPlaceOfSqlite(KillickSession):
    """Takes what SQLiteSession takes; a session in memory has a file of its own here."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "",
        messages_table: str = "",
        session_settings: Any = None,
    ) -> None:
        global _made
        if str(db_path) == ":memory:":
            _made += 1
            db_path = Path(_FOLDER.name) / f"{_made}.db"
        elif str(db_path).endswith(".db"):
            db_path = Path(f"{db_path}.killick.db")
        super().__init__(session_id, db_path, session_settings=session_settings)
        self.db_path = db_path

    def close(self) -> None:  # type: ignore[override]
        """Theirs is not awaited."""
        self._closed = True
        thread_loop = asyncio.new_event_loop()
        try:
            if not _is_running():
                thread_loop.run_until_complete(self._store.close())
        finally:
            thread_loop.close()


def _is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


agents.SQLiteSession = InPlaceOfSqlite  # type: ignore[misc, assignment]
agents.memory.SQLiteSession = InPlaceOfSqlite  # type: ignore[misc, assignment]
agents.memory.sqlite_session.SQLiteSession = InPlaceOfSqlite  # type: ignore[misc, assignment]
