"""Export a session in a format that others read, on request without its secrets.

Secrets are taken out of a copy of the session, and every format is made of that copy. The same
secret becomes the same words everywhere in the session, so that a reader can still match them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, get_args

import msgspec

from killick.errors import BlobNotFound
from killick.exchange.export.agents import AGENTS, AgentFormat, written
from killick.exchange.export.handover import json_document
from killick.exchange.export.html import render_page
from killick.exchange.export.markdown import render_markdown
from killick.exchange.export.native import Target, native, put_by
from killick.exchange.export.shelf import person_sees
from killick.exchange.export.to_codex import ToCodex
from killick.exchange.export.to_goose import ToGoose
from killick.exchange.formats.jsonl import export_entries, export_lines
from killick.exchange.merge import Unit, merge
from killick.journal.kinds import blobs_of, digest
from killick.journal.redaction import Redactor, replace_secrets
from killick.model import entries as e
from killick.session.sync import Store
from killick.views.context import Format


class Placeholders:
    """Words for secrets, numbered as they come."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        return replace_secrets(text, self._name)

    def _name(self, kind: str, secret: str) -> str:
        if secret not in self._known:
            self._known[secret] = f"[redacted: {kind} {len(self._known) + 1}]"
        return self._known[secret]


@contextmanager
def redacted(store: Store, session_id: str) -> Iterator[Store]:
    """Open a store that holds the session without its secrets, and without a running turn."""
    with TemporaryDirectory() as folder, Store(Path(folder) / "redacted.db") as clean:
        redactor = Redactor(words := Placeholders())
        names = dict[str, str]()
        merge(clean, session_id, _units(store, session_id, redactor, words, names))
        yield clean


def _units(
    store: Store,
    session_id: str,
    redactor: Redactor,
    words: Placeholders,
    names: dict[str, str],
) -> Iterator[Unit]:
    unit = Unit([])
    open_turn = False
    for entry in export_entries(store.session(session_id)):
        body = redactor.body(entry.body)
        for name in blobs_of(body):
            body = _with_clean_blob(store, body, name, unit, words, names)
        unit.entries.append(msgspec.structs.replace(entry, body=body))
        open_turn = isinstance(body, e.TurnStarted) or (
            open_turn and not isinstance(body, e.TurnEnding)
        )
        if not open_turn:
            yield unit
            unit = Unit([])


def _with_clean_blob(
    store: Store,
    body: e.Body,
    name: str,
    unit: Unit,
    words: Placeholders,
    names: dict[str, str],
) -> e.Body:
    """Return the body with the name of its blob without secrets; prompts and tools are text."""
    try:
        data = store.blob(name)
    except BlobNotFound:
        return body
    if isinstance(body, e.ModelCallStarted):
        text = data.decode("utf-8", "surrogateescape")
        clean = words(text).encode("utf-8", "surrogateescape")
        names[name], data = digest(clean), clean
        body = msgspec.structs.replace(
            body,
            system=names[name] if body.system == name else body.system,
            tools=names[name] if body.tools == name else body.tools,
        )
    unit.blobs[names.get(name, name)] = data
    return body


class Export(msgspec.Struct):
    """A session in a format, piece by piece, and what that format cannot hold, in words."""

    losses: list[str]
    pieces: Iterator[bytes]


Exporter = Callable[[Store, str], Export]


def export_session(
    store: Store, session_id: str, to: str = "killick", *, redact: bool = False
) -> Iterator[bytes]:
    """Return the session in one of `EXPORTS`, in pieces. Raises SessionNotFound, ValueError."""
    return prepare_export(store, session_id, to, redact=redact).pieces


def prepare_export(
    store: Store, session_id: str, to: str = "killick", *, redact: bool = False
) -> Export:
    """Return the session in one of `EXPORTS`, and a list of what that format cannot hold.

    With `redact`, what is certainly a secret is replaced; the same secret by the same words. Raises
    SessionNotFound, ValueError, and NotTheSame when another agent would read something else.
    """
    exporter = EXPORTS.get(to)
    if exporter is None:
        raise ValueError(f"no format {to!r}; it is one of {', '.join(EXPORTS)}")
    if not redact:
        return exporter(store, session_id)
    with redacted(store, session_id) as clean:
        own = exporter is _lines
        done = _redacted_lines(clean, session_id, store) if own else exporter(clean, session_id)
        # The copy is gone when this returns, so all of it is made now.
        return Export(done.losses, put_by(done.pieces, "redacted"))


def _lines(store: Store, session_id: str) -> Export:
    return Export([], export_lines(store, session_id))


def _redacted_lines(clean: Store, session_id: str, original: Store) -> Export:
    """Return our own format with the links of the original, which name the hashes of its bodies."""
    return Export([], export_lines(clean, session_id, original))


def _markdown(store: Store, session_id: str) -> Export:
    session = store.session(session_id)
    pieces = render_markdown(session.title, *person_sees(session))
    return Export([], (piece.encode("utf-8", "replace") for piece in pieces))


def _page(store: Store, session_id: str) -> Export:
    session = store.session(session_id)
    pieces = render_page(session.title, *person_sees(session), lambda name: _blob(store, name))
    return Export([], (piece.encode("utf-8", "replace") for piece in pieces))


def _blob(store: Store, name: str) -> bytes | None:
    try:
        return store.blob(name)
    except BlobNotFound:
        return None


def _context(format_: Format) -> Exporter:
    """Return the exporter of the context for a provider, as one JSON document."""

    def exporter(store: Store, session_id: str) -> Export:
        context = store.session(session_id).context(format_)
        about, messages = {"system": context.system}, context.messages
        # Escapes everything but ASCII, lone surrogates too: any reader takes it.
        return Export([], json_document(about, "messages", messages, indent=1, escaped=True))

    return exporter


def _native(target: Target) -> Exporter:
    def exporter(store: Store, session_id: str) -> Export:
        exported = native(store, session_id, target)
        return Export(exported.losses, exported.data)

    return exporter


def _agent(agent: AgentFormat) -> Exporter:
    def exporter(store: Store, session_id: str) -> Export:
        return Export(*written(store, session_id, agent))

    return exporter


_FORMATS: Final[tuple[Format, ...]] = tuple(
    format_ for format_ in get_args(Format) if format_ != "neutral"
)

EXPORTS: Final[dict[str, Exporter]] = {
    "killick": _lines,
    "markdown": _markdown,
    "html": _page,
    **{format_: _context(format_) for format_ in _FORMATS},
    "codex": _native(ToCodex()),
    "goose": _native(ToGoose()),
    **{
        f"{name}-cli" if name in _FORMATS else name: _agent(agent)
        for name, agent in AGENTS.items()
        if name != "codex"
    },
}
"""Formats by name: `gemini` is what the provider is sent, `gemini-cli` a file of its agent."""

NOT_TEXT: Final = frozenset({"hermes"})
"""Formats whose bytes are a database."""
