"""Where tests lie, and how they wait."""

import ast
from pathlib import Path

import pytest

import killick

ROOT = Path(__file__).parents[2]
SOURCE = Path(killick.__file__).parent
UNIT = ROOT / "tests" / "unit"


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", sorted(UNIT.rglob("test_*.py")), ids=name)
def test_a_unit_test_lies_at_the_path_of_its_module(path: Path) -> None:
    """As `test_<module>.py`, or `test_<module>_<aspect>.py`."""
    folder = SOURCE / path.relative_to(UNIT).parent
    words = path.stem.removeprefix("test_").split("_")
    modules = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
    assert any((folder / f"{module}.py").is_file() for module in modules), f"no {modules} there"


SLEEPERS = {
    "tests/adapters/scripted.py": "the pace of a scripted model",
    "tests/agent/test_sending.py": "polls for a process, with a limit",
    "tests/crash/greenlets.py": "the pace of a stream",
    "tests/crash/test_interrupted_turns.py": "hangs until a signal comes",
    "tests/crash/test_stop_and_follow.py": "the pace of a stream",
    "tests/crash/test_crowd.py": "the pace of streams, and kills at a random moment of them",
    "tests/crash/test_window.py": "kills at a random moment of a stream",
    "tests/crash/workload.py": "the pace of a stream",
    "tests/exchange/test_copying.py": "kills at several moments of a copy",
    "tests/growth/test_followers.py": "polls counts of an event loop, with a limit",
    "tests/interrupt/driving.py": "polls a count, which has no event",
    "tests/interrupt/test_bystanders.py": "keeps an event loop busy: that is tested",
    "tests/postgres/crowd.py": "the pace of a client whose server is away",
    "tests/postgres/test_many_hosts.py": "how long a cut and a lease last, by the server's clock",
    "tests/postgres/test_silence.py": "how long a lease lasts, by the server's clock",
    "tests/search/test_processes.py": "kills at a random moment of indexing",
    "tests/server/scripted.py": "the pace of a scripted agent",
    "tests/waiting.py": "polls, with a limit",
    "tests/lab/cells.py": "other people's programs tell nobody when they have written",
    "tests/lab/following.py": "how much processor a process takes in a while",
}


def test_no_test_waits_by_sleeping() -> None:
    """It waits for an event, or by `tests.waiting.until`; those that may sleep are listed."""
    sleepers = {name(path) for path in (ROOT / "tests").rglob("*.py") if _sleeps(path)}
    assert sleepers == set(SLEEPERS)


def _sleeps(path: Path) -> bool:
    """Whether it calls `sleep` with anything but 0, which only lets others run."""
    calls = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "sleep"
    ]
    return any(not call.endswith("sleep(0)") for call in calls)
