"""Whether the holder of a lease is alive: its lease, and beside it its lock.

A holder that reaches its server without a pooler keeps an advisory lock on a connection of its own;
the server frees it when the connection ends. Rule 1: a lease that is over, or was given back, is
decisive. Rule 2: a held lock proves nothing, a frozen process holds one too. Rule 3: a holder is
dead before its lease is over only if its lock was free at two looks that are half a second apart,
and its lease was not renewed in between: one that lives and has lost its connection takes the lock
again on another, and renews.
"""

from typing import Final, Literal, NamedTuple

APART_SECONDS: Final = 0.5
"""Between two looks that find the lock free; a living holder has taken it again by then."""

_KEPT: Final = 1_024

Verdict = Literal["alive", "dead", "doubt"]


class Look(NamedTuple):
    """The server's answer about one holder at one moment."""

    until_us: int
    """The end of its lease, by the server's clock; another one after every renewal."""
    over: bool
    locked: bool | None
    """Whether its lock is held; None when it has none on this server: only the lease counts."""
    at: float
    """The moment, on a clock of this process that only goes forward."""


def judge(earlier: Look | None, now: Look | None) -> Verdict:
    """Decide by the last look, and by an earlier one that found the lock free, if there is one."""
    if now is None or now.over:
        return "dead"
    if now.locked is not False:
        return "alive"
    if earlier is None or earlier.until_us != now.until_us:
        return "doubt"
    return "dead" if now.at - earlier.at >= APART_SECONDS else "doubt"


class Looks:
    """The looks of one opening that found a lock free; all of its threads share them."""

    def __init__(self, own: str) -> None:
        self.own = own
        self._free: dict[str, Look] = {}

    def is_alive(self, holder: str, now: Look | None) -> bool:
        """Tell whether a holder lives, as far as is known after this look; in doubt it does."""
        earlier = self._free.get(holder)
        verdict = judge(earlier, now)
        if verdict == "alive":
            self._free.pop(holder, None)
        elif now is not None and (earlier is None or earlier.until_us != now.until_us):
            self._keep(holder, now)
        return verdict != "dead"

    def _keep(self, holder: str, look: Look) -> None:
        if len(self._free) >= _KEPT:
            self._free.clear()  # each is in doubt anew when it is next looked at
        self._free[holder] = look

    def doubt(self, holder: str, now: float) -> float:
        """Return after how many seconds a holder in doubt is to be looked at again; else 0."""
        look = self._free.get(holder)
        return 0.0 if look is None else max(0.01, look.at + APART_SECONDS - now)
