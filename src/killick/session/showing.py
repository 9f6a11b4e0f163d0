"""Reading for the views, and handing them what they need. Loaded when a view is first asked for."""

import gc
import threading
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from killick.session.history import read_deltas, read_for_model, read_history, read_system
from killick.session.steps import Flow, read
from killick.stores.base import Reader
from killick.views.context import Budget, Context, compute
from killick.views.timeline import TimedTurn, timeline
from killick.views.transcript import Shown, transcript

if TYPE_CHECKING:
    from killick.session.core import ContextSettings, SessionCore


class _Collector:
    """Keeps the garbage collector from running while a view is made, on any thread.

    A view makes many small objects and no cycles. In a program with a large heap they set off full
    collections, which take several times as long as the view itself.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._pauses = 0
        self._was_on = False

    def __enter__(self) -> None:
        with self._mutex:
            if not self._pauses:
                self._was_on = gc.isenabled()
                gc.disable()
            self._pauses += 1

    def __exit__(
        self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        with self._mutex:
            self._pauses -= 1
            if not self._pauses and self._was_on:
                gc.enable()


_paused = _Collector()


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
    with _paused:
        return compute(
            entries,
            format_,
            blobs=lambda name: reader.blob(row.tenant, name),
            history=history,
            system=read_system(reader, row),
            budget=Budget(settings.get("max_messages"), settings.get("max_tokens")),
            partial=settings.get("partial", "note"),
            reasoning=settings.get("reasoning", True),
        )


def show_transcript(session: "SessionCore") -> Flow[list[Shown]]:
    """What a person saw."""
    return (yield from read(lambda reader: _transcript(session, reader)))


def _transcript(session: "SessionCore", reader: Reader) -> list[Shown]:
    deltas = partial(read_deltas, reader, session.key)
    return transcript(session.read_entries(reader, 0, None), deltas)


def show_timeline(session: "SessionCore") -> Flow[list[TimedTurn]]:
    """When what happened."""
    return (yield from read(lambda reader: timeline(session.read_entries(reader, 0, None))))
