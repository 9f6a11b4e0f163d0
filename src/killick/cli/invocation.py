"""One run of the command: its store and output, its failures, its parameters."""

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

from killick import errors as e
from killick.cli.output import OutputLine, Printer, complain, line, printer_for
from killick.errors import KillickError, SessionNotFound, StoreError
from killick.model.sessions import Project, moment
from killick.session.open import default_path, file_path, old_default_path
from killick.session.runtime import system_clock
from killick.session.sync import Session, Store
from killick.views.escape import escape_line

F = TypeVar("F", bound=Callable[..., Any])

FAILED: Final = 1
WRONG_USAGE: Final = 2
IN_PART: Final = 3
"""Done, and not all of it is well: damage was met, something is left out."""
NOT_FOUND: Final = 4
CONFLICT: Final = 5
STORE: Final = 6

_CODES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (click.UsageError, WRONG_USAGE),
    (e.SessionDamaged, IN_PART),
    (e.SessionNotFound, NOT_FOUND),
    (e.SessionAmbiguous, NOT_FOUND),
    (e.UsageError, WRONG_USAGE),
    (e.ConflictError, CONFLICT),
    (e.StoreError, STORE),
    (e.SearchDamaged, STORE),
    (e.KillickError, FAILED),
    (OSError, STORE),
    (ValueError, WRONG_USAGE),
)
"""The first that fits."""


def code_of(error: Exception) -> int:
    if isinstance(error, click.ClickException) and not isinstance(error, click.UsageError):
        return FAILED
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def explain(error: Exception) -> str:
    """Say what is wrong, and what to do."""
    match error:
        case click.UsageError():
            return _with_help(error)
        case click.ClickException():
            return error.format_message()
        case e.SessionDeleted():
            return _first_clause(error) + "; 'killick restore ID' brings it back"
        case e.SessionNotFound():
            return _for_people(str(error))
        case e.SessionHasForks():
            return _first_clause(error) + "; --forks erases them with it"
        case e.SessionDamaged():
            return f"{error}; 'killick doctor' says what is left of it"
        case e.UndoRefused():
            return (
                str(error)
                .replace("session.fork(at=", "'killick fork ID --at ")
                .replace(")", "'", 1)
            )
        case e.SessionBusy():
            return _first_clause(error) + "; 'killick stop ID' asks it to end"
        case e.KillickError() | ValueError():
            return _for_people(str(error))
        case PermissionError():
            return f"{error.filename}: you may not; change its permissions, or name another file"
        case OSError():
            name = f"{error.filename}: " if error.filename is not None else ""
            return f"{name}{error.strerror or error}"
        case _:
            return (
                f"unexpected {type(error).__name__}: {error}; KILLICK_TRACEBACK=1 shows where, "
                "please report it"
            )


_WORDS: Final = {
    "store.sessions() lists them": "'killick sessions' lists them",
    "message.seq and entry.seq say which is which": "'killick show ID' has them as #1, #2 …",
    "store.rebuild_search() makes it anew": "'killick doctor --rebuild-search' makes it anew",
    "message.seq says where one is": "'killick show ID' has their places as #1, #2 …",
}
"""What the library tells a program to do, and how a person does the same."""


def _for_people(message: str) -> str:
    for theirs, ours in _WORDS.items():
        message = message.replace(theirs, ours)
    return message


def _first_clause(error: Exception) -> str:
    """Return an error without its advice to programs."""
    return str(error).partition(";")[0]


def _with_help(error: click.UsageError) -> str:
    where = error.ctx.command_path if error.ctx is not None else "killick"
    if isinstance(error, click.NoSuchCommand) and error.possibilities:
        names = " or ".join(f"'{name}'" for name in error.possibilities)
        return f"{error.message.rstrip('.')}; did you mean {names}? See '{where} --help'"
    message = error.format_message().rstrip(".")
    return f"{message}; see '{where} --help'"


# -- what is left from before the renaming -----------------------------------------------------

_OLD_NAME: Final = "holdfast"
_OLD_VARIABLES: Final = ("MODEL", "STORE", "TOKENS", "TRACEBACK")


