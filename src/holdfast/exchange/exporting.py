"""A session on its way out, in any format there is."""

import json
from collections.abc import Callable, Iterator
from typing import Final, get_args

from holdfast.errors import BlobNotFound
from holdfast.exchange.markdown import render_markdown
from holdfast.exchange.own import export_lines
from holdfast.exchange.page import render_page
from holdfast.session.store import Store
from holdfast.views.context import Format

Exporter = Callable[[Store, str], Iterator[bytes]]


def export_session(store: Store, session_id: str, to: str = "holdfast") -> Iterator[bytes]:
    """The session in one of `EXPORTS`, piece by piece. Raises SessionNotFound, ValueError."""
    exporter = EXPORTS.get(to)
    if exporter is None:
        raise ValueError(f"no format {to!r}; it is one of {', '.join(EXPORTS)}")
    return exporter(store, session_id)


def _markdown(store: Store, session_id: str) -> Iterator[bytes]:
    session = store.session(session_id)
    for piece in render_markdown(session.title, session.transcript()):
        yield piece.encode("utf-8", "replace")


def _page(store: Store, session_id: str) -> Iterator[bytes]:
    session = store.session(session_id)
    for piece in render_page(session.title, session.transcript(), lambda name: _blob(store, name)):
        yield piece.encode("utf-8", "replace")


def _blob(store: Store, name: str) -> bytes | None:
    try:
        return store.blob(name)
    except BlobNotFound:
        return None


def _context(format_: Format) -> Exporter:
    """What a model of this provider would be sent, repaired, as one JSON document."""

    def exporter(store: Store, session_id: str) -> Iterator[bytes]:
        context = store.session(session_id).context(format_)
        document = {"system": context.system, "messages": context.messages}
        # Escapes everything but ASCII, lone surrogates too: any reader takes it.
        yield json.dumps(document, indent=1).encode("ascii") + b"\n"

    return exporter


_FORMATS: Final[tuple[Format, ...]] = tuple(one for one in get_args(Format) if one != "neutral")

EXPORTS: Final[dict[str, Exporter]] = {
    "holdfast": export_lines,
    "markdown": _markdown,
    "html": _page,
    **{format_: _context(format_) for format_ in _FORMATS},
}
"""What a session can be written as."""
