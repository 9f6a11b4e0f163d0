"""What every command shares: the options that all have, the store, answers, help.

Every option may stand before the command's name too (`placing`); the later one wins. `--store` and
`--json` also belong to the group, whose help shows them.
"""

import os
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

from killick.cli.printing import Line, Printer, complain, line, printer_for
from killick.cli.safety import clean_line
from killick.errors import StoreError
from killick.session.opening import default_path, file_path
from killick.session.store import Session, Store

STORE_VARIABLE = "KILLICK_STORE"


class Where(NamedTuple):
    """Which store is meant, and why."""

    url: str
    chosen_by: Literal["option", "environment", "default"]

    @property
    def file(self) -> Path | None:
        """None for a store that is no file."""
        is_file = "://" not in self.url or self.url.startswith("sqlite:///")
        return file_path(self.url) if is_file else None


class Frame:
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

    def open(self, *, create: bool = False) -> Store:
        """The store. One that was named must be there: a typing error is no empty store.

        What fills a store may `create` it.
        """
        where = self.where()
        if where.chosen_by == "default":
            return Store()
        if where.file is not None and not create and not where.file.exists():
            raise StoreError(
                f"there is no store at {str(where.file)!r}; check --store or {STORE_VARIABLE}"
            )
        return Store(where.url)

    def answer(self, value: object, *lines: Line | str) -> None:
        """Say what a command has done: to a person, or to a program."""
        if self.json:
            self.out.json(value)
        else:
            self.out.lines(line(one) if isinstance(one, str) else one for one in lines)

    def note(self, text: str) -> None:
        """Tell a person something beside the output."""
        if not self.json:
            complain(text)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on only if somebody has said so; where nobody can be asked, `--yes` must have."""
        if yes:
            return
        if self.json or not sys.stdin.isatty():
            raise click.UsageError(f"{question} Nobody can be asked here: say --yes to do it.")
        if not click.confirm(clean_line(question), err=True):
            raise click.ClickException("not done: nothing was changed")


pass_frame = click.make_pass_decorator(Frame, ensure=True)


def find(store: Store, prefix: str) -> str:
    """The id that a prefix stands for."""
    return store.resolve_id(prefix)


def open_session(store: Store, prefix: str) -> Session:
    return store.session(find(store, prefix))


# -- options that all commands have ------------------------------------------------------------


def _choose_store(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Frame).named = value


def _choose_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value:
        ctx.ensure_object(Frame).json = True


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
            for one in self.examples:
                formatter.write_text(f"# {one.shows}")
                formatter.write(f"{'':{formatter.current_indent}}{one.words}\n")


def command(*examples: tuple[str, str]) -> Callable[[Callable[..., Any]], Command]:
    """A command named as its function, helped by its docstring; examples are `(line, purpose)`."""

    def make(function: Callable[..., Any]) -> Command:
        return click.command(
            name=function.__name__.rstrip("_"),
            cls=Command,
            examples=[Example(*one) for one in examples],
            context_settings={"help_option_names": ["-h", "--help"]},
        )(pass_frame(function))

    return make