def warn_of_old_variables() -> None:
    """Name the variables that this command read under its old name, and does not read now."""
    prefix = f"{_OLD_NAME.upper()}_"
    names = [name for name in _OLD_VARIABLES if os.environ.get(prefix + name)]
    if names:
        pairs = [f"{prefix}{name} is KILLICK_{name} now" for name in names]
        complain(f"{', '.join(pairs)}; the old name is not obeyed")


def old_store_hint() -> str | None:
    """Say where the default store of the old name lies, if there is none of the new name."""
    old, new = old_default_path(), default_path()
    if old is None:
        return None
    return (
        f"your store from before the renaming is {old}: --store {shlex.quote(str(old))} opens it; "
        f"to make it the default again, close what uses it and move it, with its -wal if there is "
        f"one, to {new}"
    )


def warn_of_old_tokens(path: Path) -> None:
    """Name the tokens file of the old name, if `path`, where tokens are now, is not there."""
    import platformdirs

    old = Path(platformdirs.user_config_dir(_OLD_NAME, appauthor=False)) / path.name
    if not os.environ.get("KILLICK_TOKENS") and not path.exists() and old.exists():
        complain(
            f"your tokens from before the renaming are in {old} and are not read; "
            f"move the file to {path}, or name it in KILLICK_TOKENS"
        )


STORE_VARIABLE = "KILLICK_STORE"


class Where(NamedTuple):
    """The store that is meant, and why."""

    url: str
    chosen_by: Literal["option", "environment", "default"]

    @property
    def file(self) -> Path | None:
        """None for a store that is no file."""
        is_file = "://" not in self.url or self.url.startswith("sqlite:///")
        return file_path(self.url) if is_file else None

    @property
    def is_there(self) -> bool:
        """False for a file that does not exist, and that no restored backup waits to become."""
        if self.file is None or self.file.exists():
            return True
        from killick.stores.sqlite.generation import restoring

        return restoring(self.file).exists()

    @property
    def shown(self) -> str:
        """The whole path of a file; of a server the address, without user and password."""
        if self.file is not None:
            there = "" if self.is_there else ", which is not there yet"
            return f"{self.file.absolute()}{there}"
        scheme, _, rest = self.url.partition("?")[0].partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"


