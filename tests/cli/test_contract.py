"""What outside programs rely on, with the real command in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from killick import Store
from tests.cli.running import COMMAND, environment, run_process
from tests.cli.sample import Sample


@pytest.mark.parametrize("where", ["before", "after", "variable"])
def test_the_store_can_be_chosen_before_after_or_by_a_variable(sample: Sample, where: str) -> None:
    path = str(sample.path)
    lines = {
        "before": ["--store", path, "--json", "sessions"],
        "after": ["sessions", "--json", "--store", path],
        "variable": ["sessions", "--json"],
    }
    more = {"KILLICK_STORE": path} if where == "variable" else None
    done = run_process(*lines[where], more=more)
    assert (done.code, done.err) == (0, "")
    assert [one["id"] for one in done.json] == [sample.empty, sample.hostile, sample.build]


def test_the_option_wins_over_the_variable_and_the_later_over_the_earlier(sample: Sample) -> None:
    more = {"KILLICK_STORE": "/nowhere/a.db"}
    done = run_process(
        "--store", "/nowhere/b.db", "where", "--store", str(sample.path), "--json", more=more
    )
    assert (done.json["store"], done.json["chosen_by"]) == (str(sample.path), "option")


def test_the_installed_script_is_the_command(sample: Sample) -> None:
    script = Path(sys.executable).with_name("killick")
    done = subprocess.run(
        [script, "show", sample.build[:-3], "--store", sample.path],
        capture_output=True, text=True, env=environment(), timeout=50,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "The linker is missing." in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("show zzz", 4, "no session 'zzz'"),
        ("show ses_", 4, "begins several ids: ses_"),
        ("rename", 2, "Missing argument 'ID'"),
        ("nonsense", 2, "No such command 'nonsense'; see 'killick --help'"),
        ("sesions", 2, "No such command 'sesions'; did you mean 'sessions'? See 'killick --help'"),
        ("session --json", 2, "did you mean 'sessions'?"),
        ("--json Show", 2, "did you mean 'show'?"),
        ("sessions --nonsense", 2, "No such option"),
        ("sessions --since nonsense", 2, "is no time"),
        ("sessions --store /nowhere/work.db", 6, "there is no store at '/nowhere/work.db'"),
        ("sessions --store mysql://host/x", 6, "is no store"),
    ],
)
def test_a_failure_says_why_in_one_line(sample: Sample, words: str, code: int, said: str) -> None:
    done = run_process(*words.split(), more={"KILLICK_STORE": str(sample.path)})
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert done.err.startswith("killick: ")
    assert done.err.count("\n") == 1


def test_a_store_that_was_named_and_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert run_process("sessions", "--store", str(tmp_path / "typo.db")).code == 6
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_empty_is_not_taken_for_the_default(sample: Sample) -> None:
    done = run_process("sessions", "--store", "", more={"KILLICK_STORE": str(sample.path)})
    assert done.code == 6
    assert "the name of the store is empty" in done.err


def test_the_default_store_is_empty_before_anything_was_recorded(tmp_path: Path) -> None:
    more = {"XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = run_process("sessions", "--json", more=more)
    assert (done.code, done.json) == (0, [])


def test_a_file_that_is_no_store_is_left_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database\n" * 100, encoding="utf-8")
    done = run_process("sessions", "--store", str(file))
    assert (done.code, done.err.count("\n")) == (6, 1)
    assert file.read_text(encoding="utf-8") == "not a database\n" * 100


def test_a_reader_that_has_read_enough_is_no_error(sample: Sample) -> None:
    with Store(sample.path) as store:
        for number in range(2_000):  # more than a pipe holds
            store.create_session(id=f"s{number}", title="long " * 20)
    child = subprocess.Popen(
        [*COMMAND, "sessions", "--limit", "2000", "--store", str(sample.path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stderr is not None
    with child:
        assert child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141


def test_a_stream_that_cannot_write_a_letter_shows_its_number(sample: Sample) -> None:
    with Store(sample.path) as store:
        store.session(sample.empty).rename("日本")
    done = run_process(
        "sessions", "--title", "日", "--store", str(sample.path), more={"PYTHONIOENCODING": "ascii"}
    )
    assert (done.code, done.err) == (0, "")
    assert "\\u65e5\\u672c" in done.out


def test_an_error_that_nobody_foresaw_is_one_line_too(tmp_path: Path) -> None:
    """A folder is no file: whatever the system says of it is said, without a traceback."""
    done = run_process("sessions", "--store", str(tmp_path))
    assert done.code != 0
    assert "Traceback" not in done.err
    assert done.err.count("\n") == 1


def test_without_arguments_the_help_is_shown() -> None:
    done = run_process()
    assert done.code == 0
    assert "sessions" in done.out
    assert "Usage: killick" in done.out


def test_the_version_is_that_of_the_package() -> None:
    assert run_process("--version").out.startswith("killick 0.")
