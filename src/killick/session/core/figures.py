"""Figures over sessions: tokens and cost, and what happened on which day.

Those over all sessions are read from the sums by day. What these lack of a few sessions is added
here; if it is of more, the answer says how far it is behind.
"""

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Final, Literal, TypeVar

import msgspec

from killick.journal.checks import check_kinds
from killick.journal.summary import Total, add_up, names_total
from killick.journal.sums import DAY_US, Active, SpentSum, Sums, wrong_sums
from killick.session.drive.steps import Flow, read, write
from killick.session.runtime import StoreOpening
from killick.stores import engine as ops
from killick.stores.contract import Reader, UsageQuery
from killick.stores.engine.sum_ops import uncounted_changes

FIRST_DAY: Final = date(1970, 1, 1)
UsageBy = Literal["session", "model", "project", "day", "all"]
T = TypeVar("T")

ADDED_SESSIONS: Final = 500
"""Sessions that the sums lack and that a report looks at itself, at most."""


class ActiveDay(msgspec.Struct, frozen=True):
    """One day, in UTC: sessions that began, turns that began, and how turns ended."""

    day: str
    sessions: int = 0
    turns: int = 0
    completed: int = 0
    failed: int = 0
    interrupted: int = 0


class Totals(list[T]):
    """Figures, a line each. `behind` counts the sessions of which they lack something."""

    def __init__(self, lines: Iterable[T], behind: int = 0) -> None:
        super().__init__(lines)
        self.behind = behind


def usage(opening: StoreOpening, by: UsageBy, query: UsageQuery) -> Flow[Totals[Total]]:
    names_total(by)
    of_all = query.session is None and query.project is None and by not in ("session", "project")
    if not of_all:
        return Totals((yield from read(lambda reader: add_up(reader.usage(query), by))))
    report = yield from read(lambda reader: _usage_of_all(reader, by, query))
    return _noted(opening, report)


def _usage_of_all(reader: Reader, by: UsageBy, query: UsageQuery) -> Totals[Total]:
    changes, behind = _lacking(reader, query.tenant)
    known: dict[tuple[int, str, str], SpentSum] = {}
    added = [row for row in changes.usage.values() if _is_wanted(row, query)]
    for row in (*reader.usage_sums(query), *added):
        name = row.day, row.provider, row.model
        known[name] = known[name].plus(row) if name in known else row
    rows = [("", None, row.spent()) for row in known.values() if row.sessions]
    return Totals(add_up(rows, by), behind)


def _is_wanted(row: SpentSum, query: UsageQuery) -> bool:
    return (
        query.model in (None, row.model)
        and (query.since_day is None or row.day >= query.since_day)
        and (query.until_day is None or row.day <= query.until_day)
    )


def activity(
    opening: StoreOpening, *, since: date | None, until: date | None
) -> Flow[Totals[ActiveDay]]:
    check_kinds("activity()", date, since=since, until=until)
    runtime = opening.runtime()
    last = runtime.clock() // DAY_US if until is None else (until - FIRST_DAY).days
    first = last - 29 if since is None else (since - FIRST_DAY).days
    report = yield from read(lambda reader: _activity(reader, runtime.tenant, first, last))
    return _noted(opening, report)


def _activity(reader: Reader, tenant: str, first: int, last: int) -> Totals[ActiveDay]:
    changes, behind = _lacking(reader, tenant)
    days = {active.day: active for active in reader.activity_sums(tenant, first, last)}
    for day, active in changes.days.items():
        if first <= day <= last:
            days[day] = days[day].plus(active) if day in days else active
    shown = [
        _shown(days[day]) for day in sorted(days) if any(msgspec.structs.astuple(days[day])[1:])
    ]
    return Totals(shown, behind)


def _shown(active: Active) -> ActiveDay:
    day, *counts = msgspec.structs.astuple(active)
    return ActiveDay((FIRST_DAY + timedelta(days=day)).isoformat(), *counts)


def _lacking(reader: Reader, tenant: str) -> tuple[Sums, int]:
    """Return what the sums lack of some sessions, and how many other sessions they lack."""
    sessions = reader.uncounted(tenant, ADDED_SESSIONS)
    behind = 0
    if len(sessions) == ADDED_SESSIONS:
        behind = reader.count_uncounted(tenant) - ADDED_SESSIONS
    return uncounted_changes(reader, sessions), behind


def _noted(opening: StoreOpening, report: Totals[T]) -> Totals[T]:
    """Have the sums brought up soon if they are behind."""
    if report.behind:
        opening.runtime().writer.index_soon()
    return report


# -- making them anew --------------------------------------------------------------------------


def check_sums() -> Flow[list[str]]:
    """Say which sums are wrong. Reads what was counted of each session."""
    return (yield from read(lambda reader: wrong_sums(reader.all_sums(), reader.all_counted())))


def rebuild_sums(opening: StoreOpening) -> Flow[None]:
    """Count all sessions anew, in slices between which others write.

    If interrupted: the sums are behind, and catch up in idle moments.
    """
    yield from write(ops.empty_sums)
    try:
        while (yield from write(ops.count_sessions)):
            pass
    finally:
        opening.runtime().writer.index_soon()
