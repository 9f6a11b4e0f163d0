"""The work behind the writers: slices of the search index and of the sums, on the writer's thread.

Each slice is a transaction of its own, so that it fails no caller.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from killick.errors import SearchDamaged
from killick.search.documents import read_batch
from killick.search.port import Batch
from killick.stores.contract import Database
from killick.stores.engine import count_sessions, index, index_is_damaged
from killick.stores.engine.state import Op
from killick.stores.log import log

T = TypeVar("T")

CLOSE_SECONDS: Final = 1.0
"""How long a thread that ends brings up what is behind it, at most."""


class Broken(Exception):
    """An operation failed after it had written; the transaction is not worth keeping."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Schedule(Protocol):
    """Is told how slices went, and says when the next one is due."""

    due: float | None

    def done(self, *, more: bool) -> None: ...
    def passed_over(self) -> None: ...
    def failed(self, error: BaseException) -> None: ...


class Behind:
    """Takes slices. Each method returns False if nothing more is to be done, or not now."""

    def __init__(
        self,
        database: Database,
        transact: Callable[[Sequence[Op[Any]]], object],
        schedule: Schedule,
        sum_schedule: Schedule,
    ) -> None:
        self._database = database
        self._transact = transact
        self._schedule = schedule
        self._sum_schedule = sum_schedule
        self._rest: Batch | None = None  # of what was read for a slice

    def index(self) -> bool:
        """Index one slice."""
        try:
            batch, self._rest = self._rest, None
            if batch is None or not batch.entries:
                with self._database.reading() as reader:
                    batch = read_batch(reader)
            if not batch.entries:
                self._schedule.done(more=False)
                return False
            self._rest = self._take(Op(lambda engine: index(engine, batch)), self._schedule)
        except BaseException as error:  # noqa: BLE001  (raised by the next search)
            self._indexing_failed(_cause(error))
            return False
        return self._rest is not None

    def count(self) -> bool:
        """Count one slice of sessions."""
        try:
            with self._database.reading() as reader:
                behind = bool(reader.uncounted(None, 1))
            if not behind:
                self._sum_schedule.done(more=False)
                return False
            return self._take(Op(count_sessions), self._sum_schedule)
        except BaseException as error:  # noqa: BLE001  (a report says that it is behind)
            self._sum_schedule.failed(_cause(error))
            return False

    def _take(self, op: Op[T], schedule: Schedule) -> T:
        self._transact([op])
        taken = op.result()
        if taken:
            schedule.done(more=True)
        else:
            schedule.passed_over()
        return taken

    def bring_up(self) -> None:
        """Index and count what is left, for a second at most, waiting for writers included."""
        end = time.monotonic() + CLOSE_SECONDS
        for schedule, take in ((self._schedule, self.index), (self._sum_schedule, self.count)):
            more = schedule.due is not None
            while more and (left := end - time.monotonic()) > 0:
                self._database.hurry(left)
                more = take()

    def _indexing_failed(self, error: BaseException) -> None:
        self._schedule.failed(error)
        if isinstance(error, SearchDamaged) and error.__cause__ is not None:
            reason = str(error.__cause__)
            log(logging.WARNING, "search index damaged", error=reason)
            with contextlib.suppress(Exception):  # then the next search finds it
                self._transact([Op(lambda engine: index_is_damaged(engine, reason))])


def _cause(error: BaseException) -> BaseException:
    return error.cause if isinstance(error, Broken) else error
