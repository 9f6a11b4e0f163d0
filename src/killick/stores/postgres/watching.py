"""Noticing what others have committed to the sessions that somebody here waits for.

Asking is the guarantee: one statement for all of these sessions, five times a second while
something happens or while nobody would tell, once a second otherwise. A notice only makes the next
question come at once. Behind a pooler there are none, and asking is all there is.

Of a session that is only run here nobody is asked for notices of everything: most of its commits
are our own. A stop is announced in any case.
"""

import contextlib
import threading
from collections.abc import Callable, Collection
from hashlib import blake2b
from typing import Any, Final

from killick.stores.base import Pace
from killick.stores.postgres.connection import Line, run
from killick.stores.postgres.keys import columns, of
from killick.stores.postgres.listening import Listener, Wanted
from killick.stores.postgres.pool import Pool
from killick.stores.postgres.queries import Queries

_UNTOLD: Final = Pace(busy=0.2, quiet=0.2)
_TOLD: Final = Pace(busy=0.2, quiet=1.0)
_FEW: Final = 4
_NOTHING: Final = Wanted(frozenset(), frozenset())


class Watching:
    """The change mark of one opening."""

    def __init__(self, pool: Pool, connect: Callable[[], Line], sql: Queries, schema: str) -> None:
        self._pool = pool
        self._connect = connect
        self._sql = sql
        self._schema = schema
        self._wanted = _NOTHING
        self._mutex = threading.Lock()
        self._listener: Listener | None = None
        self._deaf = False
        self._closed = False

    def watch(
        self, followed: Collection[int], running: Collection[int], notice: Callable[[], None]
    ) -> None:
        with self._mutex:
            every = frozenset(followed) - {0}
            self._wanted = Wanted(every.union(running) - {0}, every)
            listener = self._listener
            # Nothing is done about what is not wanted any more: the next turn may want it again.
            if listener is not None and not listener.serves(self._wanted):
                listener.call()
            if listener is None and self._wanted.keys and not (self._deaf or self._closed):
                self._listen(notice)

    def _listen(self, notice: Callable[[], None]) -> None:
        # If no file is left, it is asked for until somebody comes who finds one.
        with contextlib.suppress(OSError):
            self._listener = Listener(
                self._connect, self._sql, self._schema, wanted=self._still_wanted, notice=notice
            )

    def _still_wanted(self, listener: Listener) -> Wanted | None:
        with self._mutex:
            self._deaf = self._deaf or listener.deaf
            if self._wanted.keys and not (self._deaf or self._closed):
                return self._wanted
            self._listener = None
            return None

    def pace(self) -> Pace:
        listener = self._listener
        return _TOLD if listener is not None and listener.serves(self._wanted) else _UNTOLD

    def mark(self) -> int:
        """Another number when one of the watched sessions has changed."""
        keys = sorted(self._wanted.keys)
        if not keys:
            return 0
        rows = self._pool.ask(lambda line: self._ask(line, keys))
        return int.from_bytes(blake2b(repr(rows).encode(), digest_size=7).digest())

    def _ask(self, line: Line, keys: list[int]) -> list[Any]:
        if len(keys) > _FEW:
            return run(line.connection, self._sql.marks, columns(keys)).fetchall()
        cursors = [run(line.connection, self._sql.marks_of_one, of(key)) for key in keys]
        return [cursor.fetchall() for cursor in cursors]

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            listener = self._listener
        if listener is not None:
            listener.call()
            listener.join(5)
