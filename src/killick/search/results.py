"""What a search finds."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import Final, Literal, overload

import msgspec

from killick.model.sessions import moment
from killick.search.query import Phrase, occurs
from killick.search.words import Word, unbroken, words


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


SNIPPET_CHARS: Final = 160
_BEFORE: Final = 60
"""How much of the text stands before what was found."""

Ranges = tuple[tuple[int, int], ...]


@cache
def _unprintable() -> re.Pattern[str]:
    controls = "\x00-\x20\x7f-\xa0\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb"
    return re.compile(f"[{controls}]+")


def snippet(text: str, wanted: Sequence[Phrase]) -> tuple[str, Ranges] | None:
    """A piece around the first of these phrases, and where they are in it; None without any."""
    places = _places(text, wanted)
    first = next(places, None)
    if first is None:
        return None
    start = max(0, first[0] - _BEFORE)
    end = start + SNIPPET_CHARS
    shown = [first]
    for place in places:
        if place[1] > end:
            break
        shown.append(place)
    return cut(text, start, end, shown)


def substring_snippet(text: str, wanted: str) -> tuple[str, Ranges] | None:
    """The same for a text that was looked for as it is, but for case and accents."""
    if wanted not in unbroken(text):
        return None
    found = re.compile(re.escape(wanted), re.IGNORECASE).search(text)
    # Folding may change lengths; where the place cannot be told, the beginning is shown.
    start, end = found.span() if found else (0, 0)
    first = max(0, start - _BEFORE)
    return cut(text, first, first + SNIPPET_CHARS, [(start, end)] if found else [])


def cut(text: str, start: int, end: int, places: Sequence[tuple[int, int]]) -> tuple[str, Ranges]:
    """A piece of a text, fit to be printed, with the places in it."""
    pieces: list[str] = ["…"] if start else []
    length = len(pieces)
    ranges: list[tuple[int, int]] = []
    at = start
    for first, last in [*places, (min(end, len(text)), None)]:
        between = printable(text[at:first])
        pieces.append(between)
        length += len(between)
        if last is not None:
            found = printable(text[first : min(last, end)])
            pieces.append(found)
            ranges.append((length, length + len(found)))
            length += len(found)
            at = min(last, end)
    if end < len(text):
        pieces.append("…")
    return "".join(pieces), tuple(ranges)


def printable(text: str) -> str:
    """Text in one line, without what is no character or moves the others about."""
    shown = _unprintable().sub(" ", text)
    return shown.encode("utf-8", "replace").decode("utf-8") if not shown.isascii() else shown


def _places(text: str, wanted: Sequence[Phrase]) -> Iterator[tuple[int, int]]:
    """Where the phrases are, in order, without overlaps."""
    # Nearly every word is none that a phrase ends with, and is passed over at once.
    exact = frozenset(one.words[-1] for one in wanted if not one.prefix)
    begin = tuple(one.words[-1] for one in wanted if one.prefix)
    longest_first = sorted(wanted, key=lambda one: -len(one.words))
    window: deque[Word] = deque(maxlen=len(longest_first[0].words))
    reached = 0
    for word in words(text):
        window.append(word)
        if word.text in exact or word.text.startswith(begin):
            start = _start(window, longest_first)
            if start is not None and start >= reached:
                yield start, word.end
                reached = word.end


def _start(window: Sequence[Word], wanted: Sequence[Phrase]) -> int | None:
    """Where the longest phrase begins that ends with the last of these words."""
    texts = [word.text for word in window]
    for one in wanted:
        at = len(texts) - len(one.words)
        if at >= 0 and occurs(one, texts, at):
            return window[at].start
    return None
