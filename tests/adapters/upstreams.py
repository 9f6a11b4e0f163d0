"""Runs a framework's own tests with a store of ours in the place of theirs.

The tests are read when ours run: from the folder KILLICK_CORPUS, or from where `make adapters`
fetched them.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[2]
FETCHED: Final = ROOT / ".adaptersvenv" / "upstream"
DOCS: Final = ROOT / "docs" / "how-to"


class Ran(NamedTuple):
    """How tests of theirs ended: how many passed, and those that did not, by their names."""

    passed: int
    failed: "Counter[str]"
    told: str

    def counted(self, words: str) -> int:
        """Return the number that a plugin of ours has told with these words."""
        found = re.search(rf"(\d+) {words}", self.told)
        assert found is not None, self.told[-2000:]
        return int(found[1])


def suite_of(name: str) -> Path:
    """Return the folder with the tests of a framework; skip where there is none."""
    corpus = os.environ.get("KILLICK_CORPUS")
    folders = [Path(corpus) / name] if corpus else []
    for folder in [*folders, FETCHED / name]:
        if folder.is_dir():
            return folder
    pytest.skip(f"{name} is neither in KILLICK_CORPUS nor fetched by make adapters")


def run_theirs(folder: Path, plugin: Path, *given: str, **env: str) -> Ran:
    """Run tests of theirs with the plugin `upstream` of a folder of ours.

    What is given are files and options; a test that cannot be collected fails ours.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "upstream", "-p", "no:cacheprovider"]
    paths = os.pathsep.join([str(plugin), str(folder)])
    done = subprocess.run(
        [*command, *given],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, (done.stdout + done.stderr)[-3000:]
    assert not re.search(r"^ERROR ", done.stdout, re.MULTILINE), done.stdout[-3000:]
    failed = Counter(re.findall(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE))
    return Ran(int(passed[1]), failed, done.stdout)


def named_failures(page: str) -> dict[str, str]:
    """Return the tests of theirs that a how-to page says may fail, each with the reason."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `(test_\w+)` \| (.*) \|$", text, re.MULTILINE))
