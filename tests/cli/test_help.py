"""Help that teaches: every command has a purpose and examples, and every example works."""

import os
import re
import shlex
from pathlib import Path

import click
import pytest

from killick import Project, Store
from killick.cli.argv import MODULES, make_group
from killick.cli.invocation import Command
from tests.cli.running import Runner, run_process
from tests.cli.sample import Sample
from tests.cli.test_continue import program
from tests.lab.model import Model
from tests.lab.script import Answer, Text
from tests.postgres_fixtures import shared
from tests.proxy.asking import ask
from tests.proxy.bench import proxy

DOCS = Path(__file__).parents[2] / "docs"
GROUP = make_group()
CONTEXT = click.Context(GROUP)
COMMANDS = {name: GROUP.get_command(CONTEXT, name) for name in MODULES}
ELSEWHERE = {"acp", "attach", "chat", "continue", "demo", "mcp", "model", "proxy", "serve"}
"""They need a terminal, processes or a model, or go on until ended; tests of their own run them."""
ENDLESS = {"killick work -- python agent.py"}
"""It goes on until it is ended, as a test of its own does."""


def lines_of(name: str) -> list[str]:
    command = COMMANDS[name]
    assert isinstance(command, Command)
    return [example.words for example in command.examples]


EXAMPLES = [
    (name, words)
    for name in COMMANDS
    if name not in ELSEWHERE
    for words in lines_of(name)
    if words not in ENDLESS
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
    if name == "grant":
        make = "DO $$ BEGIN CREATE ROLE {0} LOGIN; EXCEPTION WHEN duplicate_object THEN END $$"
        for role in ("program", "acme"):
            shared("18").server.execute(make.format(role))
    if name == "token":
        killick("token", "make", "laptop")
    if name == "retention":
        killick("retention", "set", "--project", ".", "--idle-after", "30d")
    if name == "undo":
        killick("compact", sample.build, "--through", "8", "--summary", "x")
    if name == "import":
        killick("export", sample.build, "--output", "session.jsonl")
    if name == "restore-backup":
        killick("backup", "copy.db")
    if name == "restore":
        killick("delete", sample.build)
    if "--expect" in words:
        killick.line(["verify", "--json", ">", "links.json"])
    # The places of messages, of the compaction and the ids of calls are others here.
    meant = {"ID": sample.build, "12": "26", "4": "3", "call_1": "c2"}
    if words == "killick token make laptop":
        killick("token", "revoke", "laptop")
    done = killick.line([meant.get(word, word) for word in shlex.split(words)[1:]])
    expected = 1 if name == "stop" else 0  # no turn runs
    assert done.code == expected, done.err


@pytest.mark.parametrize("words", lines_of("continue"))
def test_every_example_of_continue_starts_the_agent(words: str, tmp_path: Path) -> None:
    """The agents here end with 7, and so does the command that became one of them."""
    for name in ("claude", "codex"):
        program(tmp_path / "bin", name)
    with Store(tmp_path / "work.db") as store:
        session = store.create_session(project=Project(str(tmp_path), str(tmp_path)))
        with session.turn("Hello."):
            pass
    done = run_process(
        *shlex.split(words.replace(" ID", f" {session.id}"))[1:],
        folder=tmp_path,
        more={
            "KILLICK_STORE": str(tmp_path / "work.db"),
            "HOME": str(tmp_path / "home"),
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin",
        },
    )
    assert done.code == (0 if "--no-run" in words else 7), done.err
    assert "resume" in done.out


@pytest.mark.parametrize("words", lines_of("proxy"))
def test_every_example_of_the_proxy_answers_until_it_is_ended(words: str, sample: Sample) -> None:
    with Model([Answer(Text("The linker."))]) as model:
        meant = re.sub(r"https://\S+", model.url, words.replace(" ID", f" {sample.build}"))
        with proxy(sample.path, None, *shlex.split(meant)[2:]) as running:
            done = ask(running.url, "openai-chat", ("user", "Why does the build fail?"))
            assert done.status_code == 200
            assert running.end() == 0


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
