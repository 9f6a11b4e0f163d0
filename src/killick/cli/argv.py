"""Options before the command's name: they mean what they mean after it, so they are put there.

`killick --model NAME serve` is `killick serve --model NAME`. Whether a word is the value of an
option or the name of a command is known by the options of the command that it would name.
"""

import importlib
import keyword
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from killick.cli.invocation import (
    Invocation,
    code_of,
    explain,
    shared_options,
    warn_of_old_variables,
)
from killick.cli.output import complain


def name_first(words: Sequence[str], find: Callable[[str], click.Command | None]) -> list[str]:
    """The same line, begun with the command's name; as it is where nothing stands before one.

    The name is the first word that names a command which has all the options that stand before it.
    """
    for index, word in enumerate(words):
        command = None if word.startswith("-") else find(word)
        if command is not None and _has_all(command, words[:index]):
            return [word, *words[:index], *words[index + 1 :]]
    return list(words)


def _has_all(command: click.Command, words: Sequence[str]) -> bool:
    """Return whether these words are options of the command, each with its values."""
    values = {
        name: 0 if option.is_flag or option.count else option.nargs
        for option in command.params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }
    index = 0
    while index < len(words):
        name, given, _ = words[index].partition("=")
        if name not in values:
            return False
        index += 1 if given else 1 + values[name]
    return index == len(words)


PROGRAM: Final = "killick"
COMPLETE_VARIABLE: Final = "_KILLICK_COMPLETE"

BROKEN_PIPE: Final = 141
INTERRUPTED: Final = 130

SECTIONS: Final[dict[str, dict[str, str]]] = {
    "Talk": {"chat": "chat", "demo": "demo", "model": "chat"},
    "Look": {
        "sessions": "sessions",
        "show": "show",
        "search": "sessions",
        "context": "show",
        "tail": "show",
        "news": "show",
        "stats": "sessions",
        "where": "sessions",
    },
    "Change": {
        "rename": "change",
        "tag": "change",
        "pin": "change",
        "archive": "change",
        "delete": "change",
        "restore": "change",
        "stop": "change",
        "steer": "change",
    },
    "Finish": {"settle": "runs", "work": "runs"},
    "Change what is in view": {
        "compact": "change",
        "rewind": "change",
        "undo": "change",
        "hide": "change",
        "unhide": "change",
        "fork": "change",
    },
    "Keep": {
        "doctor": "doctor",
        "verify": "doctor",
        "backup": "doctor",
        "restore-backup": "doctor",
        "clean": "doctor",
        "retention": "doctor",
        "erase": "doctor",
        "grant": "doctor",
    },
    "Move": {
        "import": "import_",
        "export": "import_",
        "copy": "import_",
        "continue": "continue_",
        "attach": "attach",
    },
    "Serve": {"serve": "serve", "proxy": "proxy", "acp": "acp", "mcp": "mcp", "token": "serve"},
    "Shell": {"completion": "sessions"},
}
"""Every command, and the module in `killick.cli.commands` that it is loaded from."""

MODULES: Final = {name: module for section in SECTIONS.values() for name, module in section.items()}


class CommandGroup(click.Group):
    """Loads a command when it is run, so that none waits for what another needs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, name_first(args, lambda word: self.get_command(ctx, word)))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:  # click suggests only what is loaded
            name = error.command_name
            raise click.NoSuchCommand(name.lower(), error.message, MODULES, ctx) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return None
        module = importlib.import_module(f"killick.cli.commands.{MODULES[cmd_name]}")
        command: click.Command = getattr(
            module, cmd_name.replace("-", "_") + "_" * keyword.iskeyword(cmd_name)
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, names in SECTIONS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(section):
                formatter.write_dl(
                    [
                        (name, command.get_short_help_str(100))
                        for name, command in commands
                        if command
                    ]
                )


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value:
        from importlib.metadata import version

        click.echo(f"{PROGRAM} {version(PROGRAM)}")
        ctx.exit()


def make_group() -> CommandGroup:
    return CommandGroup(
        name=PROGRAM,
        help="Look at the sessions of LLM agents, change them, and keep them safe.",
        epilog="Options may stand before or after the command's name. "
        "An ID may be shortened to a prefix that is unique. "
        f"'{PROGRAM} COMMAND --help' shows a command's options and examples.",
        context_settings={"help_option_names": ["-h", "--help"]},
        params=[
            *shared_options(),
            click.Option(
                ["--version"],
                is_flag=True,
                expose_value=False,
                is_eager=True,
                callback=_version,
                help="Print the version and leave.",
            ),
        ],
    )


def run(argv: Sequence[str] | None) -> int:
    """Run one command and say why if it fails; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without UTF-8 is shown escapes, no error
            stream.reconfigure(errors="backslashreplace")
    group = make_group()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        instruction = os.environ.get(COMPLETE_VARIABLE)
        if instruction:
            from click.shell_completion import shell_complete

            return shell_complete(group, {}, PROGRAM, COMPLETE_VARIABLE, instruction)
        warn_of_old_variables()
        code = _invoke(group, arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_is_gone()
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except Exception as error:
        if os.environ.get("KILLICK_TRACEBACK"):
            raise
        complain(explain(error))
        return code_of(error)
    return code


def _invoke(group: CommandGroup, arguments: list[str]) -> int:
    if not arguments:
        arguments = ["--help"]
    with group.make_context(PROGRAM, arguments, obj=Invocation()) as context:
        code: Any = group.invoke(context)
        return code if isinstance(code, int) else 0


def _reader_is_gone() -> int:
    """`killick sessions | head` has read enough: no word about it, now or when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE
