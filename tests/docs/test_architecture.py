"""ARCHITECTURE.md: its tree is the package's, and its walks are those of a profiled run."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import killick
from tests.docs.pages import ROOT

SOURCE = Path(killick.__file__).parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
WALKS = dict(re.findall(r"<!-- walk: ([\w ]+) -->\n(.+?)<!-- end -->", TEXT, re.DOTALL))
LIMITS = {"streamed text": 14, "stop": 22, "recovery": 24}


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Any:
    command = [sys.executable, "-m", "tests.docs.walks", str(tmp_path_factory.mktemp("walks"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_walk_is_told(visited: dict[str, list[str]]) -> None:
    assert WALKS.keys() == visited.keys()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", WALKS)
def test_a_walk_names_exactly_the_modules_that_are_visited(
    name: str, visited: dict[str, list[str]]
) -> None:
    assert sorted(set(re.findall(r"`([\w/]+\.py)`", WALKS[name]))) == visited[name]


@pytest.mark.parametrize(("name", "limit"), LIMITS.items())
def test_a_walk_is_short(name: str, limit: int, visited: dict[str, list[str]]) -> None:
    assert len(visited[name]) <= limit


def test_the_tree_is_that_of_the_package() -> None:
    """Every folder and every module once, in its place."""
    block = TEXT.split("```text\n")[1].split("```")[0]
    listed, folders = [], [""]
    for line in block.strip().splitlines()[1:]:
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        folders = [*folders[:depth], f"{folders[depth - 1]}{name}"]
        listed.append(folders[depth])
        assert len(line.split()) > 1, f"{name} is listed without a word"
    modules = {path for path in SOURCE.rglob("*.py") if path.name != "__init__.py"}
    packages = {path.parent for path in SOURCE.rglob("__init__.py")} - {SOURCE}
    files = [path.relative_to(SOURCE).as_posix() for path in modules]
    assert sorted(listed) == sorted(
        files + [f"{path.relative_to(SOURCE).as_posix()}/" for path in packages]
    )
