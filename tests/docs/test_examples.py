"""The examples run as a user would run them, and print what is in their stores."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"


def run(example: str, folder: Path, more: dict[str, str] = {}) -> list[str]:  # noqa: B006
    command = [sys.executable, "-W", "error", str(EXAMPLES / example)]
    env = os.environ | more
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.strip() for line in done.stdout.splitlines()]


@pytest.mark.crash
def test_survive_kill_prints_everything_that_was_acknowledged(tmp_path: Path) -> None:
    """Prompt, text, both results, the third tool's start and output, and one ending are there."""
    said, killed, *read = run("survive_kill.py", tmp_path)
    assert "deploy hangs" in said
    assert killed.startswith("Killed with signal 9.")
    assert read[0] == "user, complete: Test it, read the log, and deploy."
    assert read[1].startswith("assistant, partial: I do all three at once.")
    assert set(read[2:4]) == {
        "tool, complete: run_tests: no problem found",
        "tool, complete: read_log: no problem found",
    }
    assert "tool_started: call_deploy" in read
    assert "tool_output: call_deploy uploading 1 of 40" in read
    assert [line for line in read if line.startswith("the turn")] == [
        "the turn: interrupted, crashed"
    ]
    assert not any("deploy: no problem" in line for line in read)


def test_survive_kill_leaves_no_files(tmp_path: Path) -> None:
    """The example cleans up after itself."""
    run("survive_kill.py", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_record_a_turn_prints_its_messages(tmp_path: Path) -> None:
    """Four messages, all complete, and a completed turn."""
    lines = run("record_a_turn.py", tmp_path)
    roles = ["user", "assistant", "tool", "assistant"]
    assert [line.split()[:2] for line in lines[:-1]] == [[role, "complete"] for role in roles]
    assert lines[-1] == "completed"


def test_record_a_turn_async_keeps_what_was_said(tmp_path: Path) -> None:
    """After a timeout the text so far is a partial message, and the turn is interrupted."""
    _, prompt, answer, ending = run("record_a_turn_async.py", tmp_path)
    assert prompt == "user, complete: 'Count the seconds of an hour.'"
    assert answer.startswith(
        "assistant, partial: 'You asked: Count the seconds of an hour.\\n0 1 2"
    )
    assert ending == "the turn: interrupted, cancelled"


@pytest.mark.parametrize("example", ["own_loop_openai.py", "own_loop_anthropic.py"])
def test_own_loops_run_a_tool_and_go_on_with_their_session(
    tmp_path: Path, provider: dict[str, str], example: str
) -> None:
    """The second run finds the conversation of the first."""
    said, answer, *messages = run(example, tmp_path, provider)
    assert (said, answer) == ("I run them.", "All three pass.")
    roles = ["user", "assistant", "tool", "assistant"]
    assert messages == [f"{role}, complete" for role in roles]
    assert len(run(example, tmp_path, provider)) == len(messages) + 3


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(example: Path) -> None:
    """An example fits on a screen."""
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 60
