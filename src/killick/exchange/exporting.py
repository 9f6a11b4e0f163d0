"""A session on its way out, in any format there is."""

import json
from collections.abc import Callable, Iterator
from typing import Final, get_args

import msgspec

from killick.errors import BlobNotFound
from killick.exchange.markdown import render_markdown
from killick.exchange.native import Target, native
from killick.exchange.own import export_lines
from killick.exchange.page import render_page
from killick.exchange.redacting import redacted
from killick.exchange.to_codex import ToCodex
from killick.exchange.to_goose import ToGoose
from killick.session.store import Store
from killick.views.context import Format


class Export(msgspec.Struct):
    """A session in a format, piece by piece, and what that format cannot hold, in words."""

    losses: list[str]
    pieces: Iterator[bytes]


Exporter = Callable[[Store, str], Export]


def export_session(
    store: Store, session_id: str, to: str = "killick", *, redact: bool = False
) -> Iterator[bytes]:
    """The session in one of `EXPORTS`, piece by piece. Raises SessionNotFound, ValueError."""
    return prepare_export(store, session_id, to, redact=redact).pieces


def prepare_export(
    store: Store, session_id: str, to: str = "killick", *, redact: bool = False
) -> Export:
    """The session in one of `EXPORTS`, and what of it the format cannot hold.

    With `redact`, what is certainly a secret is replaced; the same secret by the same words. Raises
    SessionNotFound, ValueError, and NotTheSame when another agent would read something else.
    """
    exporter = EXPORTS.get(to)
    if exporter is None:
        raise ValueError(f"no format {to!r}; it is one of {', '.join(EXPORTS)}")
    if not redact:
        return exporter(store, session_id)
    with redacted(store, session_id) as clean:
        done = exporter(clean, session_id)
        # The copy is gone when this returns, so all of it is made now.
        return Export(done.losses, iter(list(done.pieces)))


def _lines(store: Store, session_id: str) -> Export:
    return Export([], export_lines(store, session_id))


def _markdown(store: Store, session_id: str) -> Export:
    session = store.session(session_id)
    pieces = render_markdown(session.title, session.transcript())
    return Export([], (piece.encode("utf-8", "replace") for piece in pieces))


def _page(store: Store, session_id: str) -> Export:
    session = store.session(session_id)
    pieces = render_page(session.title, session.transcript(), lambda name: _blob(store, name))
    return Export([], (piece.encode("utf-8", "replace") for piece in pieces))


def _blob(store: Store, name: str) -> bytes | None:
    try:
        return store.blob(name)
    except BlobNotFound:
        return None


def _context(format_: Format) -> Exporter:
    """What a model of this provider would be sent, repaired, as one JSON document."""

    def exporter(store: Store, session_id: str) -> Export:
        context = store.session(session_id).context(format_)
        document = {"system": context.system, "messages": context.messages}
        # Escapes everything but ASCII, lone surrogates too: any reader takes it.
        return Export([], iter([json.dumps(document, indent=1).encode("ascii") + b"\n"]))

    return exporter


def _native(target: Target) -> Exporter:
    def exporter(store: Store, session_id: str) -> Export:
        found = native(store, session_id, target)
        return Export(found.losses, iter(found.data))

    return exporter


_FORMATS: Final[tuple[Format, ...]] = tuple(one for one in get_args(Format) if one != "neutral")

EXPORTS: Final[dict[str, Exporter]] = {
    "killick": _lines,
    "markdown": _markdown,
    "html": _page,
    **{format_: _context(format_) for format_ in _FORMATS},
    "codex": _native(ToCodex()),
    "goose": _native(ToGoose()),
}
"""What a session can be written as."""