class Invocation:
    """One run of the command."""

    def __init__(self) -> None:
        self.named: str | None = None
        self.json = False

    @cached_property
    def out(self) -> Printer:
        return printer_for(sys.stdout)

    def where(self) -> Where:
        if self.named is not None:
            return Where(self.named, "option")
        named = os.environ.get(STORE_VARIABLE)
        if named:
            return Where(named, "environment")
        return Where(str(default_path()), "default")

    def open(self, *, create: bool = False, tenant: str | None = None) -> Store:
        """The store. It must be there: a typing error is no empty store, and looking makes none.

        What fills a store may `create` it.
        """
        where = self.where()
        if where.file is not None and not create and not where.is_there:
            raise StoreError(f"there is no store at {str(where.file)!r}; {_advice(where)}")
        if where.chosen_by == "default":
            self.warn_of_old_store()
            return Store(tenant=tenant)
        return Store(where.url, tenant=tenant)

    def look(self, *, tenant: str | None = None) -> Store:
        """The store, for a list of what is in it. A default store that is not there has nothing."""
        where = self.where()
        is_new = where.chosen_by == "default" and not where.is_there
        if not is_new or old_store_hint() is not None:
            return self.open(tenant=tenant)
        from killick.stores.memory import MemoryDisk

        return Store(MemoryDisk().open())

    def warn_of_old_store(self) -> None:
        """Name the old default store, if the new one is used and not there yet."""
        hint = old_store_hint() if self.where().chosen_by == "default" else None
        if hint is not None:
            complain(hint)

    def answer(self, value: object, *lines: OutputLine | str) -> None:
        """Say what a command has done: to a person, or to a program."""
        if self.json:
            self.out.json(value)
        else:
            self.out.lines(line(text) if isinstance(text, str) else text for text in lines)

    def note(self, text: str) -> None:
        """Tell a person something beside the output."""
        if not self.json:
            complain(text)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on only if the person agrees; without a terminal, `--yes` must be given."""
        if yes:
            return
        if self.json or not sys.stdin.isatty():
            raise click.UsageError(
                f"{question} There is no terminal to ask in: say --yes to do it."
            )
        if not click.confirm(escape_line(question), err=True):
            raise click.ClickException("not done: nothing was changed")


def _advice(where: Where) -> str:
    if where.chosen_by != "default":
        return f"check --store or {STORE_VARIABLE}"
    return (
        old_store_hint() or f"the first session makes it; --store or {STORE_VARIABLE} names another"
    )


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


def find(store: Store, prefix: str) -> str:
    """The id that a prefix stands for."""
    return store.resolve_id(prefix)


def open_session(store: Store, prefix: str) -> Session:
    return store.session(find(store, prefix))


def find_or_last(invocation: Invocation, store: Store, prefix: str | None) -> str:
    """The id that a prefix stands for; without one, of the session that was changed last.

    Of this folder's project, if it has sessions. Raises SessionNotFound if there are none.
    """
    if prefix is not None:
        return find(store, prefix)
    root = project_of(Path.cwd()).root
    infos = store.sessions(project=root, limit=1) or store.sessions(limit=1)
    if not infos:
        raise SessionNotFound(f"there are no sessions in {invocation.where().shown}")
    return infos[0].id


def project_of(directory: Path) -> Project:
    """Return the project of a directory: the nearest folder above it that git knows."""
    for folder in (directory, *directory.parents):
        if (folder / ".git").exists():
            return Project(str(folder), str(directory))
    return Project(str(directory), str(directory))


# -- options that all commands have ------------------------------------------------------------


def _choose_store(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Invocation).named = value


def _choose_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value:
        ctx.ensure_object(Invocation).json = True


def shared_options() -> list[click.Parameter]:
    """Made anew for each command: click keeps state in them."""
    return [
        click.Option(
            ["--store"],
            metavar="URL",
            expose_value=False,
            callback=_choose_store,
            help=f"The store: a file or a URL. {STORE_VARIABLE} sets it too.",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            callback=_choose_json,
            help="Print JSON for programs.",
        ),
    ]


# -- commands and their help -------------------------------------------------------------------


class Example(NamedTuple):
    """A command line, and what it is for."""

    words: str
    shows: str


class Command(click.Command):
    """A command that has the shared options and examples."""

    def __init__(self, *arguments: Any, examples: Sequence[Example] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.extend(shared_options())
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.examples:
            return
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write_text(f"# {example.shows}")
                formatter.write(f"{'':{formatter.current_indent}}{example.words}\n")


def command(*examples: tuple[str, str]) -> Callable[[Callable[..., Any]], Command]:
    """A command named as its function, helped by its docstring; examples are `(line, purpose)`."""

    def make(function: Callable[..., Any]) -> Command:
        return click.command(
            name=function.__name__.rstrip("_").replace("_", "-"),
            cls=Command,
            examples=[Example(*example) for example in examples],
            context_settings={"help_option_names": ["-h", "--help"]},
        )(pass_invocation(function))

    return make


Tell = Callable[[int, int], None]
"""Called with what is done, and how much there is."""


@contextmanager
def progress(invocation: Invocation, label: str) -> Iterator[Tell | None]:
    """A bar on the terminal for as long as this lasts."""
    if invocation.json or not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr, width=0) as bar:

        def tell(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield tell


# -- values of parameters ----------------------------------------------------------------------

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
    match = _AGO.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no length of time; write 30m, 12h, 7d or 2w")
    return int(match[1]) * _UNITS[match[2]]


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
        invocation = ctx.find_object(Invocation) or Invocation()
        try:
            with invocation.open() as store:
                infos = store.sessions(archived=None, limit=OFFERED)
        except (KillickError, OSError):
            return []  # a shell that asks what could be typed is told nothing rather than an error
        return [
            CompletionItem(info.id, help=escape_line(info.title or ""))
            for info in infos
            if info.id.startswith(incomplete) and escape_line(info.id) == info.id
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


def last_session_argument(function: F) -> F:
    """The session that a command shows: ID, or the last one."""
    argument = click.argument("session_id", metavar="[ID]", type=SESSION, required=False)
    return argument(function)
