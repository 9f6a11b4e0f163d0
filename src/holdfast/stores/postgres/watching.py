"""Noticing what others have committed to the sessions that somebody here waits for.

Asking is the guarantee: one statement for all of these sessions, five times a second. A notice only
makes the next question come at once. Behind a pooler there are none, and asking is all there is.

Of a session that is only run here nobody is asked for notices of everything: most of its commits
are our own. A stop is announced in any case.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection
from hashlib import blake2b
from typing import Any, Final

import psycopg

from holdfast.errors import HoldfastError
from holdfast.stores.postgres.connection import Line, run
from holdfast.stores.postgres.keys import columns, of
from holdfast.stores.postgres.leases import channel
from holdfast.stores.postgres.pool import Pool
from holdfast.stores.postgres.queries import Queries

POLL_SECONDS: Final = 0.2
_WANTED_SECONDS: Final = 60.0
"""For how long the writers of a session are asked to send notices; asked again at half of it."""

_FEW: Final = 4
_LISTEN_SECONDS: Final = 0.5
_BUSY_SECONDS: Final = 0.005
_RETRY_SECONDS: Final = 5.0


class Watching:
    """The change mark of one opening."""

    def __init__(self, pool: Pool, connect: Callable[[], Line], sql: Queries, schema: str) -> None:
        self._pool = pool
        self._connect = connect
        self._sql = sql
        self._schema = schema
        self._keys: frozenset[int] = frozenset()
        self._followed: frozenset[int] = frozenset()
        self._mark = 0
        self._asked_at = 0.0
        self._noticed = False
        self._mutex = threading.Lock()
        self._changed = threading.Event()
        self._listener: threading.Thread | None = None
        self._deaf = False
        self._closed = False

    def watch(self, followed: Collection[int], running: Collection[int]) -> None:
        with self._mutex:
            self._followed = frozenset(followed) - {0}
            self._keys = self._followed.union(running) - {0}
            self._noticed = True
            self._changed.set()
            if self._keys and self._listener is None and not (self._deaf or self._closed):
                self._listener = threading.Thread(
                    target=self._listen, name="holdfast-listener", daemon=True
                )
                self._listener.start()

    def mark(self) -> int:
        """Moves when one of the watched sessions has changed; asks the server when it is time."""
        now = time.monotonic()
        if not self._noticed and now - self._asked_at < POLL_SECONDS:
            return self._mark
        self._asked_at, self._noticed = now, False
        keys = sorted(self._keys)
        if keys:
            with self._pool.reading() as line:
                rows = self._ask(line, keys)
            found = blake2b(repr(rows).encode(), digest_size=7).digest()
            self._mark = int.from_bytes(found)
        return self._mark

    def _ask(self, line: Line, keys: list[int]) -> list[Any]:
        if len(keys) > _FEW:
            return run(line.connection, self._sql.marks, columns(keys)).fetchall()
        cursors = [run(line.connection, self._sql.marks_of_one, of(key)) for key in keys]
        return [cursor.fetchall() for cursor in cursors]

    def close(self) -> None:
        self._closed = True
        self._changed.set()
        if self._listener is not None and self._listener is not threading.current_thread():
            self._listener.join(5)

    # -- the thread that listens ---------------------------------------------------------------

    def _listen(self) -> None:
        """Lives as long as there is something to listen to, and ends with it."""
        line: Line | None = None
        heard: frozenset[int] = frozenset()
        wanted: frozenset[int] = frozenset()
        wanted_at = 0.0
        while True:
            with self._mutex:
                keys, followed = self._keys, self._followed
                if self._closed or not keys or self._deaf:
                    self._listener = None
                    break
            try:
                if line is None:
                    line, heard, wanted = self._connect(), frozenset(), frozenset()
                    self._deaf = line.pooled
                    continue
                if keys != heard:
                    self._tune(line, heard, keys)
                    heard = keys
                seconds = _LISTEN_SECONDS
                if followed != wanted or time.monotonic() - wanted_at > _WANTED_SECONDS / 2:
                    if self._ask_for_notices(line, followed):
                        wanted, wanted_at = followed, time.monotonic()
                    else:
                        seconds = _BUSY_SECONDS
                self._hear(line, seconds)
            except (psycopg.Error, HoldfastError):
                if line is not None:
                    line.close()
                    line = None
                self._changed.clear()
                self._changed.wait(_RETRY_SECONDS)
        if line is not None:
            with contextlib.suppress(psycopg.Error):
                line.close()

    def _tune(self, line: Line, heard: frozenset[int], keys: frozenset[int]) -> None:
        for key in heard - keys:
            run(line.connection, f'UNLISTEN "{channel(self._schema, key)}"')
        for key in keys - heard:
            run(line.connection, f'LISTEN "{channel(self._schema, key)}"')
        self._noticed = True  # what came before is found by asking once more

    def _ask_for_notices(self, line: Line, followed: frozenset[int]) -> bool:
        """False when some of the sessions were being written to, and have not heard of it."""
        if not followed:
            return True
        asked = {**columns(sorted(followed)), "seconds": _WANTED_SECONDS}
        row = run(line.connection, self._sql.want_notice, asked).fetchone()
        assert row is not None
        return bool(row[0] == 0)

    def _hear(self, line: Line, seconds: float) -> None:
        """In short rounds, so that a change of what is watched is not kept waiting for long."""
        deadline = time.monotonic() + seconds
        self._changed.clear()
        while not self._changed.is_set() and time.monotonic() < deadline:
            for _ in line.connection.notifies(timeout=min(0.05, seconds), stop_after=1):
                self._noticed = True
