"""Breaking a database at its k-th step, for every k.

Production code carries no hooks: a failpoint wraps the database that a store is given. The steps
are every call on a transaction, its beginning and its commit, so they can be counted and visited
one by one instead of being chosen.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from killick.errors import StoreDegraded
from killick.session.aio import AsyncStore
from killick.session.sync import Store
from killick.stores.contract import BackupReceipt, Database, Pace, Traces


class Failpoints:
    """A database that fails at one step, and counts all of them."""

    def __init__(
        self,
        database: Database,
        *,
        fail_at: int | None = None,
        error: Callable[[], BaseException] = lambda: StoreDegraded("injected"),
        lasting: bool = False,
    ) -> None:
        self._database = database
        self._error = error
        self._lasting = lasting
        self.fail_at = fail_at
        self.steps = 0
        self.holder = database.holder
        self.unfolded = database.unfolded

    @contextmanager
    def writing(self) -> Iterator[Any]:
        self.step()
        with self._database.writing() as tx:
            yield _Stepped(tx, self.step)
            self.step()

    @contextmanager
    def reading(self) -> Iterator[Any]:
        with self._database.reading() as reader:
            yield reader

    def explain(self, error: BaseException) -> BaseException:
        return self._database.explain(error)

    def change_mark(self) -> int:
        return self._database.change_mark()

    def changed(self, followed: Collection[int]) -> Collection[int] | None:
        return self._database.changed(followed)

    def watch(
        self, followed: Collection[int], running: Collection[int], notice: Callable[[], None]
    ) -> None:
        self._database.watch(followed, running, notice)

    def pace(self) -> Pace:
        return self._database.pace()

    def check(self) -> list[str]:
        return self._database.check()

    def reindex(self) -> None:
        self._database.reindex()

    def copies(self) -> tuple[str, ...]:
        return self._database.copies()

    def check_room(self, keys: Sequence[int]) -> None:
        self._database.check_room(keys)

    def sweep(self, files: Sequence[str] = ()) -> Traces:
        self.step()
        return self._database.sweep(files)

    def find_traces(self, needles: Sequence[bytes]) -> Traces:
        return self._database.find_traces(needles)

    def back_up(
        self, target: Path, progress: Callable[[int, int], None] | None, *, renew: bool = False
    ) -> BackupReceipt:
        return self._database.back_up(target, progress, renew=renew)

    def hurry(self, seconds: float) -> None:
        self._database.hurry(seconds)

    def close(self) -> None:
        self._database.close()

    def step(self) -> None:
        """One more; raises when it is the one that shall fail."""
        self.steps += 1
        if self.fail_at is None:
            return
        if self.steps == self.fail_at or (self._lasting and self.steps > self.fail_at):
            raise self._error()


class _Stepped:
    """A transaction whose every call is a step."""

    def __init__(self, tx: Any, step: Callable[[], None]) -> None:
        self._tx = tx
        self._step = step

    @property
    def writes(self) -> int:
        writes: int = self._tx.writes
        return writes

    @property
    def unfolded(self) -> bool | None:
        unfolded: bool | None = self._tx.unfolded
        return unfolded

    def __getattr__(self, name: str) -> Any:
        self._step()
        return getattr(self._tx, name)


def crash(store: Store | AsyncStore) -> None:
    """Make a store's process, as others see it, die now."""
    runtime = store._core.runtime()
    runtime.closed = True  # finalisers enqueue nothing any more
    for turn in list(runtime._turns.values()):
        turn.over = True  # type: ignore[attr-defined]
    runtime.writer._commit = lambda ops: None  # type: ignore[method-assign]
    runtime.writer._fold_last = lambda: None  # type: ignore[method-assign]
    runtime.writer.close(timeout=30)
    runtime.watcher.close()
    runtime.database.close()
