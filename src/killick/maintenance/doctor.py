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
    """The findings, and the counts of what was looked at."""

    sessions: int
    contexts: int
    findings: list[Finding]

    @property
    def sound(self) -> bool:
        """True if all that is wrong was mended; findings about a server only inform."""
        return all(finding.mended or finding.kind == "server" for finding in self.findings)


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
        own = _session(store, session_id, rebuild=rebuild, contexts=contexts)
        count += 1
        if contexts and not any(finding.kind == "entry" for finding in own):
            judged += len(_VALIDATORS)
        findings += own
        if progress is not None:
            progress(count, len(ids))
    return Examination(count, judged, findings)


def _file(store: Store, *, rebuild: bool) -> list[Finding]:
    findings = [*store.check_file(), *_search(store)]
    if not rebuild:
        return findings
    if any(finding.kind == "search" for finding in findings):
        store.rebuild_search()
    if any(finding.kind == "sums" for finding in findings):
        store.rebuild_sums()
    if any(finding.kind == "file" and "index" in finding.what for finding in findings):
        store.rebuild_indexes()
    left = {finding.what for finding in [*store.check_file(), *_search(store)]}
    return [msgspec.structs.replace(each, mended=each.what not in left) for each in findings]


def _search(store: Store) -> list[Finding]:
    """Find out whether the index answers at all; a lag is no finding."""
    try:
        store.search("killick", limit=1, wait_seconds=0)
    except SearchDamaged as error:
        return [Finding("search", str(error), remedy="doctor --rebuild makes it anew")]
    return []


def _session(store: Store, session_id: str, *, rebuild: bool, contexts: bool) -> list[Finding]:
    try:
        findings = store.examine_session(session_id, rebuild=rebuild)
        if contexts and not any(finding.kind == "entry" for finding in findings):
            findings += _contexts(store, session_id)
    except KillickError as error:
        if session_id not in store.session_ids():
            return []  # another process has erased it meanwhile
        return [Finding("entry", str(error), session_id)]
    return findings


def _contexts(store: Store, session_id: str) -> list[Finding]:
    """Validate the context that each provider would be sent. Nothing is written."""
    entries = store.salvage(session_id).entries
    findings: list[Finding] = []
    for name, validate in _VALIDATORS.items():
        context = compute(entries, name, blobs=lambda blob: _blob(store, blob))
        findings += [
            Finding("context", f"{name}: {rule.rule} at {rule.where}: {rule.detail}", session_id)
            for rule in validate(context.messages, context.system)
        ]
    return findings


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
