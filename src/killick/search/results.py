"""Searches the index, and shows what was found in snippets."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import Final, Literal, overload

import msgspec

from killick.errors import SessionDamaged, SessionNotFound
from killick.journal.kinds import HISTORY
from killick.journal.visibility import History
from killick.model.sessions import moment
from killick.search.documents import document
from killick.search.port import (
    Document,
    FoundRole,
    Lineage,
    Search,
    SearchedJournal,
    SearchedSession,
)
from killick.search.query import Phrase, occurs, phrases
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
    role: FoundRole
    state: Literal["complete", "partial"]
    at_us: int
    snippet: str
    matches: tuple[tuple[int, int], ...] = ()
    rewound: bool = False
    hidden: bool = False

    @property
    def at(self) -> datetime:
        """The time at which the message was recorded, or ended."""
        return moment(self.at_us)

    def marked(self, before: str, after: str) -> str:
        """Return the snippet with something before and after each match."""
        pieces, at = [], 0
        for start, end in self.matches:
            pieces += [self.snippet[at:start], before, self.snippet[start:end], after]
            at = end
        return "".join([*pieces, self.snippet[at:]])


class Hits(Sequence[Hit]):
    """The hits of a search, in order.

    `behind` is how many entries the index does not have yet, so that they could not be found; 0
    when it is complete. `damaged` are sessions with a hit that could not be read. `ranked` is how
    many matches, the newest, were compared for `order="best"` when there were more; else None.
    """

    def __init__(
        self,
        hits: Sequence[Hit],
        behind: int,
        damaged: Sequence[str] = (),
        ranked: int | None = None,
    ) -> None:
        self._hits = tuple(hits)
        self.behind = behind
        self.damaged = tuple(damaged)
        self.ranked = ranked

    @overload
    def __getitem__(self, at: int) -> Hit: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Hit]: ...
    def __getitem__(self, at: int | slice) -> Hit | Sequence[Hit]:
        return self._hits[at]

    def __len__(self) -> int:
        return len(self._hits)

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
    """Cut a piece around the first of these phrases, with their ranges; None without any."""
    places = _places(text, wanted)
    first = next(places, None)
    if first is None:
        return None
    start = max(0, first[0] - _BEFORE)
    end = start + SNIPPET_CHARS
    shown = [first]
    for span in places:
        if span[1] > end:
            break
        shown.append(span)
    return cut(text, start, end, shown)


def substring_snippet(text: str, wanted: str) -> tuple[str, Ranges] | None:
    """Do the same for a text that was looked for as it is, but for case and accents."""
    if wanted not in unbroken(text):
        return None
    match = re.compile(re.escape(wanted), re.IGNORECASE).search(text)
    # Folding may change lengths; where the range cannot be told, the beginning is shown.
    start, end = match.span() if match else (0, 0)
    first = max(0, start - _BEFORE)
    return cut(text, first, first + SNIPPET_CHARS, [(start, end)] if match else [])


def cut(text: str, start: int, end: int, places: Sequence[tuple[int, int]]) -> tuple[str, Ranges]:
    """Cut a piece of a text, fit to be printed, with the ranges in it."""
    pieces: list[str] = ["…"] if start else []
    length = len(pieces)
    ranges: list[tuple[int, int]] = []
    at = start
    for first, last in [*places, (min(end, len(text)), None)]:
        between = printable(text[at:first])
        pieces.append(between)
        length += len(between)
        if last is not None:
            match = printable(text[first : min(last, end)])
            pieces.append(match)
            ranges.append((length, length + len(match)))
            length += len(match)
            at = min(last, end)
    if end < len(text):
        pieces.append("…")
    return "".join(pieces), tuple(ranges)


def printable(text: str) -> str:
    """Put a text in one line, without what is no character or moves the others about."""
    shown = _unprintable().sub(" ", text)
    return shown.encode("utf-8", "replace").decode("utf-8") if not shown.isascii() else shown


def _places(text: str, wanted: Sequence[Phrase]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the phrases, in order, without overlaps."""
    # Nearly every word is none that a phrase ends with, and is passed over at once.
    exact = frozenset(phrase.words[-1] for phrase in wanted if not phrase.prefix)
    begin = tuple(phrase.words[-1] for phrase in wanted if phrase.prefix)
    longest_first = sorted(wanted, key=lambda phrase: -len(phrase.words))
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
    """Return where the longest phrase begins that ends with the last of these words."""
    texts = [word.text for word in window]
    for phrase in wanted:
        at = len(texts) - len(phrase.words)
        if at >= 0 and occurs(phrase, texts, at):
            return window[at].start
    return None


