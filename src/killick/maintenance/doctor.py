"""The file, every journal, what is derived from it, and what a model would be sent of it.

Uses the public face of a store, and the validators that the tests use. One session that cannot be
examined is a finding and never keeps the others from being examined.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from killick.errors import BlobNotFound, KillickError, SearchDamaged
from killick.maintenance.examine import Finding
from killick.session.sync import Store
from killick.views.context import compute
from killick.views.validators import anthropic, gemini, openai_chat, openai_responses

Progress = Callable[[int, int], None]
"""Told how many sessions were examined so far, and how many there are."""


class Examination(msgspec.Struct, frozen=True):
    """What was looked at and what was found."""

    sessions: int
    contexts: int
    findings: list[Finding]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong that was not mended. What a server gives is only said."""
        return all(one.mended or one.kind == "server" for one in self.findings)


def examine(
    store: Store, *, rebuild: bool = False, contexts: bool = True, progress: Progress | None = None
) -> Examination:
    """Look at everything in a store. `rebuild` makes anew what is derived and wrong.

    If interrupted: what was made anew stays so; nothing else is written.
    """
    findings = _file(store, rebuild=rebuild)
    count = judged = 0
    ids = list(store.session_ids())
    for session_id in ids:
        found = _session(store, session_id, rebuild=rebuild, contexts=contexts)
        count += 1
        if contexts and not any(one.kind == "entry" for one in found):
            judged += len(_VALIDATORS)
        findings += found
        if progress is not None:
            progress(count, len(ids))
    return Examination(count, judged, findings)


def _file(store: Store, *, rebuild: bool) -> list[Finding]:
    findings = [*store.check_file(), *_search(store)]
    if not rebuild:
        return findings
    if any(one.kind == "search" for one in findings):
        store.rebuild_search()
    if any("index" in one.what for one in findings if one.kind == "file"):
        store.rebuild_indexes()
    left = {one.what for one in [*store.check_file(), *_search(store)]}
    return [msgspec.structs.replace(one, mended=one.what not in left) for one in findings]


def _search(store: Store) -> list[Finding]:
    """Whether the index answers at all; what it lags behind is no finding."""
    try:
        store.search("killick", limit=1, wait_seconds=0)
    except SearchDamaged as error:
        return [Finding("search", str(error), remedy="doctor --rebuild makes it anew")]
    return []


def _session(store: Store, session_id: str, *, rebuild: bool, contexts: bool) -> list[Finding]:
    try:
        found = store.examine_session(session_id, rebuild=rebuild)
        if contexts and not any(one.kind == "entry" for one in found):
            found += _contexts(store, session_id)
    except KillickError as error:
        if session_id not in store.session_ids():
            return []  # somebody has erased it meanwhile
        return [Finding("entry", str(error), session_id)]
    return found


def _contexts(store: Store, session_id: str) -> list[Finding]:
    """What each provider would say of the context it would be sent. Nothing is written."""
    entries = store.salvage(session_id).entries
    found: list[Finding] = []
    for name, validate in _VALIDATORS.items():
        context = compute(entries, name, blobs=lambda blob: _blob(store, blob))
        found += [
            Finding("context", f"{name}: {one.rule} at {one.where}: {one.detail}", session_id)
            for one in validate(context.messages, context.system)
        ]
    return found


def _blob(store: Store, name: str) -> bytes | None:
    try:
        return store.blob(name)
    except BlobNotFound:
        return None


_VALIDATORS: Final = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
}
