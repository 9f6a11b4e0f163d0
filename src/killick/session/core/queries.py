"""Reads for those who show a store to people: what has changed, what waits, views, searches."""

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final

import msgspec

from killick.errors import (
    InvalidQuery,
    SearchDamaged,
    SeqNotFound,
    SessionDamaged,
    StoreError,
    TurnNotFound,
)
from killick.journal import turn_state
from killick.journal.checks import check_count, check_counts, check_kinds
from killick.journal.closing import waiting
from killick.journal.fold import Messages
from killick.journal.kinds import HISTORY, TURNS, turn_identity
from killick.journal.visibility import History, in_view
from killick.model import entries as e
from killick.model.messages import Message, plain
from killick.model.sessions import microseconds
from killick.search.documents import read_batch
from killick.search.port import Batch, Order, Search
from killick.search.query import parse
from killick.search.results import Hits
from killick.search.results import search as search_now
from killick.search.words import unbroken
from killick.session.core.session import (
    SessionCore,
    read_deltas,
    read_for_model,
    read_history,
    read_system,
)
from killick.session.core.tail import ends_for_model, newest_start
from killick.session.drive.steps import Flow, read, write
from killick.session.runtime import Runtime, StoreOpening
from killick.stores import engine as ops
from killick.stores.contract import Reader, SessionRow
from killick.stores.log import log

if TYPE_CHECKING:  # the views are loaded when one is asked for
    from killick.views.budget import CountTokens
    from killick.views.context import Context, Format
    from killick.views.neutral import Errors, Partial
    from killick.views.timeline import TimedTurn
    from killick.views.transcript import Shown

Progress = Callable[[int, int], None]
"""Called with how much is done, and with how much there is to do."""

_OPENING_ENTRIES: Final = 50
_END_ENTRIES: Final = 200
_OPENING_CHARS: Final = 120


class Changes(msgspec.Struct, frozen=True):
    """Messages that began, grew, ended or got a result after a seq, as of `head`.

    `whole` says that history was changed since: these are all there are, forget others.
    """

    messages: list[Message]
    head: int
    whole: bool = False


# -- what has changed --------------------------------------------------------------------------


def changes(session: SessionCore, after: int) -> Flow[Changes]:
    check_count("after", after)
    return (yield from read(lambda reader: _changes(session, reader, after)))


def _changes(session: SessionCore, reader: Reader, after: int) -> Changes:
    row = session.row(reader)
    history = read_history(reader, session.key)
    whole = after > 0 and bool(reader.marked_entries(session.key, HISTORY, after=after))
    since = 0 if whole else after
    tail = session.read_entries(reader, since, None)
    begin = _beginning(reader, session.key, tail, row.turn_seq, since)
    if begin < since:
        tail = session.read_entries(reader, begin, None)
    fold = Messages()
    for entry in in_view(history, tail):
        fold.take(entry)
    touched = _touched(entry for entry in tail if entry.seq > since)
    messages = [
        message
        for message in fold.finish(partial(read_deltas, reader, session.key))
        if message.seq > since
        or message.state == "streaming"
        or message.id in touched
        or message.seq in touched
    ]
    return Changes(messages, row.head, whole)


def _beginning(
    reader: Reader, key: int, tail: list[e.Entry], running: int | None, since: int
) -> int:
    """Return where to begin to read, so that whatever the tail is about has its start in it."""
    started = {entry.body.turn_id for entry in tail if isinstance(entry.body, e.TurnStarted)}
    named = {getattr(entry.body, "turn_id", None) for entry in tail} - started - {None}
    begin = since if running is None else min(since, running - 1)
    for turn_id in named:
        entry = None if turn_id is None else reader.find_entry(key, turn_identity(turn_id))
        if entry is not None:
            begin = min(begin, entry.seq - 1)
    return begin


def _touched(entries: Iterable[e.Entry]) -> set[str | int]:
    """Ids and places of messages that these entries are about."""
    touched: set[str | int] = set()
    for entry in entries:
        match entry.body:
            case e.MessageEnded() as body:
                touched.add(body.id)
            case e.LateText() as body:
                touched.add(body.message_id)
            case e.ToolFinished() | e.LateResult() as body if body.started is not None:
                touched.add(body.started)
            case _:
                pass
    return touched


