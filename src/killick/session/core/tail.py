"""The end of a journal, read without what lies before it: the newest turn, what is in view."""

from typing import Final

from killick.journal.kinds import HISTORY, TURNS, lookup_class
from killick.journal.visibility import History, Stretch, in_view
from killick.model import entries as e
from killick.stores.contract import Reader

_PAGE: Final = 1_000


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
