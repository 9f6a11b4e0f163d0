"""Deltas on their way to the disk: one bounded buffer for each open stream.

A caller's thread adds, the writer's thread takes. What was taken stays here until its transaction
has committed and comes back when it was rolled back, so a failed flush loses nothing.
"""

from collections import deque
from typing import Final, Protocol

from killick.errors import HandleClosed, InvalidEntry, KillickError, StoreDegraded
from killick.model.entries import Delta
from killick.model.limits import BODY_BYTES_MAX, FLUSH_BYTES, STREAM_BUFFER_BYTES
from killick.model.messages import Opaque
from killick.stores.contract import Claim

_STREAM_BYTES_MAX: Final = BODY_BYTES_MAX // 2
"""What a stream may become; encoded as an entry it is at most about twice as long."""


class Wake(Protocol):
    """How a buffer tells the writer that it has something in it."""

    def within_window(self, buffer: "StreamBuffer") -> None: ...
    def at_once(self) -> None: ...


class StreamBuffer:
    """What one stream was given and the disk does not have yet."""

    __slots__ = (
        "_added",
        "_flush_bytes",
        "_limit",
        "_pending",
        "_taken",
        "_wake",
        "_written",
        "armed",
        "claim",
        "closed",
        "error",
        "key",
        "number",
        "seq",
        "urgent",
    )

    def __init__(
        self,
        *,
        key: int,
        seq: int,
        claim: Claim,
        wake: Wake,
        limit: int = STREAM_BUFFER_BYTES,
        flush_bytes: int = FLUSH_BYTES,
    ) -> None:
        self.key = key
        self.seq = seq
        self.claim = claim
        self.number = 0
        self.error: KillickError | None = None
        self.closed = False
        self.armed = False
        self.urgent = False
        self._wake = wake
        self._limit = limit
        self._flush_bytes = flush_bytes
        self._pending: deque[tuple[Delta, int]] = deque()
        self._taken: list[list[tuple[Delta, int]]] = []
        self._added = 0
        self._written = 0

    def admit(self, delta: Delta) -> int:
        """How large a delta is that may be added. Raises when the disk cannot keep up or failed."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        text = delta.text
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if isinstance(delta.head, Opaque):
            size += len(delta.head.data)
        waiting = self._added - self._written
        if waiting + size > self._limit and waiting:
            raise StoreDegraded(
                f"{waiting} bytes of this stream wait for the disk, over the limit of "
                f"{self._limit}; the delta was not taken: wait, or stop the stream"
            )
        if self._added + size > _STREAM_BYTES_MAX:
            raise InvalidEntry(
                f"the stream has {self._added} bytes; at most {_STREAM_BYTES_MAX} are kept in one, "
                "so begin another message"
            )
        return size

    def add(self, delta: Delta, size: int) -> None:
        """Hand a delta over that was admitted; does not wait.

        If interrupted: the delta was handed over or it was not. Whoever counts what was handed over
        counts it before: text that overlaps would be passed over, a gap is none when it is read.
        """
        self._pending.append((delta, size))
        # Asked only now: the writer first closes, then takes, so what it closed before this it may
        # not have seen.
        if self.closed:
            raise HandleClosed("the stream was ended on another thread; this delta may be lost")
        self._added += size
        if not self.armed:
            self.armed = True
            try:
                self._wake.within_window(self)
            except BaseException:
                self.armed = False  # the writer may not know: the next delta tells it again
                raise
        if self._added - self._written >= self._flush_bytes and not self.urgent:
            self.urgent = True
            self._wake.at_once()

    def take(self) -> list[Delta]:
        """What is not on the disk and was not taken in this transaction. Only for the writer."""
        self.armed = self.urgent = False
        fresh = []
        while self._pending:
            fresh.append(self._pending.popleft())
        self._taken.append(fresh)
        self.number += bool(fresh)
        return [delta for delta, _ in fresh]

    def give_back(self) -> None:
        """What was taken last was not written: it waits again, before what came since."""
        fresh = self._taken.pop()
        self._pending.extendleft(reversed(fresh))
        self.number -= bool(fresh)

    def settle(self) -> None:
        """The transaction has committed: what was taken is durable."""
        for fresh in self._taken:
            for _, size in fresh:
                self._written += size
        self._taken.clear()
        self.error = None
