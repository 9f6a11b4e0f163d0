"""Sources of a size that people have, and lines of a size that nobody should have."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from killick import Store
from killick.exchange import import_paths
from killick.stores.memory import MemoryDisk
from tests.exchange import test_claude_code, test_codex, test_deerflow, test_goose, test_hermes
from tests.exchange.checks import VALIDATORS, check_sound
from tests.exchange.damage import everything_in, marks
from tests.exchange.sources import NOW, jsonl

ROOT = Path(__file__).parents[2]

LINES: dict[str, Callable[[], bytes]] = {
    "claude-code": lambda: test_claude_code.everything().data(),
    "codex": lambda: test_codex.everything().data(),
    "goose": test_goose.legacy,
    "hermes": test_hermes.transcript,
    "deerflow": lambda: jsonl(*test_deerflow.everything().events),
}


def with_long_lines(data: bytes, size: int) -> bytes:
    """A line of noise in the middle, and a whole record with a very long text near the end."""
    lines = data.splitlines(keepends=True)
    for at in range(len(lines) - 1, -1, -1):
        words = [one for one in marks(json.loads(lines[at])) if one.isascii() and " " in one]
        if words and lines[at].count(words[0].encode()) == 1:
            lines[at] = lines[at].replace(
                words[0].encode(), words[0].encode() + b" long" * (size // 5)
            )
            break
    half = len(lines) // 2
    return b"".join([*lines[:half], b"\xff" * size + b"\n", *lines[half:]])


def check_long(name: str, folder: Path, size: int) -> None:
    path = folder / "rollout-x.jsonl"
    path.write_bytes(with_long_lines(LINES[name](), size))
    with Store(MemoryDisk().open()) as store:
        report = import_paths(store, [path], clock=lambda: NOW)
        assert [one.source for one in report.sessions][:1] == [name]
        assert len(report.skipped) == 1
        assert " long" * (size // 5) in everything_in(store)
        if size < 1 << 24:
            check_sound(store)


@pytest.mark.parametrize("name", LINES)
def test_a_long_line_takes_no_other_along(tmp_path: Path, name: str) -> None:
    check_long(name, tmp_path, 5_000_000)


def measured(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.exchange.scale", *words],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", LINES)
@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_a_line_of_a_hundred_megabytes(tmp_path: Path, name: str) -> None:
    found = measured("line", str(tmp_path), "100", name)
    assert found["peak_mb"] < 1_500, found


def test_codex_export_takes_at_most_three_times_our_own(tmp_path: Path) -> None:
    found = measured("export", str(tmp_path), "16", "codex")
    assert found["codex"]["ratio"] < 3, found


@pytest.mark.campaign
@pytest.mark.timeout(1200)
def test_exporting_two_hundred_megabytes(tmp_path: Path) -> None:
    found = measured("export", str(tmp_path), "200")
    assert found["codex"]["ratio"] < 3, found
    assert {to for to, what in found.items() if what["more_mb"] > 100} <= VALIDATORS.keys(), found


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_ten_thousand_sessions_in_one_run(tmp_path: Path) -> None:
    found = measured("many", str(tmp_path), "10000")
    assert (found["sessions"], found["problems"], found["again"]) == (10_000, 0, 0)
    assert found["peak_mb"] < 500, found


@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_a_file_of_two_gigabytes(tmp_path: Path) -> None:
    found = measured("one", str(tmp_path), "2048")
    assert (found["sessions"], found["problems"], found["again"]) == (1, 0, 0)
    assert found["peak_mb"] < 1_000, found
    for path in tmp_path.rglob("*.*"):
        path.unlink()