# -- what waits --------------------------------------------------------------------------------


def queued(session: SessionCore) -> Flow[list[Message]]:
    return (yield from read(lambda reader: _queued(session, reader)))


def _queued(session: SessionCore, reader: Reader) -> list[Message]:
    since = session.row(reader).queue_seq
    if since is None:
        return []
    return list(turn_state.waiting(session.read_entries(reader, since - 1, None)).values())


def approvals(session: SessionCore) -> Flow[list[e.ApprovalAsked]]:
    return (yield from read(lambda reader: _approvals(session, reader)))


def _approvals(session: SessionCore, reader: Reader) -> list[e.ApprovalAsked]:
    session.row(reader)
    newest = newest_start(reader, session.key)
    return waiting(reader.entries(session.key, after=newest.seq - 1)) if newest is not None else []


# -- what a session without a title is known by ------------------------------------------------


def openings(opening: StoreOpening, session_ids: Sequence[str]) -> Flow[dict[str, str]]:
    tenant = opening.runtime().tenant
    return (yield from read(lambda reader: _openings(tenant, reader, session_ids)))


def _openings(tenant: str, reader: Reader, session_ids: Sequence[str]) -> dict[str, str]:
    openings: dict[str, str] = {}
    for session_id in session_ids:
        key = reader.find_key(tenant, session_id)
        try:
            text = _opening(reader, key) if key is not None else ""
        except SessionDamaged:
            continue  # the others are whole
        if text:
            openings[session_id] = text
    return openings


def _opening(reader: Reader, key: int) -> str:
    history = read_history(reader, key)
    hidden = history.hides("person")
    for entry in in_view(history, reader.entries(key, after=0, limit=_OPENING_ENTRIES)):
        body = entry.body
        if isinstance(body, e.MessageRecorded) and body.role == "user" and not hidden.has(entry):
            words = " ".join(Message(body.role, body.parts).text.split())
            if words:
                return words[:_OPENING_CHARS]
    return ""


# -- views -------------------------------------------------------------------------------------


class _Collector:
    """Keeps the garbage collector from running while a view is made, on any thread.

    A view makes many small objects and no cycles. In a program with a large heap they set off full
    collections, which take several times as long as the view itself.
    """

    def __init__(self) -> None:
        self._mutex = threading.RLock()  # a signal handler may make a view on a thread inside
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
    session: SessionCore,
    format_: "Format",
    *,
    at: int | None,
    before_turn: str | None,
    max_messages: int | None,
    max_tokens: int | None,
    max_bytes: int | None,
    count_tokens: "CountTokens | None",
    profile: str | None,
    partial_answers: "Partial",
    reasoning: bool,
    errors: "Errors",
) -> "Flow[Context]":
    """Return what a model would be sent now, or would have been sent when `at` was the head."""
    from killick.views.budget import Budget, estimate_tokens
    from killick.views.context import compute
    from killick.views.sent import Made, fingerprint, version_of

    budget = Budget(max_messages, max_tokens, max_bytes, count_tokens or estimate_tokens)

    def view(reader: Reader) -> "Context":
        row = session.row(reader)
        head = _head(row, at)

        compute_now = partial(
            compute,
            format_=format_,
            blobs=lambda name: reader.blob(row.tenant, name),
            budget=budget,
            profile=profile,
            partial=partial_answers,
            reasoning=reasoning,
            errors=errors,
        )
        made, through = None, at
        if before_turn is not None:
            history, entries, through = _before(reader, session, before_turn, head)
        else:
            history, entries = _history_by(reader, session.key, head), []
        system = read_system(reader, row, through)
        with _paused:
            if before_turn is None and budget.is_given:
                make = partial(compute_now, history=history, system=system)
                made = _of_end(reader, row, history, head, max_messages, make)
            if made is None and before_turn is None:
                entries = read_for_model(reader, row.key, history, at)
            made = made or compute_now(entries, history=history, system=system)
        shown = e.SentView(
            version=version_of(budget),
            through=head,
            profile=profile,
            before_turn=before_turn,
            max_messages=max_messages,
            max_tokens=max_tokens,
            max_bytes=max_bytes,
            counter=None if count_tokens is None else _name_of(count_tokens),
            partial=partial_answers,
            reasoning=reasoning,
            errors=errors,
        )
        session.made = Made(format_, fingerprint(made.messages), shown)
        return made

    return (yield from read(view))


