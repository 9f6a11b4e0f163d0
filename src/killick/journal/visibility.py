"""Groups the entries of a message, and says which a person and a model are shown."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec

from killick.journal.assembly import is_whole_object
from killick.journal.kinds import message_of
from killick.model import entries as e
from killick.model.messages import Part, ToolCall, ToolResult


class Group:
    """A message, in the place where it began, and everything of it that stands elsewhere."""

    __slots__ = ("ended", "message_id", "model_call_id", "open_calls", "role", "seqs", "turn_id")

    def __init__(self, entry: e.Entry, body: e.MessageRecorded | e.MessageStarted) -> None:
        self.message_id = body.id
        self.turn_id = body.turn_id
        self.model_call_id = body.model_call_id
        self.role = body.role
        self.seqs = [entry.seq]
        self.ended = isinstance(body, e.MessageRecorded)
        self.open_calls: set[str] = set()

    @property
    def seq(self) -> int:
        return self.seqs[0]

    @property
    def finished(self) -> bool:
        """True if nothing of it is still to come, as far as its own entries tell."""
        return self.ended and not self.open_calls


class Groups:
    """Takes entries in order and says which belong to which message."""

    def __init__(self) -> None:
        self.all: list[Group] = []
        self._groups: dict[str, Group] = {}
        self._calls: dict[str, Group] = {}
        self._model_calls: dict[str, int] = {}

    def begun_at(self, seq: int) -> Group | None:
        """Return the message that begins at this seq."""
        return next((group for group in self.all if group.seq == seq), None)

    def take(self, entry: e.Entry) -> Group | None:
        """Add an entry to its group, if it has one, and return that."""
        body = entry.body
        match body:
            case e.MessageRecorded():
                return self._record(entry, body)
            case e.MessageStarted():
                return self._begin(entry, body)
            case e.ModelCallStarted():
                self._model_calls[body.id] = entry.seq
                return None
            case _:
                group_id = message_of(body)
                group = self._groups.get(group_id) if group_id is not None else None
                if group is not None:
                    group.seqs.append(entry.seq)
                    self._apply(group, body)
                return group

    def _record(self, entry: e.Entry, body: e.MessageRecorded) -> Group:
        """Add a message to that whose calls it answers, or begin a group."""
        results = [part for part in body.parts if isinstance(part, ToolResult)]
        owner = next((self._calls[r.call_id] for r in results if r.call_id in self._calls), None)
        if owner is None:
            owner = self._begin(entry, body)
        else:
            owner.seqs.append(entry.seq)
            self._groups[body.id] = owner
        self._make_calls(owner, body.parts, complete=True)
        for result in results:
            self._answer(result.call_id)
        return owner

    def _begin(self, entry: e.Entry, body: e.MessageRecorded | e.MessageStarted) -> Group:
        group = self._groups[body.id] = Group(entry, body)
        self.all.append(group)
        started = self._model_calls.get(body.model_call_id or "")
        if started is not None:
            group.seqs.append(started)
        return group

    def _apply(self, group: Group, body: e.Body) -> None:
        match body:
            case e.MessageEnded():
                group.ended = True
                self._make_calls(group, body.parts, complete=body.state == "complete")
            case e.ToolCalled():
                self._make(group, body.call_id)
            case e.ToolFinished() | e.LateResult():
                group.open_calls.discard(body.result.call_id)
            case _:
                pass

    def _make_calls(self, group: Group, parts: Iterable[Part], *, complete: bool) -> None:
        for part in parts:
            if not isinstance(part, ToolCall) or self._calls.get(part.id) is group:
                continue
            if complete or is_whole_object(part.arguments):
                self._make(group, part.id)

    def _make(self, group: Group, call_id: str) -> None:
        self._calls[call_id] = group
        group.open_calls.add(call_id)

    def _answer(self, call_id: str) -> None:
        group = self._calls.get(call_id)
        if group is not None:
            group.open_calls.discard(call_id)


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


class Rewind:
    """A rewind in its place."""

    def __init__(self, seq: int, body: e.Rewound) -> None:
        self.seq = seq
        self.body = body

    def reaches(self, seq: int) -> bool:
        """Return True for an entry that it drops, unless it keeps it."""
        return self.body.through < seq < self.seq


class Hidden:
    """The messages that a person or a model is not shown, by the seqs where they began."""

    def __init__(self, hidden: Iterable[e.Visibility]) -> None:
        hidden = list(hidden)
        self.places = {body.seq for body in hidden}
        self._seqs = {seq for body in hidden for seq in body.entries}
        self._ids = {body.message_id for body in hidden if body.entries}
        self._results = {body.message_id for body in hidden if not body.entries}

    def has(self, entry: e.Entry) -> bool:
        """Return True for an entry of a hidden message. A tool's result hides its content only."""
        if not self._ids:
            return False
        return entry.seq in self._seqs or message_of(entry.body) in self._ids

    def has_result(self, body: e.Body) -> bool:
        """Return True for an entry of a tool whose output and result are hidden."""
        if not self._results:
            return False
        match body:
            case e.ToolStarted() | e.ToolOutput() | e.Settled() | e.LateText(call_id=str()):
                return f"{body.message_id}/{body.call_id}" in self._results
            case e.ToolFinished() | e.LateResult():
                return f"{body.message_id}/{body.result.call_id}" in self._results
            case _:
                return False


