"""What is left from before the renaming is named, and neither read, moved nor replaced."""

from pathlib import Path

import platformdirs
import pytest

from killick import Store
from killick.cli import main
from killick.session.open import default_path
from tests.cli.running import run_process

OLD = "holdfast"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own, in which a program of the old name has been at work."""
    for name in ("KILLICK_STORE", "KILLICK_TOKENS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def old() -> Path:
    path = Path(platformdirs.user_data_dir(OLD, appauthor=False)) / f"{OLD}.db"
    path.parent.mkdir(parents=True)
    with Store(path) as store:
        store.create_session(id="ses_1", title="From before")
    return path


@pytest.mark.parametrize("command", [["sessions"], ["show", "ses_1"], ["stats"], ["doctor"]])
def test_a_reading_command_says_where_the_old_store_lies(
    command: list[str], old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = old.read_bytes()
    assert main(command) == 6
    (said,) = capsys.readouterr().err.splitlines()
    assert f"--store {old} opens it" in said
    assert f"to {default_path()}" in said
    assert not default_path().parent.exists()
    assert old.read_bytes() == before
    assert main(["--store", str(old), "sessions"]) == 0
    out, err = capsys.readouterr()
    assert "From before" in out
    assert err == ""


def test_where_names_the_old_store(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["where", "--json"]) == 0
    out, err = capsys.readouterr()
    assert str(default_path()) in out
    assert err.count(f"--store {old} opens it") == 1
    assert not default_path().exists()


def test_what_fills_a_store_says_so_once_and_begins_a_new_one(
    old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Path(__file__).parent.parent / "compat" / "old" / "session.jsonl"
    assert main(["import", str(source)]) == 0
    assert capsys.readouterr().err.count(f"--store {old} opens it") == 1
    assert default_path().exists()
    assert main(["sessions"]) == 0
    assert str(old) not in capsys.readouterr().err


def test_nothing_is_said_where_nothing_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions"]) == 0
    assert OLD not in capsys.readouterr().err
    assert not default_path().exists()


def test_old_tokens_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(platformdirs.user_config_dir(OLD, appauthor=False)) / "tokens.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}", encoding="utf-8")
    assert main(["token", "list"]) == 0
    assert capsys.readouterr().err.count(f"{path} and are not read") == 1
    monkeypatch.setenv("KILLICK_TOKENS", str(path))
    assert main(["token", "list"]) == 0
    assert "not read" not in capsys.readouterr().err


def test_old_variables_are_named_and_not_obeyed(tmp_path: Path) -> None:
    more = {"HOLDFAST_STORE": str(tmp_path / "named.db"), "HOLDFAST_MODEL": "m", "HOLDFAST_X": "1"}
    done = run_process("sessions", more=more)
    assert done.code == 0
    (warning,) = [line for line in done.err.splitlines() if "HOLDFAST" in line]
    assert "HOLDFAST_MODEL is KILLICK_MODEL now, HOLDFAST_STORE is KILLICK_STORE now" in warning
    assert "HOLDFAST_X" not in warning
    assert not (tmp_path / "named.db").exists()
    assert str(default_path()) in done.err


def test_the_library_logs_it(old: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "killick"), Store() as store:
        assert store.sessions() == []
    (record,) = [one for one in caplog.records if "renaming" in one.message]
    assert vars(record)["path"] == old
