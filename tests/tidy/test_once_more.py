"""CI runs a failed test once more, alone, and says what came of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).parents[2]

TESTS = """
from pathlib import Path

def test_steady():
    pass

def test_unsteady():
    if not Path("tried").exists():
        Path("tried").touch()
        raise AssertionError("the first time")

{more}
"""
BROKEN = "def test_broken():\n    assert False\n"


def test_a_test_that_passes_alone_is_named_and_does_not_fail_the_run(tmp_path: Path) -> None:
    done = _run(tmp_path, "", "-n", "1")
    assert done.returncode == 0
    assert "UNSTEADY test_some.py::test_unsteady" in done.stdout
    assert "the first time" in done.stdout
    assert done.stdout.splitlines()[-1].strip("= ").startswith("1 passed, 1 unsteady in")


def test_a_test_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    done = _run(tmp_path, BROKEN)
    assert done.returncode == 1
    assert "FAILED test_some.py::test_broken" in done.stdout
    assert done.stdout.splitlines()[-1].strip("= ").startswith("1 failed, 1 passed, 1 unsteady in")


def _run(folder: Path, more: str, *workers: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_some.py").write_text(TESTS.format(more=more))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.once_more", *workers],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