def _name_of(counter: "CountTokens") -> str:
    return str(getattr(counter, "__qualname__", None) or type(counter).__qualname__)


def _of_end(
    reader: Reader,
    row: SessionRow,
    history: History,
    head: int,
    messages: int | None,
    compute_now: "Callable[..., Context]",
) -> "Context | None":
    """Return the context if the end of the journal is all that it is made of."""
    from killick.views.context import End, EndTooShort

    named = _names_provider(reader, row)
    limit = _END_ENTRIES + 2 * (messages or 0)
    for seq, entries in ends_for_model(reader, row.key, history, head, limit):
        with suppress(EndTooShort):
            return compute_now(entries, end=End(seq, named))
    return None


def _names_provider(reader: Reader, row: SessionRow) -> bool:
    """Return False if no answer of a session can have named the provider that gave it."""
    if row.imported or row.base is not None:
        return True
    return any(spent.provider for spent in reader.usage_of(row.key))


def _head(row: SessionRow, at: int | None) -> int:
    """Return the seq up to which a view reads. Raises SeqNotFound beyond the head."""
    if at is None:
        return row.head
    check_count("at", at)
    if at > row.head:
        raise SeqNotFound(f"session {row.id!r} has no entry {at}; its head is {row.head}", row.head)
    return at


def _history_by(reader: Reader, key: int, head: int) -> History:
    """Return the changes of history that were made by a seq."""
    return History(entry for entry in reader.marked_entries(key, HISTORY) if entry.seq <= head)


def _before(
    reader: Reader, session: SessionCore, turn_id: str, head: int
) -> tuple[History, list[e.Entry], int]:
    """Return history, entries and reach of a context as it is without a turn and what came since.

    What is hidden now stays hidden. A summary that knows of the turn does not stand for anything.
    """
    start = reader.find_entry(session.key, turn_identity(turn_id))
    if start is None:
        raise TurnNotFound(f"session {session.id!r} has no turn {turn_id!r}")
    reach = min(start.seq - 1, head)
    history = History(
        entry
        for entry in reader.marked_entries(session.key, HISTORY)
        if entry.seq <= head
        and not (isinstance(entry.body, e.Compacted) and entry.body.through > reach)
    )
    entries = read_for_model(reader, session.key, history, reach)
    earlier = {
        entry.body.turn_id
        for entry in reader.marked_entries(session.key, TURNS)
        if isinstance(entry.body, e.TurnStarted) and entry.seq <= reach
    }
    for entry in reader.entries(session.key, after=reach, through=head):
        body = entry.body
        if isinstance(body, e.Late) and body.turn_id in earlier:
            entries.append(entry)
    return history, entries, reach


def show_transcript(session: SessionCore, at: int | None) -> "Flow[list[Shown]]":
    """Return what a person saw, or had seen when `at` was the head."""
    from killick.views.transcript import transcript

    def view(reader: Reader) -> "list[Shown]":
        head = _head(session.row(reader), at)
        deltas = partial(read_deltas, reader, session.key)
        with _paused:
            return transcript(reader.entries(session.key, after=0, through=head), deltas)

    return (yield from read(view))


def show_timeline(session: SessionCore) -> "Flow[list[TimedTurn]]":
    """Return what happened when."""
    from killick.views.timeline import timeline

    return (yield from read(lambda reader: timeline(session.read_entries(reader, 0, None))))


WAIT_SECONDS: Final = 0.1
"""How long a search brings the index up to date before it looks, at most."""

_CATCH_UP_ENTRIES: Final = 500
_CATCH_UP_SECONDS: Final = 0.01
"""A caller waits for these slices, so they are larger than those of idle moments."""

_SUBSTRING_CHARS_MIN: Final = 3


