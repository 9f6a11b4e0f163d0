"""Every bug in the museum is caught, by what CI runs. This is what makes the rest believable."""

from pathlib import Path

import pytest

from killick.testing.conformance import CHECKS
from tests.museum.museum import PIECES, ROOT, SOURCE, copy_and_compile, hang, load, visit

ENOUGH = 30


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    copy_and_compile(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("path", PIECES, ids=lambda path: path.stem)
def test_the_bug_is_caught(path: Path, compiled: Path, tmp_path: Path) -> None:
    """A piece that no longer applies fails here too."""
    piece = load(path)
    hang(piece, compiled, tmp_path)
    done = visit(piece, tmp_path)
    # 1 is what both the campaigns and pytest say of a failure; anything else is another trouble.
    assert done.returncode == 1, f"{piece.breaks}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "ImportError" not in done.stdout, done.stdout
    assert "SyntaxError" not in done.stdout, done.stdout


def test_there_are_enough_pieces_and_each_says_where_it_comes_from() -> None:
    pieces = [load(path) for path in PIECES]
    assert len(pieces) >= ENOUGH
    for piece in pieces:
        assert "#" in piece.report or ": " in piece.report
        assert piece.breaks.endswith(".")
        assert (piece.caught_by.campaign is None) != (piece.caught_by.test is None)


@pytest.mark.parametrize("path", PIECES, ids=lambda path: path.stem)
def test_the_piece_applies_and_names_a_test_that_exists(path: Path) -> None:
    """The quick half of the test above, for those who move code."""
    piece = load(path)
    for change in piece.change:
        assert (SOURCE / change.file).read_text(encoding="utf-8").count(change.old) == 1
    file, _, name = (piece.caught_by.test or "").partition("::")
    if name.startswith("test_conformance["):
        assert name[17:-1].removesuffix("-sync") in {check.__name__ for check in CHECKS}
    elif file:
        assert f"def {name.partition('[')[0]}" in (ROOT / file).read_text(encoding="utf-8")
