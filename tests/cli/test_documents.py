"""What the documents say of the command is so: its lines run, and its JSON has these fields."""

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from killick import Delta, FollowedDelta
from killick.cli.argv import MODULES, make_group
from killick.cli.render import followed_shape
from killick.exchange import EXPORTS
from tests.cli.running import Runner
from tests.cli.sample import Sample
from tests.docs.pages import DOCS, PAGES, blocks, name

LINES = [
    line
    for page in PAGES
    for block in blocks(page, "sh")
    for line in block.splitlines()
    if line.startswith("killick")
]
SHOWN = sorted(
    {
        (name(page), line.strip())
        for page in PAGES
        if page.name != "CHANGELOG.md"  # it names what was removed, too
        for line in [
            *page.read_text(encoding="utf-8").splitlines(),
            *re.findall(r"`(killick [^`]+)`", page.read_text(encoding="utf-8").replace("\n", " ")),
        ]
        if re.match(r"\s*killick (?:-|[a-z-]+(?:\s|$))", line)
    }
)
"""Every line of a block, and every command in a sentence, of whatever kind."""

GROUP = make_group()
CONTEXT = click.Context(GROUP)
PAGE = (DOCS / "command.md").read_text(encoding="utf-8")


def described(shape: str) -> set[str]:
    """The fields that the page gives for one shape."""
    found = re.search(rf"^\| {shape} \| (.+) \|$", PAGE, re.MULTILINE)
    assert found is not None
    return set(re.findall(r"`(\w+)`", found[1]))


@pytest.mark.parametrize("line", LINES)
def test_every_line_of_a_document_runs(
    killick: Runner, sample: Sample, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line, comments=True)[1:]
    if "--expect" in words:
        killick.line(["verify", "--json", ">", "links.json"])
    done = killick.line([sample.build if word == "ID" else word for word in words])
    assert done.code == 0, done.err


def options(command: click.Command) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {
        "--help", "--store", "--json",
    }  # fmt: skip


@pytest.mark.parametrize(("page", "line"), SHOWN)
def test_every_command_that_a_document_names_is_there_with_its_options(
    page: str, line: str
) -> None:
    """Those that need a model, a terminal or another agent are not run; none is made up."""
    words = re.split(r"\s{3,}|\s#\s|\s--\s|\s&&\s|\s>\s", line)[0].split()[1:]
    words = [word.strip("[]().,;:|") for word in words]
    commands = [word for word in words if word in MODULES]
    if not commands:
        assert all(word.startswith("-") or word == "--help" for word in words[:1]), line
        return
    command = GROUP.get_command(CONTEXT, commands[0])
    assert command is not None
    if isinstance(command, click.Group) and (under := [w for w in words if w in command.commands]):
        command = command.commands[under[0]]
    named = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"}
    assert named <= options(command) | options(GROUP), (page, line)


def keys(value: Any) -> set[str]:
    return set(value)


def test_sessions_shown_turns_and_contexts(killick: Runner, sample: Sample) -> None:
    session = described("a session")
    assert keys(killick("sessions", "--json").json[0]) == session
    shown = killick("show", sample.build, "--timeline", "--json").json
    assert keys(shown) == session | {"transcript", "turns", "damage"}
    assert keys(shown["transcript"][0]) == described("something shown")
    assert keys(shown["turns"][0]) == described("a turn")
    assert keys(killick("context", sample.build, "--json").json) == described("a context")


@pytest.mark.parametrize(
    "words",
    [
        ("rename", "x"), ("tag", "x"), ("pin",), ("archive",), ("undo",), ("hide", "3"),
        ("unhide", "3"), ("rewind", "--through", "3"), ("delete",), ("restore",),
        ("compact", "--through", "8", "--summary", "x"),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_changes_print_the_session_and_the_place(
    killick: Runner, sample: Sample, words: tuple[str, ...]
) -> None:
    name, *rest = words
    if name in {"undo", "restore"}:
        first = {"undo": ["rewind", "--through", "3"], "restore": ["delete"]}[name]
        assert killick(first[0], sample.build, *first[1:]).code == 0
    value = killick(name, sample.build, *rest, "--json").json
    assert keys(value) == described("a session") | {"seq"}
    assert value["id"] == sample.build


def test_entries_deltas_usage_and_removals(killick: Runner, sample: Sample) -> None:
    done = killick("tail", sample.build, "--until-end", "--after", "24", "--json")
    assert keys(done.json) == described("an entry")
    stats = killick("stats", "--json").json
    assert keys(stats) == {"behind", "by", "counts", "total", "usage"}
    assert keys(stats["usage"][0]) == described("usage")
    (removal, *_) = killick("clean", "--idle-after", "0s", "--json").json
    assert keys(removal) == described("a removal")
    assert keys(killick("retention", "set", "--json").json[0]) == described("a rule")
    killick("erase", sample.build, "--yes")
    assert keys(killick("retention", "receipts", "--json").json[0]) == described("a receipt")


def test_every_format_of_an_export_is_named() -> None:
    assert {to for to in EXPORTS if f"`{to}`" not in PAGE} == set()


def test_deltas() -> None:
    delta = FollowedDelta(5, "turn", "message", None, Delta(0, 0, "text", "Hello"))
    assert keys(followed_shape(delta)) == described("a delta")


@pytest.mark.parametrize("words", ["doctor", "backup", "erase ID --yes", "where"])
def test_the_rest_has_the_fields_that_the_page_names(
    killick: Runner, sample: Sample, words: str
) -> None:
    name, *_ = words.split()
    done = killick(*(sample.build if w == "ID" else w for w in words.split()), "--json")
    sentence = next(one for one in re.split(r"\.\s|\n- ", PAGE) if f"`{name}` prints" in one)
    named = set(re.findall(r"`(\w+)`", sentence.replace("\n", " "))) - {name}
    assert keys(done.json) <= named
    assert named - keys(done.json) <= {"option", "environment", "default"}
