"""Without an id, a session is shown that was changed last: of this folder, or of all."""

from pathlib import Path

import pytest

from killick import Project, Store
from killick.cli import main
from tests.cli.running import Runner
from tests.cli.sample import Sample


def test_the_last_session_of_all_where_the_folder_has_none(
    killick: Runner, sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert killick("show", "--json").json["id"] == sample.empty
    killick("rename", sample.build, "Changed")
    assert killick("show", "--json").json["id"] == sample.build
    assert killick("context", "--json").json == killick("context", sample.build, "--json").json
    followed = killick("tail", "--after", "0", "--until-end")
    assert followed.out == killick("tail", sample.build, "--after", "0", "--until-end").out != ""


def test_the_last_session_of_the_project_around_this_folder(
    killick: Runner, sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "project" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()
    with Store(sample.path) as store:
        mine = store.create_session(project=Project(str(tmp_path / "project"))).id
        store.create_session(title="newer, and of another project")
    monkeypatch.chdir(inner)
    assert killick("show", "--json").json["id"] == mine
    assert killick("--json", "show", "--last", "1").json["id"] == mine


@pytest.mark.parametrize("name", ["show", "tail", "context"])
def test_where_there_is_none_the_store_is_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "work.db"
    Store(path).close()
    assert main([name, "--store", str(path)]) == 4
    assert f"there are no sessions in {path}" in capsys.readouterr().err
