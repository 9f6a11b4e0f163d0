"""Sessions of real agents, from a folder that KILLICK_CORPUS names; nothing of it is kept here."""

from pathlib import Path

import pytest

from killick.exchange.importer import UNEXPECTED
from tests.exchange.corpus import CORPUS, Counts, check, files

FOUND = list(files(Path(CORPUS))) if CORPUS else []

pytestmark = pytest.mark.skipif(
    not CORPUS, reason="KILLICK_CORPUS names no folder with sessions of real agents"
)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("path", "format_"), FOUND or [(Path(), "")], ids=lambda value: str(value)[-60:]
)
def test_a_file_comes_in_as_it_was_counted(path: Path, format_: str) -> None:
    """Counted apart; every validator takes it, and no tool that ran is said not to have."""
    one = check(path, format_)
    assert [str(found) for found in one.report.problems if UNEXPECTED in found.reason] == []
    if one.told is not None and not one.report.repaired:
        assert one.taken == one.told


def test_the_counter_counts() -> None:
    assert Counts(1, 2, 3, 4) != Counts()