# -- searching ---------------------------------------------------------------------------------


def search(reader: SearchedJournal, wanted: Search) -> Hits:
    """Return the hits, as of one moment. Raises SearchDamaged, SessionNotFound."""
    lineage, asked = None, None
    if wanted.session is not None:
        asked = reader.find_session(wanted.tenant, wanted.session)
        if asked is None or asked.about.deleted:
            raise SessionNotFound(f"no session {wanted.session!r} to search in")
        lineage = _lineage(reader, asked)
    behind = reader.index_behind()
    hits, damaged = [], []
    shown = _Shown(reader, wanted, asked)
    places, ranked = reader.find_documents(wanted, lineage)
    for key, seq in places:
        try:
            hit = shown.hit(key, seq)
        except SessionDamaged as error:
            damaged.append(error.session_id)
            continue
        if hit is not None:
            hits.append(hit)
    return Hits(hits, behind, tuple(dict.fromkeys(damaged)), ranked)


def _lineage(reader: SearchedJournal, row: SearchedSession) -> list[Lineage]:
    """Return the session and those whose entries it begins with, each as far as it reaches."""
    reach, lineage = row.head, []
    current: SearchedSession | None = row
    while current is not None:
        lineage.append(Lineage(current.key, reach))
        if current.base is None:
            break
        reach = min(reach, current.base_seq)
        current = reader.session(current.base)
    return lineage


class _Shown:
    """Makes hits of what was found, reading each session's row and history once."""

    def __init__(
        self, reader: SearchedJournal, wanted: Search, asked: SearchedSession | None
    ) -> None:
        self._reader = reader
        self._wanted = wanted
        self._asked = asked
        self._sessions: dict[int, tuple[SearchedSession, History]] = {}

    def hit(self, key: int, seq: int) -> Hit | None:
        # What a fork has inherited is shown under the name of the fork.
        row, history = self._session(key if self._asked is None else self._asked.key)
        entries = self._reader.entries(key, after=seq - 1, limit=1)
        if not entries or entries[0].seq != seq:
            return None
        made = document(entries[0], lambda identity: self._reader.find_entry(key, identity))
        if made is None:
            return None
        shown, matches = self._snippet(made)
        return Hit(
            session_id=row.id,
            title=row.about.title,
            seq=made.place,
            message_id=made.id,
            turn_id=made.turn_id,
            role=made.role,
            state=made.state,
            at_us=made.at_us,
            snippet=shown,
            matches=matches,
            rewound=not history.is_in_view(made.seq),
            hidden=made.place in history.hides("person").places,
        )

    def _session(self, key: int) -> tuple[SearchedSession, History]:
        known = self._sessions.get(key)
        if known is None:
            row = self._reader.session(key)
            assert row is not None
            known = (row, History(self._reader.marked_entries(key, HISTORY)))
            self._sessions[key] = known
        return known

    def _snippet(self, made: Document) -> tuple[str, Ranges]:
        query = self._wanted.query
        texts = [made.text, made.reasoning] if self._wanted.reasoning else [made.text]
        for text in texts:
            if isinstance(query, str):
                shown = substring_snippet(text, query)
            else:
                shown = snippet(text, phrases(query))
            if shown is not None:
                return shown
        return cut(texts[0], 0, SNIPPET_CHARS, [])
