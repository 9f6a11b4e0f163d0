"""Reads for those who show a store to people: what has changed, what waits, what happened when."""

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypedDict

import msgspec

from killick.errors import SessionDamaged
from killick.journal import queue
from killick.journal.approvals import waiting
from killick.journal.derived import HISTORY, TURNS
from killick.journal.fold import Messages, fold_turns
from killick.journal.history import in_view
from killick.model import entries as e
from killick.model.messages import Message
from killick.model.sessions import SessionInfo
from killick.session.arguments import check_count, filters_of
from killick.session.history import read_deltas, read_history
from killick.session.steps import Flow, read
from killick.stores.base import Listing, Reader

if TYPE_CHECKING:
    from killick.session.core import SessionCore
    from killick.session.runtime import Runtime

_PAGE: Final = 1_000
_OPENING_ENTRIES: Final = 50
_OPENING_CHARS: Final = 120
_DAY_US: Final = 86_400_000_000
_FIRST_DAY: Final = date(1970, 1, 1)


class Changes(msgspec.Struct, frozen=True):
    """Messages that began, grew, ended or got a result after a seq, as of `head`.

    `whole` says that history was changed since: these are all there are, forget others.
    """

    messages: list[Message]
    head: int
    whole: bool = False


class ActiveDay(msgspec.Struct, frozen=True):
    """One day, in UTC: sessions that began, turns that began, and how turns ended."""

    day: str
    sessions: int = 0
    turns: int = 0
    completed: int = 0
    failed: int = 0
    interrupted: int = 0


class ActivityFilters(TypedDict, total=False):
    """Which days are looked at, in UTC, both ends included; `since` is 29 days ago if not given."""

    since: date
    until: date


# -- what has changed --------------------------------------------------------------------------


def changes(session: "SessionCore", after: int) -> Flow[Changes]:
    check_count("after", after)
    return (yield from read(lambda reader: _changes(session, reader, after)))


def _changes(session: "SessionCore", reader: Reader, after: int) -> Changes:
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
    """Where to begin to read, so that whatever the tail is about has its start in it."""
    started = {one.body.turn_id for one in tail if isinstance(one.body, e.TurnStarted)}
    named = {getattr(one.body, "turn_id", None) for one in tail} - started - {None}
    begin = since if running is None else min(since, running - 1)
    if named:
        for entry in reader.marked_entries(key, TURNS):
            if isinstance(entry.body, e.TurnStarted) and entry.body.turn_id in named:
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


def queued(session: "SessionCore") -> Flow[list[Message]]:
    return (yield from read(lambda reader: _queued(session, reader)))


def _queued(session: "SessionCore", reader: Reader) -> list[Message]:
    since = session.row(reader).queue_seq
    if since is None:
        return []
    return list(queue.waiting(session.read_entries(reader, since - 1, None)).values())


def approvals(session: "SessionCore") -> Flow[list[e.ApprovalAsked]]:
    return (yield from read(lambda reader: _approvals(session, reader)))


def _approvals(session: "SessionCore", reader: Reader) -> list[e.ApprovalAsked]:
    session.row(reader)
    turns = fold_turns(reader.marked_entries(session.key, TURNS))
    return waiting(reader.entries(session.key, after=turns[-1].seq - 1)) if turns else []


# -- what a session without a title is known by ------------------------------------------------


def openings(runtime: "Runtime", session_ids: Sequence[str]) -> Flow[dict[str, str]]:
    return (yield from read(lambda reader: _openings(runtime.tenant, reader, session_ids)))


def _openings(tenant: str, reader: Reader, session_ids: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for session_id in session_ids:
        key = reader.find_key(tenant, session_id)
        try:
            text = _opening(reader, key) if key is not None else ""
        except SessionDamaged:
            continue  # the others are whole
        if text:
            found[session_id] = text
    return found


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


# -- what happened when ------------------------------------------------------------------------


def activity(runtime: "Runtime", filters: ActivityFilters) -> Flow[list[ActiveDay]]:
    given = filters_of(filters, ActivityFilters, "activity()")
    until = _number(given["until"]) if "until" in given else _day(runtime.clock())
    since = _number(given["since"]) if "since" in given else until - 29
    return (yield from read(lambda reader: _activity(runtime.tenant, reader, since, until)))


def _activity(tenant: str, reader: Reader, since: int, until: int) -> list[ActiveDay]:
    counts: dict[int, dict[str, int]] = {}

    def count(at_us: int, what: str) -> None:
        day = _day(at_us)
        if since <= day <= until:
            of_day = counts.setdefault(day, {})
            of_day[what] = of_day.get(what, 0) + 1

    for info in _changed_since(tenant, reader, since * _DAY_US):
        count(info.created_at_us, "sessions")
        key = reader.find_key(tenant, info.id)
        inherited = info.fork.at if info.fork is not None else 0
        if key is None:
            continue
        try:
            turns = fold_turns(reader.marked_entries(key, TURNS, after=inherited))
        except SessionDamaged:
            continue  # the others are whole, and opening this one says what is wrong with it
        for turn in turns:
            count(turn.started_at_us, "turns")
            if turn.ended_at_us is not None:
                count(turn.ended_at_us, turn.status)
    return [
        ActiveDay(day=(_FIRST_DAY + timedelta(days=day)).isoformat(), **counts[day])
        for day in sorted(counts)
    ]


def _changed_since(tenant: str, reader: Reader, since_us: int) -> Iterable[SessionInfo]:
    before: tuple[int, str] | None = None
    while True:
        listing = Listing(
            tenant=tenant, archived=None, since_us=max(0, since_us), limit=_PAGE, before=before
        )
        page = reader.sessions(listing)
        yield from page
        if len(page) < _PAGE:
            return
        before = page[-1].updated_at_us, page[-1].id


def _day(at_us: int) -> int:
    return at_us // _DAY_US


def _number(day: date) -> int:
    return (day - _FIRST_DAY).days
