"""A command that looks makes nothing, and says where it looked when it finds nothing."""

from pathlib import Path

import pytest

from killick import Store
from killick.cli import main
from killick.cli.invocation import Where
from killick.session.open import default_path

LISTS = [["sessions"], ["search", "word"], ["stats"]]
OTHERS = [
    ["show", "x"],
    ["tail", "x", "--until-end"],
    ["context", "x"],
    ["export", "x"],
    ["doctor"],
    ["backup"],
    ["clean"],
]
"""They are about what a store holds, so without one there is nothing that they could do."""
CHANGES = [
    ["rename", "x", "title"],
    ["tag", "x", "tag"],
    ["pin", "x"],
    ["archive", "x"],
    ["delete", "x"],
    ["restore", "x"],
    ["stop", "x"],
    ["compact", "x", "--through", "1", "--summary", "s"],
    ["rewind", "x", "--through", "1"],
    ["undo", "x"],
    ["hide", "x", "1"],
    ["unhide", "x", "1"],
    ["fork", "x"],
    ["erase", "x", "--yes"],
]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KILLICK_STORE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("words", LISTS, ids=lambda words: words[0])
def test_a_list_of_a_default_store_that_is_not_there_is_empty(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    (said,) = capsys.readouterr().err.splitlines()
    assert f"{default_path()}, which is not there yet" in said
    assert main([*words, "--json"]) == 0
    assert capsys.readouterr().err == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", OTHERS + CHANGES, ids=lambda words: words[0])
def test_what_needs_a_store_names_the_default_and_does_not_make_it(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 6
    (said,) = capsys.readouterr().err.splitlines()
    assert f"there is no store at '{default_path()}'" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", LISTS + OTHERS + CHANGES, ids=lambda words: words[0])
def test_a_named_store_that_is_not_there_is_not_made(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--store", "typo.db"]) == 6
    assert "there is no store at 'typo.db'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", LISTS, ids=lambda words: words[0])
def test_a_list_that_is_empty_names_the_store(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Store("work.db").close()
    assert main([*words, "--store", "work.db"]) == 0
    (said,) = capsys.readouterr().err.splitlines()
    assert f"in {tmp_path / 'work.db'}" in said
    assert "not there" not in said


def test_a_trial_import_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = Path(__file__).parent.parent / "compat" / "old" / "session.jsonl"
    assert main(["import", str(source), "--dry-run"]) == 0
    assert "would come in" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_server_is_named_without_who_asks_it() -> None:
    url = "postgresql://me:pass@word@db.example:5432/agents?password=secret&schema=x"
    assert Where(url, "option").shown == "postgresql://db.example:5432/agents"
