"""Follow a file of lines that name the line before them: where it goes back to an earlier one."""

from collections.abc import Iterator
from typing import Final

from killick.exchange import records as r
from killick.exchange.records import SourceLocation

_ALL_TURNS: Final = 1 << 40


class Tree:
    """The messages on the way to the newest line, and the message that each line follows."""

    def __init__(self) -> None:
        self._message_at: dict[str, str | None] = {}
        self.path: list[str] = []

    def pass_by(self, own: object, parent: object) -> None:
        """Note a line that is no message: it stands where the line before it does."""
        if isinstance(own, str):
            tip = self.path[-1] if self.path else None
            at = self._message_at.get(parent, tip) if isinstance(parent, str) else tip
            self._message_at.setdefault(own, at)

    def add(self, own: object, key: str) -> None:
        """Note a message, which is the newest now."""
        self.path.append(key)
        if isinstance(own, str):
            self._message_at.setdefault(own, key)

    def since(self, own: object) -> list[str]:
        """Return the messages on the way from this line on."""
        key = self._message_at.get(own) if isinstance(own, str) else None
        return self.path[self.path.index(key) :] if key in self.path else []

    def go_to(self, location: SourceLocation, parent: object) -> Iterator[r.Record]:
        """Go back to where a message stands, if that is not behind the newest."""
        if not self.path or not (parent is None or isinstance(parent, str)):
            return
        if parent is not None and parent not in self._message_at:
            return  # its line was lost
        key = None if parent is None else self._message_at[parent]
        if key == self.path[-1]:
            return
        if key is None:
            self.path = []
            yield r.RollbackRecord(location=location, turns=_ALL_TURNS)
        elif key in self.path:
            del self.path[self.path.index(key) + 1 :]
            yield r.BranchRecord(location=location, key=key)
        else:
            what = "it goes on from a branch that was left before, which stays out of view"
            yield r.ProblemRecord(location=location, reason=what, repaired=True)
