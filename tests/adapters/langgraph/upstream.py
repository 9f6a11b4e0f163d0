"""Puts KillickSaver in the place of LangGraph's SQLite savers; `python -m pytest -p` loads it."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from killick import AsyncStore, Store
from killick.adapters.langgraph import KillickSaver

_made: list[int] = []


@contextmanager
def _ours() -> Iterator[Any]:
    _made.append(1)
    with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/w.db") as store:
        yield KillickSaver(store)


@asynccontextmanager
async def _ours_async() -> AsyncIterator[Any]:
    _made.append(1)
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncStore(f"{folder}/w.db") as store:
            yield KillickSaver(store)


def pytest_configure() -> None:
    """Replace the two savers before the fixtures that make them are collected."""
    import tests.conftest_checkpointer as theirs  # type: ignore[import-not-found]

    theirs._checkpointer_sqlite = _ours
    theirs._checkpointer_sqlite_aio = _ours_async
    import tests.conftest as conftest

    conftest._checkpointer_sqlite = _ours  # type: ignore[attr-defined]
    conftest._checkpointer_sqlite_aio = _ours_async  # type: ignore[attr-defined]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many savers were ours, so that nobody counts tests of another."""
    terminalreporter.write_line(f"{len(_made)} savers were Killick's")