class Stretch(NamedTuple):
    """The seqs from `first` to `last`, all of which rewinds have dropped but for what they keep."""

    first: int
    last: int


class History:
    """The compactions, rewinds and visibility that are in effect.

    A session may have thousands of each, so nothing here looks at all of them for an entry.
    """

    def __init__(self, entries: Iterable[e.Entry] = ()) -> None:
        entries = list(entries)
        self.undone = {entry.body.seq for entry in entries if isinstance(entry.body, e.Undone)}
        self._hidden: dict[Audience, dict[int, e.Visibility]] = {"person": {}, "model": {}}
        self.rewinds: list[Rewind] = []
        self.compactions: list[Compaction] = []
        for entry in entries:
            self._take(entry)
        self.rewinds.sort(key=lambda rewind: rewind.seq)
        self._dropping = [rewind for rewind in self.rewinds if rewind.body.through < rewind.seq]
        self._throughs = sorted(rewind.body.through for rewind in self._dropping)
        self._ends = [rewind.seq for rewind in self._dropping]
        self._kept = Counter(
            seq for rewind in self._dropping for seq in set(rewind.body.keep) if rewind.reaches(seq)
        )
        self.compactions = [c for c in self.compactions if not self._is_rewound(c)]

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
        later = bisect_right(self.rewinds, compaction.seq, key=lambda rewind: rewind.seq)
        return later < len(self.rewinds) and compaction.body.through > self._lowest[later]

    @cached_property
    def _lowest(self) -> list[int]:
        """Where the deepest of each rewind and those after it begins."""
        lowest = [rewind.body.through for rewind in self.rewinds]
        for n in range(len(lowest) - 2, -1, -1):
            lowest[n] = min(lowest[n], lowest[n + 1])
        return lowest

    def is_in_view(self, seq: int) -> bool:
        """Return True if no rewind has taken this entry out: all that reach it keep it."""
        reaching = bisect_left(self._throughs, seq) - bisect_right(self._ends, seq)
        return reaching == self._kept.get(seq, 0)

    def stretch_at(self, seq: int) -> Stretch | None:
        """Return the stretch around this seq, as long as can be; None where none is."""
        n = bisect_right(self._stretches, seq, key=lambda stretch: stretch.first) - 1
        return self._stretches[n] if n >= 0 and seq <= self._stretches[n].last else None

    @cached_property
    def _stretches(self) -> list[Stretch]:
        joined: list[Stretch] = []
        for rewind in sorted(self._dropping, key=lambda rewind: rewind.body.through):
            first, last = rewind.body.through + 1, rewind.seq - 1
            if joined and first <= joined[-1].last + 1:
                first, last = joined[-1].first, max(last, joined.pop().last)
            joined.append(Stretch(first, last))
        return joined

    def encloses(self, stretch: Stretch) -> bool:
        """Return True if one rewind takes out all of this, and says that nothing there matters."""
        return any(
            rewind.body.encloses
            and rewind.body.through < stretch.first
            and stretch.last < rewind.seq
            for rewind in self._dropping
        )

    def kept_in(self, stretch: Stretch) -> list[int]:
        """Return the seqs of a stretch that are in view, in order."""
        kept = (seq for seq in self._kept if stretch.first <= seq <= stretch.last)
        return sorted(seq for seq in kept if self.is_in_view(seq))

    def compacted_by(self, seq: int) -> Compaction | None:
        """Return the compaction whose summary stands in for this entry, if one does."""
        if seq in self._chosen:
            return next((c for c in reversed(self.compactions) if c.replaces(seq)), None)
        bounds, owners = self._ranges
        n = bisect_right(bounds, seq) - 1
        numbers = (owners[n] if n >= 0 else -1, self._rests.get(seq, -1))
        newest = max(numbers)
        return self.compactions[newest] if newest >= 0 else None

    @cached_property
    def _chosen(self) -> frozenset[int]:
        """The entries that some compaction keeps: few, so each is looked for everywhere."""
        return frozenset(seq for c in self.compactions for seq in c.body.keep)

    @cached_property
    def _rests(self) -> dict[int, int]:
        """The newest compaction that has taken an entry which lies outside of its range."""
        return {
            seq: n
            for n, c in enumerate(self.compactions)
            for seq in c.body.rest
            if not c.body.first <= seq <= c.body.through
        }

    @cached_property
    def _ranges(self) -> tuple[list[int], list[int]]:
        """Where ranges begin and end, and from there on which is the newest; -1 for none."""
        bodies = [c.body for c in self.compactions if c.body.first <= c.body.through]
        bounds = sorted({b for body in bodies for b in (body.first, body.through + 1)})
        places = {bound: n for n, bound in enumerate(bounds)}
        owners, free = [-1] * len(bounds), list(range(len(bounds) + 1))
        for number in range(len(self.compactions) - 1, -1, -1):
            body = self.compactions[number].body
            if body.first > body.through:
                continue
            n, end = _free(free, places[body.first]), places[body.through + 1]
            while n < end:  # each piece is given away once, to the newest
                owners[n], free[n] = number, n + 1
                n = _free(free, n)
        return bounds, owners

    def summaries(self) -> list[Compaction]:
        """Return the compactions whose summaries a model is sent, in the order of their ranges."""
        shown: list[Compaction] = []
        firsts: list[int] = []  # of ranges that none of the others is inside of
        throughs: list[int] = []
        for c in sorted(self.compactions, key=lambda c: c.seq, reverse=True):
            first, through = c.body.first, c.body.through
            n = bisect_right(firsts, first)
            if n and throughs[n - 1] >= through:
                continue  # a newer one covers it
            shown.append(c)
            begin = bisect_left(firsts, first)
            end = max(begin, bisect_right(throughs, through))
            firsts[begin:end], throughs[begin:end] = [first], [through]
        return sorted(shown, key=lambda c: (c.body.first, c.seq))

    def skipped(self) -> tuple[int, tuple[int, ...]]:
        """Return up to where a model's reader skips a journal, and the entries it reads even so."""
        reach = 0
        for body in sorted((c.body for c in self.compactions), key=lambda body: body.first):
            if body.first <= reach + 1:
                reach = max(reach, body.through)
        kept = {seq for c in self.compactions for seq in c.body.keep if seq <= reach}
        return reach, tuple(sorted(seq for seq in kept if self.compacted_by(seq) is None))

    def takes_out(self, audience: Audience) -> bool:
        """Return True if entries are not in view, or hidden, that no summary stands for."""
        return bool(self.rewinds or self.hides(audience).places)

    def hides(self, audience: Audience) -> Hidden:
        return Hidden(self._hidden[audience].values())


