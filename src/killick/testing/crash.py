"""Ending a store as kill -9 would, without ending the process that tests it.

What was handed over and not committed is gone, no turn is ended, and the operating system's locks
are let go. The store object and everything it gave out are useless afterwards.
"""

from killick.session.aio import AsyncStore
from killick.session.store import Store


def crash(store: Store | AsyncStore) -> None:
    """Make a store's process, as others see it, die now."""
    runtime = store._core.runtime()
    runtime.closed = True  # finalisers enqueue nothing any more
    for turn in list(runtime._turns.values()):
        turn.over = True  # type: ignore[attr-defined]
    runtime.writer._commit = lambda ops: None  # type: ignore[method-assign]
    runtime.writer.close(timeout=30)
    runtime.watcher.close()
    runtime.database.close()
