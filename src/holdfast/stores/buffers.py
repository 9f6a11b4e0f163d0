"""Deltas on their way to the disk: one bounded buffer for each open stream.

A caller's thread adds, the writer's thread takes. What was taken stays here until its transaction
has committed and comes back when it was rolled back, so a failed flush loses nothing.
"""

from collections import deque
from typing import Protocol

from holdfast.errors import HoldfastError, StoreDegraded
from holdfast.model.entries import Delta
from holdfast.model.limits import FLUSH_BYTES, STREAM_BUFFER_BYTES


class Wake(Protocol):
    """How a buffer tells the writer that it has something in it."""

    def within_window(self, buffer: "StreamBuffer") -> None: ...
    def at_once(self) -> None: ...


class StreamBuffer:
    """What one stream was given and the disk does not have yet."""

    __slots__ = (
        "_added",
        "_limit",
        "_pending",
        "_settled",
        "_taken",
        "_wake",
        "_written",
        "armed",
        "closed",
        "error",
        "fence",
        "key",
        "number",
        "seq",
        "turn_id",
        "urgent",
    )

    def __init__(
        self,
        *,
        key: int,
        seq: int,
        turn_id: str,
        fence: int,
        wake: Wake,
        limit: int = STREAM_BUFFER_BYTES,
    ) -> None:
        self.key = key
        self.seq = seq
        self.turn_id = turn_id
        self.fence = fence
        self.number = 0
        self.error: HoldfastError | None = None
        self.closed = False
        self.armed = False
        self.urgent = False
        self._wake = wake
        self._limit = limit
        self._pending: deque[Delta] = deque()
        self._taken: list[Delta] = []
        self._settled = 0
        self._added = 0
        self._written = 0

    def add(self, delta: Delta, size: int) -> None:
        """Hand a delta over; does not wait. Raises when the disk cannot keep up or has failed.

        If interrupted: the delta was handed over or it was not; nothing is half there.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        waiting = self._added - self._written
        if waiting + size > self._limit and waiting:
            raise StoreDegraded(
                f"{waiting} characters of this stream wait for the disk, over the limit of "
                f"{self._limit}; the delta was not taken: wait, or stop the stream"
            )
        self._pending.append(delta)
        self._added += size
        if not self.armed:
            self.armed = True
            self._wake.within_window(self)
        if waiting + size >= FLUSH_BYTES and not self.urgent:
            self.urgent = True
            self._wake.at_once()

    def take(self) -> list[Delta]:
        """What is not on the disk and was not taken in this transaction. Only for the writer."""
        self.armed = self.urgent = False
        fresh = []
        while self._pending:
            fresh.append(self._pending.popleft())
        if fresh:
            self._taken.extend(fresh)
            self.number += 1
        return fresh

    def settle(self) -> None:
        """The transaction has committed: what was taken is durable."""
        self._written += sum(len(delta.text) for delta in self._taken)
        self._taken.clear()
        self._settled = self.number
        self.error = None

    def restore(self) -> None:
        """The transaction was rolled back: what was taken waits again, before what came since."""
        self._pending.extendleft(reversed(self._taken))
        self._taken.clear()
        self.number = self._settled
