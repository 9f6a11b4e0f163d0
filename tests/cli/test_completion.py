"""Completion in shells."""

import shutil
import subprocess

import pytest

from killick import Store
from tests.cli.running import environment, run_process
from tests.cli.sample import FORBIDDEN, Sample


def offered(sample: Sample, words: str) -> list[str]:
    """What bash would be offered for the last of these words."""
    more = {
        "_KILLICK_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "KILLICK_STORE": str(sample.path),
    }
    done = run_process(more=more)
    assert done.code == 0, done.err
    return [row.partition(",")[2] for row in done.lines if row]


def test_commands_are_offered(sample: Sample) -> None:
    found = {"rename", "retention", "rewind", "restore", "restore-backup"}
    assert set(offered(sample, "killick re")) == found


def test_options_are_offered(sample: Sample) -> None:
    assert {"--store", "--json", "--timeline"} <= set(offered(sample, "killick show --"))


def test_ids_are_offered(sample: Sample) -> None:
    assert offered(sample, f"killick show {sample.build[:-2]}") == [sample.build]


def test_a_hostile_title_or_id_does_not_reach_the_shell(sample: Sample) -> None:
    with Store(sample.path) as store:
        store.create_session(id="\x1b[2J", title="x")
    more = {"COMP_WORDS": "killick show ", "COMP_CWORD": "2", "KILLICK_STORE": str(sample.path)}
    done = run_process(more={**more, "_KILLICK_COMPLETE": "zsh_complete"})
    assert sample.hostile in done.out
    assert [char for char in FORBIDDEN if char in done.out] == []


def test_ids_of_a_store_that_is_not_there_are_none(sample: Sample) -> None:
    sample.path.rename(sample.path.with_name("elsewhere.db"))
    assert offered(sample, "killick show ses_") == []


@pytest.mark.parametrize("shell", ["zsh", "fish", "bash"])
def test_a_script_is_printed(shell: str) -> None:
    if shell == "bash" and not shutil.which("bash"):
        pytest.skip("no bash here")
    done = run_process("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "_KILLICK_COMPLETE" in done.out


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
def test_bash_takes_the_script() -> None:
    script = run_process("completion", "bash").out
    done = subprocess.run(
        ["bash", "-c", script + "\ncomplete -p killick"],
        capture_output=True, text=True, env=environment(), timeout=30,
    )  # fmt: skip
    assert "killick" in done.stdout, done.stderr
