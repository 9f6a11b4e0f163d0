"""What a search finds."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, overload

import msgspec

from killick.model.sessions import moment


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was found, and why.

    `seq` is the message's place in its session. `snippet` is a piece of its text in one line, fit
    to be printed; `matches` are the places in it, from and to. `role` is that of the message, or
    `summary` for the summary of a compaction. `rewound` and `hidden` say that a transcript does
    not show it.
    """

    session_id: str
    title: str | None
    seq: int
    message_id: str
    turn_id: str | None
    role: Literal["user", "assistant", "tool", "system", "summary"]
    state: Literal["complete", "partial"]
    at_us: int
    snippet: str
    matches: tuple[tuple[int, int], ...] = ()
    rewound: bool = False
    hidden: bool = False

    @property
    def at(self) -> datetime:
        """When the message was recorded, or ended."""
        return moment(self.at_us)

    def marked(self, before: str, after: str) -> str:
        """The snippet with something before and after each match."""
        pieces, at = [], 0
        for start, end in self.matches:
            pieces += [self.snippet[at:start], before, self.snippet[start:end], after]
            at = end
        return "".join([*pieces, self.snippet[at:]])


class Hits(Sequence[Hit]):
    """What a search found, in order.

    `behind` is how many entries the index does not have yet, so that they could not be found; 0
    when it is complete. `damaged` are sessions with a hit that could not be read.
    """

    def __init__(self, hits: Sequence[Hit], behind: int, damaged: Sequence[str] = ()) -> None:
        self._hits = tuple(hits)
        self.behind = behind
        self.damaged = tuple(damaged)

    @overload
    def __getitem__(self, at: int) -> Hit: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Hit]: ...
    def __getitem__(self, at: int | slice) -> Hit | Sequence[Hit]:
        return self._hits[at]

    def __len__(self) -> int:
        return len(self._hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self._hits)

    def __repr__(self) -> str:
        return f"<Hits {len(self)} behind={self.behind}>"
