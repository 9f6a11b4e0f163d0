"""A copy of a session from which secrets are taken out, for as long as it is exported.

Every format is made of the copy, so there is one place that decides what is a secret. The same
secret becomes the same words everywhere in the session: one can still see that it is one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from killick.errors import BlobNotFound
from killick.exchange.merging import Unit, merge
from killick.exchange.own import export_entries
from killick.journal.identity import digest
from killick.journal.redaction import Redactor, replace_secrets
from killick.journal.references import blobs_of
from killick.model import entries as e
from killick.session.store import Store


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
    """A store that holds the session without its secrets. A turn that runs is not in it."""
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
            open_turn and not isinstance(body, e.TurnEnded)
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
    """The body with the name of a blob without secrets; system prompts and tools are text."""
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
