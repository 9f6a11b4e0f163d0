"""Going on in another agent, from a shell; the agents here say how they were called."""

import os
import shlex
from pathlib import Path

import pytest

from killick import Message, Project, Store, Text
from tests.cli.running import Done, run_process


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    with Store(tmp_path / "work.db") as store:
        for name in (folder, tmp_path / "elsewhere"):
            session = store.create_session(title=name.name, project=Project(str(name), str(name)))
            with session.turn(f"Hello from {name.name}.") as turn:
                turn.record(Message("assistant", [Text("Hello.")]))
    return folder


def program(folder: Path, name: str) -> None:
    """An agent that prints its arguments, its folder and its home, and ends with 7."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text('#!/bin/sh\necho "$@"; pwd; echo "$HOME"; exit 7\n')
    file.chmod(0o755)


def killick(work: Path, *arguments: str, path: Path | None = None) -> Done:
    more = {"KILLICK_STORE": str(work.parent / "work.db")}
    if path is not None:
        more["PATH"] = f"{path}{os.pathsep}/usr/bin{os.pathsep}/bin"
    return run_process(*arguments, folder=work, more=more)


def test_it_is_put_there_and_the_answer_says_how_to_go_on(work: Path, tmp_path: Path) -> None:
    done = killick(
        work, "continue", "--in", "codex", "--home", str(tmp_path / "h"), "--no-run", "--json"
    )
    assert (done.code, set(done.json)) == (0, {"id", "path", "command", "losses"})
    answer = done.json
    assert answer["command"] == ["env", f"HOME={tmp_path / 'h'}", "codex", "resume", answer["id"]]
    assert "Hello from work." in Path(answer["path"]).read_text()
    assert Path(answer["path"]).is_relative_to(tmp_path / "h" / ".codex" / "sessions")


def test_the_line_that_says_how_to_go_on_can_be_typed(work: Path, tmp_path: Path) -> None:
    home = tmp_path / "a home"
    done = killick(work, "continue", "--in", "codex", "--home", str(home), "--no-run")
    command = done.lines[-1].removeprefix("go on: ")
    assert shlex.split(command)[:3] == ["env", f"HOME={home}", "codex"]


def test_the_agent_is_started_in_the_folder_of_the_session(work: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin", "claude")
    home = tmp_path / "h"
    done = killick(
        work, "continue", "--in", "claude-code", "--home", str(home), path=tmp_path / "bin"
    )
    assert done.code == 7
    arguments, folder, its_home = done.lines[-3:]
    (file,) = home.glob(".claude/projects/*/*.jsonl")
    assert (arguments, folder, its_home) == (f"--resume {file.stem}", str(work), str(home))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--in", "codex"), "not installed"),
        (("--in", "opencode", "--no-run"), "not installed"),
        (("--in", "goose"), "killick export"),
        (("ses_none", "--in", "codex", "--no-run"), "ses_none"),
        (("--in", "emacs"), "emacs"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(
    work: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "none").mkdir()
    done = killick(
        work, "continue", *arguments, "--home", str(tmp_path / "h"), path=tmp_path / "none"
    )
    assert done.code != 0
    assert words in done.err
    assert not (tmp_path / "h").exists()


def test_without_an_id_it_is_the_last_session_of_this_folder_and_no_other(
    work: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    done = run_process(
        "continue", "--in", "codex", "--no-run", "--home", str(tmp_path / "h"),
        folder=other, more={"KILLICK_STORE": str(tmp_path / "work.db")},
    )  # fmt: skip
    assert (done.code != 0, "no session of" in done.err) == (True, True)


def test_what_has_grown_there_is_refused(work: Path, tmp_path: Path) -> None:
    arguments = ("continue", "--in", "qwen", "--home", str(tmp_path / "h"), "--no-run", "--json")
    path = Path(killick(work, *arguments).json["path"])
    path.write_bytes(path.read_bytes() + b"{}\n")
    done = killick(work, *arguments)
    assert done.code != 0
    assert f"killick import {path}" in done.err
