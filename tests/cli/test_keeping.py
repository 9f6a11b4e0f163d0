"""Examining, copying and removing."""

from pathlib import Path

import pytest

from killick import Store
from tests.cli.running import Runner, run_in_terminal
from tests.cli.sample import Sample


def test_a_sound_store_is_said_to_be(killick: Runner) -> None:
    done = killick("doctor")
    assert (done.code, done.out) == (
        0,
        "looked at 3 sessions, 12 contexts: everything is sound\n",
    )
    assert killick("doctor", "--quick", "--json").json["contexts"] == 0


def test_a_backup_is_a_store_with_everything_in_it(
    killick: Runner, sample: Sample, tmp_path: Path
) -> None:
    target = tmp_path / "copy.db"
    receipt = killick("backup", str(target), "--json").json
    assert (receipt["path"], receipt["sessions"]) == (str(target), 3)
    listed = killick("sessions", "--store", str(target), "--json").json
    assert [one["id"] for one in listed] == [sample.empty, sample.hostile, sample.build]


def test_a_backup_without_a_name_lies_beside_the_store(killick: Runner, sample: Sample) -> None:
    receipt = killick("backup", "--json").json
    assert receipt["path"].startswith(f"{sample.path}-backup-")
    assert Path(receipt["path"]).stat().st_size == receipt["bytes"]


def test_a_backup_is_made_while_a_turn_runs(
    killick: Runner, sample: Sample, tmp_path: Path
) -> None:
    with Store(sample.path) as store, store.session(sample.empty).turn("Go."):
        assert killick("backup", str(tmp_path / "copy.db")).code == 0
    assert "Go." in killick("show", sample.empty, "--store", str(tmp_path / "copy.db")).out


@pytest.mark.parametrize("target", ["work.db", "no/such/folder/copy.db"])
def test_a_backup_that_cannot_be_made_says_why(
    killick: Runner, sample: Sample, tmp_path: Path, target: str
) -> None:
    before = sample.path.read_bytes()
    done = killick("backup", str(tmp_path / target))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert target in done.err
    assert sample.path.read_bytes() == before


def test_a_backup_is_put_in_the_place_of_the_store(
    killick: Runner, sample: Sample, tmp_path: Path
) -> None:
    target = str(tmp_path / "copy.db")
    killick("backup", target)
    killick("rename", sample.build, "Spoilt")
    receipt = killick("restore-backup", target, "--json").json
    assert (receipt["path"], receipt["sessions"]) == (str(sample.path), 3)
    assert "Spoilt" not in killick("sessions").out
    assert "Spoilt" in killick("sessions", "--store", receipt["replaced"]).out
    done = killick("restore-backup", target, "--store", str(tmp_path / "new.db"))
    assert (done.code, done.out.count("\n")) == (0, 1)
    assert "3 sessions" in done.out


def test_a_store_that_is_open_is_not_replaced(
    killick: Runner, sample: Sample, tmp_path: Path
) -> None:
    killick("backup", str(tmp_path / "copy.db"))
    with Store(sample.path) as store:
        store.sessions()
        done = killick("restore-backup", str(tmp_path / "copy.db"))
    assert (done.code, done.err.count("\n")) == (6, 1)
    assert "nothing was changed" in done.err
    assert killick("restore-backup", str(tmp_path / "none.db")).code == 2


def test_erasing_asks_and_is_refused_where_nobody_can_be_asked(
    killick: Runner, sample: Sample
) -> None:
    for options in ([], ["--json"]):
        done = killick("erase", sample.build, *options)
        assert (done.code, done.out) == (2, "")
        assert "say --yes" in done.err
    assert killick("show", sample.build).code == 0


@pytest.mark.parametrize(("typed", "code", "after"), [("n\n", 1, 0), ("y\n", 0, 4)])
def test_on_a_terminal_it_is_asked(
    killick: Runner, sample: Sample, typed: str, code: int, after: int
) -> None:
    store = str(sample.path)
    done = run_in_terminal(80, "erase", sample.build, "--store", store, typed=typed)
    assert f"Erase {sample.build} for good?" in done.out
    assert done.code == code
    assert killick("show", sample.build).code == after


