"""What needs Linux is marked, listed in docs/platforms.md, and tested without Linux too."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
FILES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
LINUX = re.compile(r"/proc/|pidfd|eventfd|inotify|signalfd")
READ_IF_THERE = {
    "tests/agent/test_running.py",  # the peak of a memory
    "tests/crash/test_fork.py",  # the descriptors of a process
}
"""Files that look into /proc, and do without where it is not."""


def marked() -> set[str]:
    """The tests with the mark, by their decorators, parameters included."""
    found = set()
    for path, text in FILES.items():
        if "mark.linux" not in text or path.name == Path(__file__).name:
            continue
        tree = ast.parse(text)
        lists = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign) and "mark.linux" in ast.unparse(node)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                words = set(re.findall(r"[\w.]+", " ".join(map(ast.unparse, node.decorator_list))))
                if "pytest.mark.linux" in words or words & lists:
                    found.add(node.name)
    return found


def rows() -> list[tuple[str, str]]:
    return re.findall(r"^\| `(test_\w+)` \| .+ \| `(test_\w+)` \|$", PAGE, re.MULTILINE)


def test_the_page_lists_what_is_marked_and_no_other() -> None:
    assert {test for test, _ in rows()} == marked()


def test_each_has_a_test_that_needs_no_linux() -> None:
    source = "\n".join(FILES.values())
    for _, other in rows():
        assert f"def {other}(" in source
        assert other not in marked()


def test_what_looks_into_proc_is_marked_or_does_without() -> None:
    unmarked = {
        path.relative_to(ROOT).as_posix()
        for path, text in FILES.items()
        if LINUX.search(text) and "mark.linux" not in text
    }
    assert unmarked - {"tests/tidy/test_platforms.py"} == READ_IF_THERE


def run_without_linux(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"KILLICK_WITHOUT_LINUX": "1"},
        capture_output=True,
        text=True,
    )


def test_the_switch_takes_it_away_from_children_too() -> None:
    program = "import os, pathlib; os.eventfd(0)"
    folder = str(ROOT / "tests" / "without_linux")
    for line in (program, "open('/proc/self/status')", "import os; os.listdir('/proc')"):
        done = subprocess.run(
            [sys.executable, "-c", line],
            env=os.environ | {"KILLICK_WITHOUT_LINUX": "1", "PYTHONPATH": folder},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert "here" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_conformance_suite_passes_without_linux() -> None:
    """On SQLite, on the synchronous face, whose callers wait at locks then."""
    pytest_ = ("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider")
    done = run_without_linux(
        *(*pytest_, "tests/conformance/test_sqlite.py", "-k", "sync and not asyncio")
    )
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
def test_waiting_and_locking_are_tested_without_linux() -> None:
    pytest_ = ("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider")
    units = ("tests/unit/session/drive", "tests/unit/stores/sqlite/test_lockfile.py")
    done = run_without_linux(*pytest_, *units)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "needs eventfd, pidfd or /proc" in done.stdout
