"""The end of a journal, read without what lies before it: the newest turn, what is in view."""

from collections.abc import Iterator
from typing import Final

from killick.journal.kinds import HISTORY, TURNS, lookup_class
from killick.journal.visibility import History, Stretch, in_view
from killick.model import entries as e
from killick.model.messages import Text
from killick.stores.contract import Reader

_PAGE: Final = 1_000
_MORE: Final = 3
_FRONT: Final = 64


def newest_start(reader: Reader, key: int, before: int | None = None) -> e.Entry | None:
    """Return where the newest turn began, or the newest that began below `before`."""
    limit = 2  # starts and endings take turns, nearly always
    while True:
        page = reader.newest_marked(key, TURNS, before=before, limit=limit)
        for entry in reversed(page):
            if isinstance(entry.body, e.TurnStarted):
                return entry
        if len(page) < limit:
            return None
        before, limit = page[0].seq, 2 * limit


class Tail:
    """The end of a journal as it is in view, read backwards; what was rewound is passed over.

    A rewind takes out what lies before it, so the changes of history in a tail are all that say
    what of the tail is in view.
    """

    def __init__(self, reader: Reader, key: int, after: int) -> None:
        self._reader = reader
        self._key = key
        self._after = after
        self._before: int | None = None
        self._changes: list[e.Entry] = []
        self.entries: list[e.Entry] = []
        self.is_all = False

    @property
    def began(self) -> bool:
        """Whether something was read. What follows is in view more often than a first page."""
        return self._before is not None

    def read(self, limit: int) -> None:
        """Read so many entries more, and those that rewinds keep of what is passed over."""
        page = self._reader.newest_entries(self._key, before=self._before, limit=limit)
        self._changes = [x for x in page if lookup_class(x.body) == HISTORY] + self._changes
        history = History(self._changes)
        stay = [entry for entry in in_view(history, page) if entry.seq > self._after]
        self.entries = stay + self.entries
        self._before = page[0].seq if page else 1
        self._pass_over(history)
        self.is_all = self._before <= self._after + 1

    def _pass_over(self, history: History) -> None:
        assert self._before is not None
        while (stretch := history.stretch_at(self._before - 1)) is not None:
            passed = Stretch(stretch.first, self._before - 1)
            further = passed.first > self._after + 1 or history.kept_in(passed)
            if further and not history.encloses(passed):
                self._read_changes(passed)
                history = History(self._changes)
            stay = [
                entry
                for seq in history.kept_in(passed)
                if seq > self._after
                for entry in self._reader.entries(self._key, after=seq - 1, limit=1)
            ]
            self.entries = stay + self.entries
            self._before = passed.first

    def _read_changes(self, passed: Stretch) -> None:
        """Read what changed history in a stretch: it may reach further, or drop what is kept."""
        before = passed.last + 1
        while before > passed.first:
            page = self._reader.newest_marked(self._key, HISTORY, before=before, limit=_PAGE)
            inside = [entry for entry in page if entry.seq >= passed.first]
            self._changes = inside + self._changes
            if len(inside) < _PAGE:
                return
            before = page[0].seq


def ends_for_model(
    reader: Reader, key: int, history: History, head: int, limit: int
) -> Iterator[tuple[int, list[e.Entry]]]:
    """Yield longer and longer ends of what a model's reader reads, and where each one begins.

    An end begins with a turn. Before it are the entries that stand before all others. What was
    rewound is passed over. None is yielded that would be all there is to read.
    """
    reach, kept = history.skipped()
    front = [entry for seq in kept for entry in reader.entries(key, after=seq - 1, limit=1)]
    front = front if reach else _before_first_message(reader, key, history, head)
    before, entries = head + 1, list[e.Entry]()
    while True:
        page = reader.newest_entries(key, before=before, limit=limit)
        before = page[0].seq if page else 1
        entries = page + entries
        stretch = history.stretch_at(before - 1)
        if stretch is not None:
            stay = history.kept_in(Stretch(stretch.first, before - 1))
            for seq in reversed(stay):
                entries = [*reader.entries(key, after=seq - 1, limit=1), *entries]
            before = stretch.first
        if before <= reach + 1 or before <= len(front):
            return
        turns = (entry.seq for entry in entries if isinstance(entry.body, e.TurnStarted))
        end = next((seq for seq in turns if history.is_in_view(seq)), None)
        bodies = [compaction.body for compaction in history.compactions]
        if end is not None and all(x.through <= reach or x.first >= end for x in bodies):
            yield end, [*front, *(entry for entry in entries if entry.seq >= end)]
        limit *= _MORE


def _before_first_message(reader: Reader, key: int, history: History, head: int) -> list[e.Entry]:
    """Return the entries up to the first that a person, a model or a tool has said."""
    hidden, front = history.hides("model"), list[e.Entry]()
    while page := reader.entries(key, after=len(front), through=head, limit=_FRONT):
        for entry in page:
            shown = history.is_in_view(entry.seq) and not hidden.has(entry)
            if shown and _says_something(entry.body):
                return front
            front.append(entry)
    return front


def _says_something(body: e.Body) -> bool:
    match body:
        case e.MessageRecorded(role="system"):
            return False
        case e.MessageRecorded() | e.MessageEnded():
            return any(not isinstance(part, Text) or part.text.strip() for part in body.parts)
        case e.TurnEnding():
            return body.status != "completed"
        case _:
            return False
