"""A file that took a store's place, beside the log of the file before it."""

import os
import shutil
from pathlib import Path

import apsw
import pytest

from killick import Store, StoreReplaced
from tests.bad_input.helpers import crash, ids, read_only
from tests.crash.processes import run_script


@pytest.fixture
def backup(path: Path) -> Path:
    """A store with a session and its log, and a backup from before them."""
    with Store(path) as store:
        store.create_session(id="first")
        store.backup(path.with_name("copy.db"))
    crash(path, "second")
    return path.with_name("copy.db")


def test_a_backup_beside_the_log_of_another_file_is_refused(path: Path, backup: Path) -> None:
    shutil.copy(backup, path)
    log = Path(f"{path}-wal")
    before = path.read_bytes(), log.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreReplaced, match=r"move the log away.*restore-backup FILE"):
            Store(path).sessions()
    assert (path.read_bytes(), log.read_bytes()) == before
    log.rename(path.with_name("away"))
    assert ids(path) == {"first"}


def test_the_own_log_of_a_store_is_taken(path: Path, backup: Path) -> None:
    assert ids(path) == {"first", "second"}
    assert ids(backup) == {"first"}


def test_a_backup_copied_without_a_log_is_the_store(path: Path, backup: Path) -> None:
    Path(f"{path}-wal").unlink()
    shutil.copy(backup, path)
    crash(path, "third")
    assert ids(path) == {"first", "third"}


def test_the_same_backup_copied_a_second_time_is_told_from_the_first(
    path: Path, backup: Path
) -> None:
    Path(f"{path}-wal").unlink()
    shutil.copy(backup, path)
    crash(path, "third")
    shutil.copy(backup, path)
    with pytest.raises(StoreReplaced):
        Store(path).sessions()


def test_an_empty_file_beside_a_log_is_not_taken_for_a_new_store(path: Path, backup: Path) -> None:
    os.truncate(path, 0)
    with pytest.raises(StoreReplaced):
        Store(path).sessions()
    assert Path(f"{path}-wal").stat().st_size > 0


def test_a_reader_that_may_not_write_is_refused_too(path: Path, backup: Path) -> None:
    shutil.copy(backup, path)
    with read_only(path.parent), pytest.raises(StoreReplaced):
        Store(path).sessions()


def test_a_file_replaced_in_place_under_another_opening_is_refused(
    path: Path, backup: Path
) -> None:
    with Store(path) as opened:
        opened.sessions()
        done = run_script("import shutil, sys; shutil.copy(*sys.argv[1:])", str(backup), str(path))
        assert done.returncode == 0
        with pytest.raises(StoreReplaced):
            Store(path).sessions()


def test_a_store_from_before_there_were_generations_opens_with_its_log(path: Path) -> None:
    crash(path, "first")
    Path(f"{path}-lock").write_bytes(b"")  # as an older Killick leaves it
    assert ids(path) == {"first"}


@pytest.mark.parametrize("older", [False, True])
def test_an_opened_backup_has_a_log_of_its_own_as_every_store(backup: Path, *, older: bool) -> None:
    """Without one a commit could be undone by a power cut; an older Killick's backup too."""
    if older:
        connection = apsw.Connection(str(backup))
        connection.pragma("user_version", 0)
        connection.close()
    with Store(backup) as store:
        store.create_session(id="more")
        assert Path(f"{backup}-wal").exists()
