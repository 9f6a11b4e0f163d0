"""What one durable append costs, counted and not timed, so that any machine agrees.

A change that needs more here slows every append down; a change that needs less should lower the
numbers, here and in docs/performance.md.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.counts.counting import EACH, LOOKED_AT, WINDOW, WRITERS

STATEMENTS = ["BEGIN", "INSERT", "UPDATE", "COMMIT"]
SYNCS = 1
PAGES = 4
"""The ends of the table and its two indexes; the session's row, with the newest link (0060)."""

PAGES_AT_MOST = 9
"""When the table and an index begin new pages, their parents and the file's first page too."""

PAGES_IN_A_WINDOW = 190
"""Of 40 appends of 600 bytes, at most: an index begins a new page in some windows, not in all."""

APPENDS_FOR_EACH_SYNC = 16
"""At least, with 64 writers at once."""


def count(folder: Path, what: str) -> Any:
    program = Path(__file__).parent / "counting.py"
    done = subprocess.run(
        [sys.executable, str(program), str(folder), what],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = count(tmp_path_factory.mktemp("lone"), "lone")
    assert [len(found[str(first)]) for first in LOOKED_AT] == [WINDOW] * len(LOOKED_AT)
    return found


@pytest.mark.parametrize("first", LOOKED_AT)
def test_an_append_is_four_statements(windows: dict[str, Any], first: int) -> None:
    assert [cost["statements"] for cost in windows[str(first)]] == [STATEMENTS] * WINDOW


@pytest.mark.parametrize("first", LOOKED_AT)
def test_an_append_is_one_sync_of_the_log(windows: dict[str, Any], first: int) -> None:
    assert [cost["log syncs"] for cost in windows[str(first)]] == [SYNCS] * WINDOW
    assert not any(cost.get("database syncs") for cost in windows[str(first)])


@pytest.mark.parametrize("first", LOOKED_AT)
def test_an_append_is_four_pages_of_the_log(windows: dict[str, Any], first: int) -> None:
    pages = [cost["log pages"] for cost in windows[str(first)]]
    assert Counter(pages).most_common(1)[0][0] == min(pages) == PAGES
    assert max(pages) <= PAGES_AT_MOST


def test_the_thousandth_append_costs_what_the_fiftieth_did(windows: dict[str, Any]) -> None:
    pages = [sum(cost["log pages"] for cost in windows[str(first)]) for first in LOOKED_AT]
    assert max(pages) <= PAGES_IN_A_WINDOW
    assert max(pages) - min(pages) <= PAGES_AT_MOST


def test_many_writers_share_their_syncs(tmp_path: Path) -> None:
    found = count(tmp_path, "many")
    assert found["appends"] == WRITERS * EACH
    assert found["log syncs"] * APPENDS_FOR_EACH_SYNC <= found["appends"], found


def test_the_document_states_these_numbers() -> None:
    document = Path(__file__).parents[2] / "docs" / "performance.md"
    stated = dict(re.findall(r"^\| ([^|]+?) +\| +(\d+) +\|$", document.read_text("utf-8"), re.M))
    assert stated == {
        "statements": str(len(STATEMENTS)),
        "syncs of the log": str(SYNCS),
        "pages written to the log": str(PAGES),
        "pages when a table or index begins one, at most": str(PAGES_AT_MOST),
        "appends for each sync of 64 writers, at least": str(APPENDS_FOR_EACH_SYNC),
    }
