"""Which entries are in view, after compactions, rewinds, hiding and their undoing.

Nothing of a journal is ever taken away; these entries say what a reader passes over. What belongs
together was decided when they were written (`journal.planning`), so reading needs nothing but seqs.

Rule 1: a rewind takes out what stands after `through`, up to the rewind. What began by then is
        kept whole: the rest of a message, and the results of its calls.
Rule 2: a compaction puts its summary where its range begins, and takes the messages that began in
        it, whole, out of what a model is sent. What `keep` names stays.
Rule 3: a compaction that reaches beyond a later rewind speaks of what was rewound, so it is out of
        view with it. One whose range lies inside that of a later one is replaced by it.
Rule 4: hiding follows a message, with everything that belongs to it, until it is shown again.
"""

from collections.abc import Iterable
from typing import Literal

from killick.journal.belonging import message_of
from killick.model import entries as e

Audience = Literal["person", "model"]


class Compaction:
    """A compaction in its place."""

    def __init__(self, seq: int, body: e.Compacted) -> None:
        self.seq = seq
        self.body = body
        self._keep = frozenset(body.keep)
        self._rest = frozenset(body.rest)

    def replaces(self, seq: int) -> bool:
        if self.body.first <= seq <= self.body.through:
            return seq not in self._keep
        return seq in self._rest

    def covers(self, earlier: "Compaction") -> bool:
        mine, other = self.body, earlier.body
        within = mine.first <= other.first and other.through <= mine.through
        return within and self.seq > earlier.seq


class Rewind:
    """A rewind in its place."""

    def __init__(self, seq: int, body: e.Rewound) -> None:
        self.seq = seq
        self.body = body
        self._keep = frozenset(body.keep)

    def drops(self, seq: int) -> bool:
        return self.body.through < seq < self.seq and seq not in self._keep


class Hidden:
    """The messages that somebody is not shown, by the places where they began."""

    def __init__(self, hidden: Iterable[e.Visibility]) -> None:
        hidden = list(hidden)
        self.places = {one.seq for one in hidden}
        self._seqs = {seq for one in hidden for seq in one.entries}
        self._ids = {one.message_id for one in hidden if one.entries}
        self._results = {one.message_id for one in hidden if not one.entries}

    def has(self, entry: e.Entry) -> bool:
        """Whether an entry belongs to a hidden message. A tool's result hides its content only."""
        if not self._ids:
            return False
        return entry.seq in self._seqs or message_of(entry.body) in self._ids

    def has_result(self, body: e.Body) -> bool:
        """Whether what a tool printed or returned is hidden, and this is about that tool."""
        if not self._results:
            return False
        match body:
            case e.ToolStarted() | e.ToolOutput() | e.LateText(call_id=str()):
                return f"{body.message_id}/{body.call_id}" in self._results
            case e.ToolFinished() | e.LateResult():
                return f"{body.message_id}/{body.result.call_id}" in self._results
            case _:
                return False


class History:
    """What is in effect of the entries that change which others are in view."""

    def __init__(self, entries: Iterable[e.Entry] = ()) -> None:
        entries = list(entries)
        self.undone = {entry.body.seq for entry in entries if isinstance(entry.body, e.Undone)}
        self._hidden: dict[Audience, dict[int, e.Visibility]] = {"person": {}, "model": {}}
        self.rewinds: list[Rewind] = []
        self.compactions: list[Compaction] = []
        for entry in entries:
            self._take(entry)
        self.compactions = [one for one in self.compactions if not self._is_rewound(one)]

    def _take(self, entry: e.Entry) -> None:
        match entry.body:
            case e.Rewound() as body if entry.seq not in self.undone:
                self.rewinds.append(Rewind(entry.seq, body))
            case e.Compacted() as body if entry.seq not in self.undone:
                self.compactions.append(Compaction(entry.seq, body))
            case e.Visibility() as body:
                self._see("person", body, visible=body.person)
                self._see("model", body, visible=body.model)
            case _:
                pass

    def _see(self, audience: Audience, body: e.Visibility, *, visible: bool | None) -> None:
        if visible:
            self._hidden[audience].pop(body.seq, None)
        elif visible is not None:
            self._hidden[audience][body.seq] = body

    def _is_rewound(self, compaction: Compaction) -> bool:
        return any(
            rewind.seq > compaction.seq and compaction.body.through > rewind.body.through
            for rewind in self.rewinds
        )

    def is_in_view(self, seq: int) -> bool:
        """Whether no rewind has taken this entry out."""
        return not any(rewind.drops(seq) for rewind in self.rewinds)

    def compacted_by(self, seq: int) -> Compaction | None:
        """The compaction whose summary stands in for this entry, if one does."""
        return next((one for one in reversed(self.compactions) if one.replaces(seq)), None)

    def summaries(self) -> list[Compaction]:
        """The compactions whose summaries a model is sent, in the order of their ranges."""
        shown = [
            one for one in self.compactions if not any(o.covers(one) for o in self.compactions)
        ]
        return sorted(shown, key=lambda one: (one.body.first, one.seq))

    def skipped(self) -> tuple[int, tuple[int, ...]]:
        """How far a journal need not be read for a model, and what of that must be all the same."""
        reach = 0
        for one in sorted(self.compactions, key=lambda one: one.body.first):
            if one.body.first <= reach + 1:
                reach = max(reach, one.body.through)
        kept = {seq for one in self.compactions for seq in one.body.keep if seq <= reach}
        return reach, tuple(sorted(seq for seq in kept if self.compacted_by(seq) is None))

    def hides(self, audience: Audience) -> Hidden:
        return Hidden(self._hidden[audience].values())


def in_view(history: History, entries: Iterable[e.Entry]) -> Iterable[e.Entry]:
    """Entries without those that were rewound."""
    if not history.rewinds:
        return entries
    return (entry for entry in entries if history.is_in_view(entry.seq))
