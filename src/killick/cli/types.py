"""Arguments that mean something here: sessions, places in a journal, times."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from killick.cli.frame import Frame
from killick.cli.moments import parse_length, parse_moment
from killick.cli.safety import clean_line
from killick.errors import KillickError
from killick.model.sessions import moment
from killick.session.sources import system_clock

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
