"""Tables of sessions and of what they cost."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

from killick.cli.layout import Column
from killick.cli.moments import told
from killick.journal.usage import Total
from killick.model.sessions import SessionInfo

_SHORTEST: Final = 16
"""`ses_` and a time to the millisecond: rarely shared by two sessions."""

SESSION_COLUMNS: Final = (
    Column("ID", style="cyan"),
    Column("CHANGED", least=60),
    Column("STATUS", least=50),
    Column("TITLE", flexible=True),
    Column("TYPE", least=110),
    Column("MODEL", least=90, most=24),
    Column("TAGS", least=130, most=24),
    Column("PROJECT", least=150, most=40),
)


def session_rows(
    infos: Sequence[SessionInfo], openings: Mapping[str, str], now: datetime, *, short: bool
) -> list[tuple[str, ...]]:
    """One row for each session; ids shortened for people, whole for programs.

    A session without a title is known by how it begins.
    """
    length = _unique_length([info.id for info in infos]) if short else None
    return [
        (
            info.id[:length],
            told(info.updated_at, now) if short else info.updated_at.isoformat(),
            status(info),
            info.title or openings.get(info.id) or "(no title)",
            info.type,
            ", ".join(info.models),
            ", ".join(info.tags),
            info.project.root if info.project is not None else "",
        )
        for info in infos
    ]


def status(info: SessionInfo) -> str:
    """How the newest turn stands, and what else sets the session apart."""
    marks = [
        name
        for name, on in (
            ("archived", info.archived),
            ("pinned", info.pinned),
            ("deleted", info.deleted_at is not None),
        )
        if on
    ]
    begun = "empty" if info.fork is None else "forked"  # it has the turns of another, and none yet
    return ", ".join([info.status or begun, *marks])


def _unique_length(ids: Sequence[str]) -> int:
    """How much of each id is needed to tell these apart."""
    ordered = sorted(ids)
    needed = _SHORTEST
    for one, other in pairwise(ordered):
        common = next(
            (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one)
        )
        needed = max(needed, common + 1)
    return needed


def usage_columns(by: str) -> tuple[Column, ...]:
    return (
        Column(by.upper(), flexible=True),
        Column("CALLS", right=True, least=50),
        Column("INPUT", right=True),
        Column("OUTPUT", right=True),
        Column("CACHED", right=True, least=70),
        Column("REASONING", right=True, least=80),
        Column("COST", right=True, least=60),
    )


def usage_rows(usage: Sequence[Total], whole: Total) -> list[tuple[str, ...]]:
    rows = [_usage_row(one.name or "(not said)", one) for one in usage]
    return [*rows, _usage_row("total", whole)]


def _usage_row(name: str, one: Total) -> tuple[str, ...]:
    figures = (one.calls, one.input, one.output, one.cached, one.reasoning)
    return (name, *(f"{figure:,}" for figure in figures), money(one.cost))


def money(cost: float | None) -> str:
    return "" if cost is None else f"{cost:.4f}"


def counted(number: int, name: str) -> str:
    """`1 session`, `2 sessions`: the names come in the plural."""
    singular = "entry" if name == "entries" else name.removesuffix("s")
    return f"{number:,} {singular if number == 1 else name}"
