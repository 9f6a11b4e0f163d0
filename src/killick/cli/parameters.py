"""Times and lengths of time, as people write and read them. Pure: what time it is comes in."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from killick.cli.invocation import Frame
from killick.cli.output import clean_line
from killick.errors import KillickError
from killick.model.sessions import moment
from killick.session.runtime import system_clock

_UNITS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_AGO: Final = re.compile(r"(\d{1,6})([smhdw])")


def parse_length(text: str) -> timedelta:
    """`90s`, `30m`, `12h`, `7d`, `2w`."""
    found = _AGO.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no length of time; write 30m, 12h, 7d or 2w")
    return int(found[1]) * _UNITS[found[2]]


def parse_moment(text: str, now: datetime) -> datetime:
    """A date, a time, or how long ago: `2026-11-15`, `2026-11-15T09:30`, `yesterday`, `2h`.

    One without a zone is in that of `now`.
    """
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if text == "today":
        return today
    if text == "yesterday":
        return today - timedelta(days=1)
    try:
        if _AGO.fullmatch(text.strip()):
            return now - parse_length(text)
        at = datetime.fromisoformat(text.strip())
        at = at if at.tzinfo is not None else at.replace(tzinfo=now.tzinfo)
        return at.astimezone(UTC)  # fails in the first and the last hours that there are
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{text!r} is no time; write 2026-11-15, 2026-11-15T09:30, yesterday, or 2h for "
            "two hours ago"
        ) from error


def told(at: datetime, now: datetime) -> str:
    """A time as short as it can be understood: today the hour, this year the day."""
    at = at.astimezone(now.tzinfo)
    if at.date() == now.date():
        return at.strftime("%H:%M:%S")
    if at.year == now.year:
        return at.strftime("%d %b %H:%M")
    return at.strftime("%Y-%m-%d")


def lasting(seconds: float | None) -> str:
    """A duration: `0.3 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


F = TypeVar("F", bound=Callable[..., Any])

OFFERED = 50
"""How many sessions a shell is offered to complete from."""


def local_now() -> datetime:
    return moment(system_clock()).astimezone()


class SessionId(click.ParamType[str]):
    """A session's id, or a prefix of it that is unique. A shell is offered the newest."""

    name = "id"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        frame = ctx.find_object(Frame) or Frame()
        try:
            with frame.open() as store:
                infos = store.sessions(archived=None, limit=OFFERED)
        except (KillickError, OSError):
            return []  # a shell that asks what could be typed is told nothing rather than an error
        return [
            CompletionItem(info.id, help=clean_line(info.title or ""))
            for info in infos
            if info.id.startswith(incomplete) and clean_line(info.id) == info.id
        ]


class Moment(click.ParamType[datetime]):
    """A date, a time, or how long ago."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return parse_moment(value, local_now())
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Day(click.ParamType[date]):
    """A day; of a time, the day it lies in."""

    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        return MOMENT.convert(value, param, ctx).astimezone(local_now().tzinfo).date()


class Length(click.ParamType[timedelta]):
    """A length of time."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return parse_length(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SESSION = SessionId()
MOMENT = Moment()
DAY = Day()
LENGTH = Length()
SEQ = click.IntRange(0, 2**62)
LIMIT = click.IntRange(1, 1_000_000)


def session_argument(function: F) -> F:
    """The session that a command is about: ID."""
    return click.argument("session_id", metavar="ID", type=SESSION)(function)