def _free(free: list[int], n: int) -> int:
    """Return the first piece from this one on that is not given away, and remember the way."""
    end = n
    while free[end] != end:
        end = free[end]
    while free[n] != end:
        free[n], n = end, free[n]
    return end


def in_view(history: History, entries: Iterable[e.Entry]) -> Iterable[e.Entry]:
    """Return the entries without those that were rewound."""
    if not history.rewinds:
        return entries
    return (entry for entry in entries if history.is_in_view(entry.seq))


class Hiding:
    """Takes entries in order and gives each as it may be seen.

    A call must have its result, so what is hidden of a result is what it says: `blank` stands for
    it, and for what a tool had printed that was left. Further output that comes late goes, and so
    do results that are recorded as messages for the calls of a hidden message: those messages have
    ids of their own.
    """

    def __init__(self, hidden: Hidden, blank: str) -> None:
        self._hidden = hidden
        self._blank = blank
        self._calls: set[tuple[str, str]] = set()

    def see(self, entry: e.Entry) -> e.Entry | None:
        """Return the entry without what is hidden; None when nothing of it is left."""
        if not self._hidden.places:
            return entry
        body = entry.body
        if self._hidden.has(entry):
            self._calls.update(_calls_of(body))
            return None
        self._calls.difference_update(_calls_of(body))  # providers repeat ids
        match body:
            case e.LateText() if self._hidden.has_result(body):
                return None
            case e.ToolOutput() if self._hidden.has_result(body):
                # That the tool was left without a result is not hidden, only what it printed.
                printed = self._blank if body.output else ""
                blank_output = msgspec.structs.replace(body, output=printed)
                return msgspec.structs.replace(entry, body=blank_output)
            case e.ToolFinished() | e.LateResult() if self._hidden.has_result(body):
                blank = msgspec.structs.replace(
                    body, result=self._blanked(body.result), output=None
                )
                return msgspec.structs.replace(entry, body=blank)
            case e.Settled() if self._hidden.has_result(body):
                settled = msgspec.structs.replace(body, result=None, evidence=None)
                return msgspec.structs.replace(entry, body=settled)
            case e.MessageRecorded():
                return self._message(entry, body)
            case _:
                return entry

    def _message(self, entry: e.Entry, body: e.MessageRecorded) -> e.Entry | None:
        parts = tuple(part for part in body.parts if not self._answers_hidden(body, part))
        if entry.seq in self._hidden.places:
            parts = tuple(
                self._blanked(part) if isinstance(part, ToolResult) else part
                for part in parts
                if isinstance(part, ToolResult | ToolCall)
            )
        if parts == body.parts:
            return entry
        kept = msgspec.structs.replace(body, parts=parts)
        return msgspec.structs.replace(entry, body=kept) if parts else None

    def _answers_hidden(self, body: e.MessageRecorded, part: Part) -> bool:
        return isinstance(part, ToolResult) and (body.turn_id, part.call_id) in self._calls

    def _blanked(self, result: ToolResult) -> ToolResult:
        return msgspec.structs.replace(result, content=self._blank, structured=None)


def _calls_of(body: e.Body) -> set[tuple[str, str]]:
    match body:
        case e.MessageRecorded() | e.MessageEnded():
            return {(body.turn_id, part.id) for part in body.parts if isinstance(part, ToolCall)}
        case e.ToolCalled():
            return {(body.turn_id, body.call_id)}
        case _:
            return set()