def test_what_is_erased_is_gone_from_the_file(killick: Runner, sample: Sample) -> None:
    receipt = killick("erase", sample.build, "--yes", "--json").json
    assert (receipt["sessions"], receipt["verified"]) == ([sample.build], True)
    assert b"The linker is missing." not in sample.path.read_bytes()
    assert killick("erase", sample.build, "--yes").code == 4


def test_a_copy_beside_the_store_that_has_it_still_is_told(killick: Runner, sample: Sample) -> None:
    copy = Path(killick("backup", "--json").json["path"])
    done = killick("erase", sample.build, "--yes")
    assert done.code == 3
    assert f"still found in {copy.name}" in done.err
    copy.unlink()
    assert killick("erase", sample.build, "--yes").code == 0


def test_forks_keep_a_session_unless_they_go_too(killick: Runner, sample: Sample) -> None:
    fork = killick("fork", sample.build, "--json").json["id"]
    done = killick("erase", sample.build, "--yes")
    assert (done.code, "--forks" in done.err) == (5, True)
    done = killick("erase", sample.build, "--forks", "--yes", "--json")
    assert set(done.json["sessions"]) == {fork, sample.build}


def test_cleaning_only_says_what_it_would_do(killick: Runner, sample: Sample) -> None:
    assert killick("clean").out == "nothing is due\n"
    killick("pin", sample.hostile)
    done = killick("clean", "--idle-after", "0s")
    assert f"would delete: {sample.build}, idle, Fix the build" in done.out
    assert f"kept: {sample.hostile}" in done.out
    assert "nothing was removed" in done.err
    assert len(killick("sessions", "--json").json) == 3


def test_cleaning_removes_when_it_is_told_to(killick: Runner, sample: Sample) -> None:
    refused = killick("clean", "--idle-after", "0s", "--do")
    assert (refused.code, "say --yes" in refused.err) == (2, True)
    assert len(killick("sessions", "--json").json) == 3
    done = killick("clean", "--idle-after", "0s", "--do", "--yes", "--json")
    assert all(one["done"] for one in done.json)
    assert killick("sessions", "--json").json == []
    done = killick("clean", "--deleted-after", "0s", "--do", "--yes")
    assert f"erased: {sample.build}" in done.out
    assert killick("sessions", "--deleted", "--json").json == []


def test_rules_of_retention_are_kept_in_the_store(
    killick: Runner, sample: Sample, tmp_path: Path
) -> None:
    assert killick("retention").out == "no rules: everything is kept\n"
    killick("retention", "set", "--idle-after", "0s", "--deleted-after", "30d")
    kept = killick("retention", "set", "--project", str(tmp_path / "p"))
    assert kept.out.splitlines() == [
        "all others: deleted after 30 days, idle after 0 days",
        f"{tmp_path / 'p'}: kept for good",
    ]
    said = killick("retention", "apply")
    assert f"would delete: {sample.build}, idle" in said.out
    assert "nothing was removed" in said.err
    assert len(killick("sessions", "--json").json) == 3
    refused = killick("retention", "apply", "--do")
    assert (refused.code, "say --yes" in refused.err) == (2, True)
    killick("retention", "apply", "--do", "--yes")
    assert killick("sessions", "--json").json == []
    assert killick("retention", "receipts").out == "nothing was erased\n"
    killick("retention", "set", "--deleted-after", "0s")
    assert f"erased: {sample.build}" in killick("retention", "apply", "--do", "--yes").out
    receipts = {one["session_id"]: one for one in killick("retention", "receipts", "--json").json}
    assert receipts[sample.build]["because"] == "retention: deleted"
    assert receipts[sample.build]["verified_at"] is not None
    dropped = killick("retention", "drop", "--json").json
    assert [rule["project"] for rule in dropped] == [str(tmp_path / "p")]
    assert killick("retention", "drop").code == 2
