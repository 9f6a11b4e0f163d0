"""Erased bytes are looked for in every part of a copy, also where two pieces of it meet."""

from pathlib import Path

import pytest

from killick.stores.sqlite import maintain

NEEDLE = b"a text that was erased"


@pytest.mark.parametrize("before", [0, 1, 5, len(NEEDLE) - 1, len(NEEDLE)])
@pytest.mark.parametrize("border", [1, 2])
def test_a_trace_is_seen_wherever_it_lies(tmp_path: Path, before: int, border: int) -> None:
    """`before` of its bytes lie before the border of two pieces that are read apart."""
    path = tmp_path / "work.db-backup-1"
    with path.open("wb") as file:
        file.truncate(3 * maintain._PIECE)
        file.seek(border * maintain._PIECE - before)
        file.write(NEEDLE)
    traces = maintain.find_traces(tmp_path / "work.db", [NEEDLE, b"another"])
    assert traces.found == {"work.db-backup-1": (NEEDLE,)}


def test_a_trace_at_the_end_of_a_file_is_seen(tmp_path: Path) -> None:
    (tmp_path / "work.db-backup-1").write_bytes(bytes(100) + NEEDLE)
    assert maintain.find_traces(tmp_path / "work.db", [NEEDLE]).found == {
        "work.db-backup-1": (NEEDLE,)
    }
