"""Every option of every command means the same before the command's name and after it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from killick.cli import main
from killick.cli.argv import MODULES, make_group
from killick.cli.invocation import DAY, LENGTH, MOMENT, Invocation
from tests.cli.running import run_process

GROUP = make_group()
CONTEXT = click.Context(GROUP)
OPTIONS = [
    (name, option)
    for name in MODULES
    for option in getattr(GROUP.get_command(CONTEXT, name), "params", ())
    if isinstance(option, click.Option)
]
Parsed = Callable[..., tuple[str, dict[str, Any], str | None, bool]]


def value_of(parameter: click.Parameter, folder: Path) -> list[str]:
    """Something that it takes. Where any word will do, it is one that also names a command."""
    kind = parameter.type
    if isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count):
        return []
    if isinstance(kind, click.Choice):
        return [str(kind.choices[0])]
    if isinstance(kind, click.Path | click.File):
        (folder / "serve").touch()
        return [str(folder if getattr(kind, "file_okay", True) is False else folder / "serve")]
    if kind in (MOMENT, DAY):
        return ["2026-11-15"]
    if kind is LENGTH:
        return ["7d"]
    return ["3"] if isinstance(kind, click.IntRange | click.FloatRange) else ["serve"]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Parsed:
    """What a command line comes to: the command does nothing but tell."""

    def parse(*words: str) -> tuple[str, dict[str, Any], str | None, bool]:
        told: list[tuple[str, dict[str, Any], str | None, bool]] = []

        def tell(**given: Any) -> None:
            context = click.get_current_context()
            invocation = context.find_object(Invocation)
            assert invocation is not None
            plain = {name: getattr(one, "name", one) for name, one in given.items()}
            told.append((str(context.info_name), plain, invocation.named, invocation.json))

        for name in MODULES:
            monkeypatch.setattr(GROUP.get_command(CONTEXT, name), "callback", tell)
        assert main(words) == 0, words
        [one] = told
        return one

    return parse


@pytest.mark.parametrize(
    ("name", "option"), OPTIONS, ids=[f"{name} {option.opts[0]}" for name, option in OPTIONS]
)
def test_an_option_means_the_same_before_and_after(
    parsed: Parsed, tmp_path: Path, name: str, option: click.Option
) -> None:
    command = GROUP.get_command(CONTEXT, name)
    assert command is not None
    needed = [
        word
        for one in command.params
        if one.required and one is not option
        for word in ([one.opts[0]] if isinstance(one, click.Option) else [])
        + value_of(one, tmp_path)
    ]
    given = [option.opts[0], *value_of(option, tmp_path)]
    after = parsed(name, *needed, *given)
    assert after[0] == name
    assert parsed(*given, name, *needed) == after
    if len(given) == 2:
        assert parsed("=".join(given), name, *needed) == after


def test_the_later_one_wins(parsed: Parsed) -> None:
    assert parsed("--model", "a", "--store", "s", "serve", "--model", "b")[1]["model"] == "b"
    assert parsed("--model", "a", "--store", "s", "serve")[2] == "s"
    assert parsed("--json", "--tag", "a", "sessions", "--json")[3]


@pytest.mark.parametrize(
    "words",
    ["--nonsense x sessions", "--port 1 sessions", "--model sessions", "--through 3 sessions"],
)
def test_an_option_that_the_command_does_not_have_is_refused_in_one_line(words: str) -> None:
    done = run_process(*words.split())
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "No such option" in done.err
