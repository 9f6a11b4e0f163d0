"""Deltas on their way to the disk: one bounded buffer for each open stream.

A caller's thread adds, the writer's thread takes. What was taken stays here until its transaction
has committed and comes back when it was rolled back, so a failed flush loses nothing.
"""

from collections import deque
from typing import Final, Protocol

from killick.errors import HandleClosed, InvalidEntry, KillickError, StoreDegraded
from killick.journal.codec import encode
from killick.model.entries import Delta
from killick.model.limits import BODY_BYTES_MAX, FLUSH_BYTES, STREAM_BUFFER_BYTES
from killick.model.messages import Opaque
from killick.stores.contract import Claim

_STREAM_BYTES_MAX: Final = BODY_BYTES_MAX // 2
"""The most a stream may become; encoded as an entry it is at most about twice as long."""


class Wake(Protocol):
    """Tells the writer that a buffer has something in it."""

    def within_window(self, buffer: "StreamBuffer") -> None: ...
    def at_once(self) -> None: ...


class StreamBuffer:
    """The deltas of one stream that are not on the disk yet."""

    __slots__ = (
        "_added",
        "_flush_bytes",
        "_limit",
        "_pending",
        "_taken",
        "_wake",
        "_written",
        "admitted_at",
        "admitted_by",
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
        self.admitted_by: object = None  # the state of its session, as the writer knew it then
        self.admitted_at = 0
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
        """Return the size of a delta that may be added. Raises if the disk is behind or failed."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        text = delta.text
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if isinstance(delta.head, Opaque):
            size += len(delta.head.data)
        if delta.extra is not None:
            size += len(encode(delta.extra))
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

        If interrupted: the delta was handed over or it was not. The caller counts its text before
        it calls: text that overlaps would be passed over, a gap is none when it is read.
        """
        self._pending.append((delta, size))
        # Checked only now: the writer closes before it takes, so it may not have seen this delta.
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
        """Take what is not on the disk nor taken in this transaction. Only for the writer."""
        self.armed = self.urgent = False
        fresh = []
        while self._pending:
            fresh.append(self._pending.popleft())
        self._taken.append(fresh)
        self.number += bool(fresh)
        return [delta for delta, _ in fresh]

    def give_back(self) -> None:
        """Put what was taken last back, before what came since: it was not written.

        Its number is not used again: a commit that failed may be stored after all.
        """
        self._pending.extendleft(reversed(self._taken.pop()))

    def settle(self) -> None:
        """Drop what was taken: its transaction has committed."""
        for fresh in self._taken:
            for _, size in fresh:
                self._written += size
        self._taken.clear()
        self.error = None
