"""The entries that a context is made of, out of all that a journal holds."""

from collections.abc import Iterable, Iterator

import msgspec

from holdfast.journal.history import Compaction, Hidden, History, in_view
from holdfast.model import entries as e
from holdfast.model.parts import ToolResult
from holdfast.views import wording


def for_model(history: History, entries: Iterable[e.Entry]) -> Iterator[e.Entry]:
    """Entries in order, without what a model is not sent.

    A compaction stands where its summary does, with the seq that it has in the journal.
    """
    hidden = history.hides("model")
    waiting = history.summaries()
    for entry in in_view(history, entries):
        while waiting and waiting[0].body.first <= entry.seq:
            yield _in_place(waiting.pop(0))
        if isinstance(entry.body, e.Compacted) or hidden.has(entry):
            continue
        if not history.compactions or history.compacted_by(entry.seq) is None:
            yield _without_hidden_results(hidden, entry) if hidden.places else entry
    yield from (_in_place(one) for one in waiting)


def _in_place(one: Compaction) -> e.Entry:
    return e.Entry(one.seq, 0, one.body)


def _without_hidden_results(hidden: Hidden, entry: e.Entry) -> e.Entry:
    """A call must have its result; what is hidden is what the result says."""
    body = entry.body
    match body:
        case e.ToolFinished() | e.LateResult() if (body.started or entry.seq) in hidden.places:
            blank = msgspec.structs.replace(body, result=_blank(body.result), output=None)
            return msgspec.structs.replace(entry, body=blank)
        case e.MessageRecorded() if entry.seq in hidden.places:
            parts = tuple(_blank(p) if isinstance(p, ToolResult) else p for p in body.parts)
            return msgspec.structs.replace(entry, body=msgspec.structs.replace(body, parts=parts))
        case _:
            return entry


def _blank(result: ToolResult) -> ToolResult:
    return msgspec.structs.replace(result, content=wording.hidden_result(), structured=None)
