"""Figures of other people's recordings name the commits that they are of."""

import json
from pathlib import Path

import pytest

from tests.corpus_figures import keep


def test_a_figure_of_a_tree_that_names_no_commit_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = tmp_path / "corpus.json"
    monkeypatch.setenv("KILLICK_CORPUS_FIGURES", str(figures))
    (tmp_path / "llama.cpp").mkdir()
    with pytest.raises(ValueError, match=r"llama\.cpp/COMMIT"):
        keep("templates", tmp_path, {"templates": 1})
    assert not figures.exists()
    (tmp_path / "llama.cpp" / "COMMIT").write_text("0123456789abcdef\n")
    keep("templates", tmp_path, {"templates": 1})
    kept = json.loads(figures.read_text())["templates"]
    assert kept["sources"] == {"llama.cpp": "0123456789ab"}
