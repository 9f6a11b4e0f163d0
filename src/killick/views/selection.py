"""The entries that a context is made of, out of all that a journal holds."""

from collections.abc import Iterable, Iterator

from killick.journal.hiding import Hiding
from killick.journal.history import Compaction, History, in_view
from killick.model import entries as e
from killick.views import wording


def for_model(history: History, entries: Iterable[e.Entry]) -> Iterator[e.Entry]:
    """Entries in order, without what a model is not sent.

    A compaction stands where its summary does, with the seq that it has in the journal.
    """
    hiding = Hiding(history.hides("model"), wording.hidden_result())
    waiting = history.summaries()
    for entry in in_view(history, entries):
        while waiting and waiting[0].body.first <= entry.seq:
            yield _in_place(waiting.pop(0))
        if isinstance(entry.body, e.Compacted):
            continue
        if not history.compactions or history.compacted_by(entry.seq) is None:
            seen = hiding.see(entry)
            if seen is not None:
                yield seen
    yield from (_in_place(one) for one in waiting)


def _in_place(one: Compaction) -> e.Entry:
    return e.Entry(one.seq, 0, one.body)
