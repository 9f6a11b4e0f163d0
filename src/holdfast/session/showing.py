"""Reading for the views, and handing them what they need. Loaded when a view is first asked for."""

from typing import TYPE_CHECKING

from holdfast.model import entries as e
from holdfast.session.history import read_for_model, read_history
from holdfast.session.steps import Flow, read
from holdfast.stores.base import Reader
from holdfast.views.context import Budget, Context, compute
from holdfast.views.timeline import TimedTurn, timeline
from holdfast.views.transcript import Shown, transcript

if TYPE_CHECKING:
    from holdfast.session.core import ContextSettings, SessionCore


def show_context(
    session: "SessionCore", format_: str, settings: "ContextSettings"
) -> Flow[Context]:
    """What a model would be sent now."""
    return (yield from read(lambda reader: _context(session, reader, format_, settings)))


def _context(
    session: "SessionCore", reader: Reader, format_: str, settings: "ContextSettings"
) -> Context:
    row = session.row(reader)
    history = read_history(reader, session.key)
    entries = read_for_model(reader, session.key, history)
    session.saw(row.head)
    return compute(
        entries,
        format_,
        blobs=lambda name: reader.blob(row.tenant, name),
        history=history,
        system=row.about.system,
        budget=Budget(settings.get("max_messages"), settings.get("max_tokens")),
        partial=settings.get("partial", "note"),
        reasoning=settings.get("reasoning", True),
    )


def show_transcript(session: "SessionCore") -> Flow[list[Shown]]:
    """What a person saw."""
    return (yield from read(lambda reader: _transcript(session, reader)))


def _transcript(session: "SessionCore", reader: Reader) -> list[Shown]:
    def deltas(seq: int) -> list[e.Delta]:
        return [delta for _, flush in reader.deltas(session.key, seq) for delta in flush]

    return transcript(session.read_entries(reader, 0, None), deltas)


def show_timeline(session: "SessionCore") -> Flow[list[TimedTurn]]:
    """When what happened."""
    return (yield from read(lambda reader: timeline(session.read_entries(reader, 0, None))))
