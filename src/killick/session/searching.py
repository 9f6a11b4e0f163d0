"""Searching, written once for both faces: catch up if little is missing, then look."""

import time
from typing import Any, Final

from killick.errors import InvalidQuery, SearchDamaged, StoreError
from killick.journal.queries import parse
from killick.journal.words import unbroken
from killick.model.search import Hits
from killick.model.sessions import microseconds
from killick.session.arguments import check_counts, filters_of
from killick.session.options import Progress, SearchFilters
from killick.session.runtime import Runtime
from killick.session.steps import Flow, read, write
from killick.stores.indexed import Search
from killick.stores.searching import read_batch
from killick.stores.searching import search as search_now

WAIT_SECONDS: Final = 0.1
"""How long a search brings the index up to date before it looks, at most."""

_CATCH_UP_ENTRIES: Final = 500
_CATCH_UP_SECONDS: Final = 0.01
"""Somebody waits for these slices, so they are larger than those that are made when it is quiet."""

_SUBSTRING_CHARS_MIN: Final = 3


def search(runtime: Runtime, text: str, filters: SearchFilters) -> Flow[Hits]:
    given = filters_of(filters, SearchFilters, "search()")
    seconds = given.pop("wait_seconds", WAIT_SECONDS)
    wanted = _wanted(runtime.tenant, text, given)
    yield from _catch_up(runtime, seconds)
    try:
        return (yield from read(lambda reader: search_now(reader, wanted)))
    except SearchDamaged as error:
        yield from _tell(error)
        raise


def _wanted(tenant: str, text: str, given: dict[str, Any]) -> Search:
    substring = given.pop("substring", False)
    for name in ("since", "until"):
        if name in given:
            given[f"{name}_us"] = microseconds(given.pop(name))
    check_counts(limit=given.get("limit"))
    _check(given, "role", "user", "assistant", "tool", "system", "summary")
    _check(given, "state", "complete", "partial")
    _check(given, "order", "newest", "best")
    if not isinstance(text, str):
        raise TypeError("search for a text")
    query = _substring(text) if substring else parse(text)
    return Search(tenant=tenant, query=query, **given)


def _check(given: dict[str, Any], name: str, *allowed: str) -> None:
    if given.get(name, allowed[0]) not in allowed:
        raise ValueError(f"{name}={given[name]!r}; it is one of {', '.join(allowed)}")


def _substring(text: str) -> str:
    folded = unbroken(text)
    if len(folded) < _SUBSTRING_CHARS_MIN or not folded.strip():
        raise InvalidQuery(
            f"{text!r} is too short to be looked for inside of words; give at least "
            f"{_SUBSTRING_CHARS_MIN} characters, or search for word*"
        )
    return folded


def _catch_up(runtime: Runtime, seconds: float) -> Flow[None]:
    """What this process has written is found, unless there is too much of it.

    A store that cannot be written is searched as it is; what is wrong with an index shows there.
    """
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            if not (yield from _index(_CATCH_UP_ENTRIES, _CATCH_UP_SECONDS)):
                return
    except (StoreError, SearchDamaged):
        return
    runtime.writer.index_soon()


def _index(entries: int, seconds: float) -> Flow[bool]:
    """One slice; whether something was missing. If nothing was, nothing is written."""
    batch = yield from read(lambda reader: read_batch(reader, entries))
    if batch.entries:
        yield from write(lambda engine: engine.index(batch, seconds))
    return bool(batch.entries)


def _tell(error: SearchDamaged) -> Flow[None]:
    """Let the others know, if that is possible: nobody indexes what cannot be searched."""
    if error.__cause__ is None:
        return
    reason = str(error.__cause__)
    try:
        yield from write(lambda engine: engine.index_is_damaged(reason))
    except (StoreError, SearchDamaged):
        return


def rebuild_search(
    runtime: Runtime, *, substrings: bool | None, progress: Progress | None
) -> Flow[int]:
    """Make the index anew, in slices between which others write; how many entries there were."""
    try:
        yield from write(lambda engine: engine.reset_index(substrings=substrings))
    except SearchDamaged:
        yield from write(lambda engine: engine.reset_index(substrings=substrings, forget=True))
    total = behind = yield from read(lambda reader: reader.index_behind())
    try:
        while behind:
            yield from _index(_CATCH_UP_ENTRIES, _CATCH_UP_SECONDS)
            behind = yield from read(lambda reader: reader.index_behind())
            if progress is not None:
                progress(max(0, total - behind), total)
    finally:
        runtime.writer.index_soon()  # whoever is interrupted here leaves the rest to idle moments
    return total
