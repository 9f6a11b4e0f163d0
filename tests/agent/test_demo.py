"""`killick demo` shows what it reads back, and `killick model` knows where the model is."""

import re
import sys
import tempfile
from pathlib import Path

import pytest

from killick import Store
from killick.agent.embedded import model_file
from killick.cli import main
from killick.cli.commands.chat import PINS
from tests.cli.running import run_process

ROOT = Path(__file__).parents[2]


@pytest.mark.crash
@pytest.mark.timeout(180)
def test_the_demo_loses_nothing(tmp_path: Path) -> None:
    done = run_process("demo", more={"TMPDIR": str(tmp_path)}, seconds=170)
    assert done.code == 0, done.err
    found = re.search(r"killick show (\S+) --store (\S+)", done.out)
    assert found is not None
    with Store(found[2]) as store:
        session = store.session(found[1])
        turns = [(turn.status, turn.reason) for turn in session.turns()]
        assert turns == [
            ("interrupted", "crashed"),
            ("interrupted", "crashed"),
            ("interrupted", "stopped by the user"),
            ("completed", None),
        ]
        answers = [one for one in session.messages() if one.role == "assistant" and one.text]
        assert [one.state for one in answers] == ["partial", "partial", "complete"]
        for answer in answers:
            assert answer.text.split()[0] in done.out
        results = [one.parts[0] for one in session.messages() if one.role == "tool"]
        assert len(results) == 3


def test_an_agent_that_cannot_begin_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "killick: the agent has ended by itself (code 1)\n"


@pytest.mark.skipif(model_file() is None, reason="requirements/model.lock is not there")
def test_the_model_is_where_it_says(tmp_path: Path) -> None:
    for action in ("where", "install"):
        done = run_process("model", action, "--json")
        assert Path(done.json["path"]).stat().st_size == done.json["bytes"]


def test_the_pins_are_those_of_the_lock() -> None:
    lock = (ROOT / "requirements" / "model.lock").read_text("utf-8")
    assert set(PINS) == set(re.findall(r"^(\S+==\S+)", lock, re.MULTILINE))
