"""Help that teaches: every command has a purpose and examples, and every example works."""

import re
import shlex
from pathlib import Path

import click
import pytest

from killick.cli.argv import MODULES, make_group
from killick.cli.invocation import Command
from tests.cli.running import Runner
from tests.cli.sample import Sample
from tests.postgres_fixtures import shared

DOCS = Path(__file__).parents[2] / "docs"
GROUP = make_group()
CONTEXT = click.Context(GROUP)
COMMANDS = {name: GROUP.get_command(CONTEXT, name) for name in MODULES}
ELSEWHERE = {"chat", "demo", "model", "serve"}
"""They need a terminal, processes or a model, or go on until ended; tests of their own run them."""

EXAMPLES = [
    (name, one.words)
    for name, command in COMMANDS.items()
    if isinstance(command, Command) and name not in ELSEWHERE
    for one in command.examples
]


@pytest.mark.parametrize("name", MODULES)
def test_every_command_has_a_purpose_and_examples(name: str) -> None:
    command = COMMANDS[name]
    assert isinstance(command, Command)
    assert command.name == name
    assert 10 < len(command.get_short_help_str(100)) <= 66
    assert command.examples
    assert all(one.words.startswith(f"killick {name}") for one in command.examples)


@pytest.mark.parametrize("name", MODULES)
def test_every_option_has_a_help(name: str) -> None:
    command = COMMANDS[name]
    assert command is not None
    bare = [one.name for one in command.params if isinstance(one, click.Option) and not one.help]
    assert bare == []


@pytest.mark.parametrize("name", MODULES)
def test_the_shared_options_are_in_every_help(killick: Runner, name: str) -> None:
    done = killick(name, "--help")
    assert done.code == 0
    for expected in ("--store", "--json", "Examples:", "Usage: killick"):
        assert expected in done.out
    assert "-h, --help" in done.out


@pytest.mark.parametrize(("name", "words"), EXAMPLES, ids=[words for _, words in EXAMPLES])
def test_every_example_works(
    killick: Runner,
    sample: Sample,
    name: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ID is a session; what an example needs to be there is made first."""
    monkeypatch.chdir(tmp_path)
    if "postgresql://" in words:
        shared("18").empty()
        words = re.sub(r"postgresql://\S+", shared("18").server.url(), words)
    Path("summary.txt").write_text("It was the linker.", encoding="utf-8")
    monkeypatch.setenv("KILLICK_TOKENS", str(tmp_path / "tokens.json"))
    if name == "token":
        killick("token", "make", "laptop")
    if name == "undo":
        killick("compact", sample.build, "--through", "8", "--summary", "x")
    if name == "import":
        killick("export", sample.build, "--output", "session.jsonl")
    if name == "restore-backup":
        killick("backup", "copy.db")
    if name == "restore":
        killick("delete", sample.build)
    # The places of messages and of the compaction are others here than in the examples.
    meant = {"ID": sample.build, "12": "26", "4": "3"}
    if words == "killick token make laptop":
        killick("token", "revoke", "laptop")
    done = killick(*(meant.get(word, word) for word in shlex.split(words)[1:]))
    expected = 1 if name == "stop" else 0  # no turn runs
    assert done.code == expected, done.err


def test_the_help_fits_a_terminal_of_80_columns(killick: Runner) -> None:
    for words in ([], *([name] for name in MODULES)):
        text = killick(*words, "--help").out
        long = [one for one in text.splitlines() if len(one) > 80 and "killick " not in one]
        assert long == []


def test_the_page_about_the_command_lists_every_command_and_exit_code() -> None:
    page = (DOCS / "command.md").read_text(encoding="utf-8")
    assert {name for name in MODULES if f"`{name}" not in page} == set()
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert codes == {0, 1, 2, 3, 4, 5, 6, 130, 141}
