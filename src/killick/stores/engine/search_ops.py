"""Operations on the search index, and when the writer takes one of them up.

An index that is behind is brought up in idle moments. It waits until nothing was written for a
while; when writing never rests it takes a slice now and then all the same, but only when no
operation waits at that moment. An index that is complete costs nothing: nothing is polled.
"""

import time
from collections.abc import Callable
from typing import Final

from killick.errors import SearchDamaged, StoreReadOnly

_IDLE_SECONDS: Final = 0.1
_BUSY_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 5.0


class Idleness:
    """When the next slice is due, as far as this opening knows; None while there is no reason."""

    def __init__(self, *, wanted: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._wanted = wanted
        self._clock = clock
        self._behind_since: float | None = None
        self._resting = False
        # What others left behind is looked for once, when the opening has turned out to stay.
        self.due = clock() + _BUSY_SECONDS if wanted else None

    def wrote(self) -> None:
        """Something was committed, which the index does not have."""
        if not self._wanted or self._resting:
            return
        now = self._clock()
        if self._behind_since is None:
            self._behind_since = now
        self.due = min(now + _IDLE_SECONDS, self._behind_since + _BUSY_SECONDS)

    def is_due(self) -> bool:
        return self.due is not None and self._clock() >= self.due

    def indexed(self, *, more: bool) -> None:
        """A slice was taken."""
        self._behind_since = self._clock() if more else None
        self.due = self._behind_since

    def passed_over(self) -> None:
        """Somebody else has what was read, or keeps it locked: look again in a moment."""
        self.due = self._clock() + _IDLE_SECONDS

    def failed(self, error: BaseException) -> None:
        """What is damaged, or may not be written, rests until asked for; anything else may pass."""
        self._resting = isinstance(error, SearchDamaged | StoreReadOnly)
        self._behind_since = None
        self.due = None if self._resting else self._clock() + _RETRY_SECONDS

    def wake(self) -> None:
        """Somebody searches, or has rebuilt: whatever was wrong is worth another try."""
        if self._wanted:
            self._resting = False
            self.wrote()