def search(
    opening: StoreOpening,
    text: str,
    *,
    session: str | None,
    role: str | None,
    state: str | None,
    project: str | None,
    interrupted: bool | None,
    since: datetime | None,
    until: datetime | None,
    reasoning: bool | None,
    substring: bool | None,
    order: Order | None,
    limit: int | None,
    wait_seconds: float | None,
) -> Flow[Hits]:
    check_kinds("search()", str, session=session, role=role, state=state, project=project)
    check_kinds("search()", bool, interrupted=interrupted, reasoning=reasoning, substring=substring)
    check_kinds("search()", datetime, since=since, until=until)
    check_kinds("search()", int, limit=limit)
    check_counts(limit=limit)
    _check("role", role, "user", "assistant", "tool", "system", "summary")
    _check("state", state, "complete", "partial")
    _check("order", order, "newest", "best")
    if not isinstance(text, str):
        raise TypeError("search for a text")
    runtime = opening.runtime()
    wanted = Search(
        tenant=runtime.tenant,
        query=_substring(text) if substring else parse(text),
        reasoning=reasoning is not False,
        session=session and plain(session),
        role=role and plain(role),
        state=state and plain(state),
        project=project and plain(project),
        interrupted=interrupted,
        since_us=None if since is None else microseconds(since),
        until_us=None if until is None else microseconds(until),
        order=order or "newest",
        limit=20 if limit is None else limit,
    )
    yield from _catch_up(runtime, WAIT_SECONDS if wait_seconds is None else wait_seconds)
    try:
        return (yield from read(lambda reader: search_now(reader, wanted)))
    except SearchDamaged as error:
        yield from _tell(error)
        raise


def _check(name: str, value: str | None, *allowed: str) -> None:
    if value is not None and value not in allowed:
        raise ValueError(f"{name}={value!r}; it is one of {', '.join(allowed)}")


def _substring(text: str) -> str:
    folded = unbroken(text)
    if len(folded) < _SUBSTRING_CHARS_MIN or not folded.strip():
        raise InvalidQuery(
            f"{text!r} is too short to be looked for inside of words; give at least "
            f"{_SUBSTRING_CHARS_MIN} characters, or search for word*"
        )
    return folded


def _catch_up(runtime: Runtime, seconds: float) -> Flow[None]:
    """Index what is missing, so that this process finds its own writes, unless it is too much.

    A store that cannot be written is searched as it is; what is wrong with an index shows there.
    """
    end = time.monotonic() + seconds
    try:
        batch: Batch | None = None
        while time.monotonic() < end:
            batch = yield from _index(batch)
            if batch is None:
                return
    except (StoreError, SearchDamaged):
        return
    runtime.writer.index_soon()


def _index(rest: Batch | None) -> Flow[Batch | None]:
    """Index one slice, of what the one before has left, if that is anything; return what is left.

    None if nothing was missing: then nothing is written.
    """
    if rest is None or not rest.entries:
        rest = yield from read(lambda reader: read_batch(reader, _CATCH_UP_ENTRIES))
    if not rest.entries:
        return None
    left = yield from write(partial(ops.index, batch=rest, seconds=_CATCH_UP_SECONDS))
    return left or Batch(0, ())


def _tell(error: SearchDamaged) -> Flow[None]:
    """Record the damage if possible, so that no process goes on indexing."""
    if error.__cause__ is None:
        return
    reason = str(error.__cause__)
    log(logging.WARNING, "search index damaged", error=reason)
    try:
        yield from write(lambda engine: ops.index_is_damaged(engine, reason))
    except (StoreError, SearchDamaged):
        return


def empty_index(*, substrings: bool | None = None) -> Flow[None]:
    """Begin the index anew, also one that is too damaged to be taken apart."""
    try:
        yield from write(lambda engine: ops.reset_index(engine, substrings=substrings))
    except SearchDamaged:
        yield from write(lambda engine: ops.reset_index(engine, substrings=substrings, forget=True))


def rebuild_search(
    opening: StoreOpening, *, substrings: bool | None, progress: Progress | None
) -> Flow[int]:
    """Make the index anew, in slices between which others write; how many entries there were."""
    runtime = opening.runtime()
    yield from empty_index(substrings=substrings)
    total = behind = yield from read(lambda reader: reader.index_behind())
    try:
        batch: Batch | None = None
        while behind:
            batch = yield from _index(batch)
            behind = yield from read(lambda reader: reader.index_behind())
            if progress is not None:
                progress(max(0, total - behind), total)
    finally:
        runtime.writer.index_soon()  # if interrupted: the rest is left to idle moments
    return total
