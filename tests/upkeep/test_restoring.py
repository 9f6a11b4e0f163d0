"""A backup takes a store's place, and what was there is kept."""

import shutil
from pathlib import Path

import pytest

from killick import Store, StoreBusy, StoreDegraded, StoreNotOurs, UsageError
from killick.maintenance.restore import restore_backup
from tests.bad_input.helpers import child, crash, ids

HOLDING = """
import sys
from killick import Store
store = Store(sys.argv[1])
store.sessions()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that crashed: one session is in its file, one in its log."""
    path = tmp_path / "work.db"
    with Store(path) as store:
        store.create_session(id="first")
        store.backup(tmp_path / "copy.db")
    crash(path, "second")
    return path


def test_the_store_is_the_backup_and_the_replaced_one_opens_with_its_log(path: Path) -> None:
    backup = path.with_name("copy.db")
    before = backup.read_bytes()
    receipt = restore_backup(backup, path)
    assert (receipt.path, receipt.sessions, receipt.entries) == (str(path), 1, 1)
    assert receipt.bytes == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    assert backup.read_bytes() == before
    assert ids(path) == {"first"}
    assert receipt.replaced is not None
    assert ids(Path(receipt.replaced)) == {"first", "second"}
    assert not list(path.parent.glob("*restoring*"))


def test_a_restored_store_crashes_and_opens_with_its_own_log(path: Path) -> None:
    restore_backup(path.with_name("copy.db"), path)
    crash(path, "third")
    assert ids(path) == {"first", "third"}


def test_the_same_backup_is_restored_a_second_time(path: Path) -> None:
    first = restore_backup(path.with_name("copy.db"), path).replaced
    crash(path, "third")
    second = restore_backup(path.with_name("copy.db"), path).replaced
    assert first != second
    assert second is not None
    assert (ids(path), ids(Path(second))) == ({"first"}, {"first", "third"})


def test_a_mixture_made_by_hand_is_taken_apart(path: Path) -> None:
    """The backup was copied over the store, and its log is still there."""
    shutil.copy(path.with_name("copy.db"), path)
    receipt = restore_backup(path.with_name("copy.db"), path)
    assert ids(path) == {"first"}
    assert Path(f"{receipt.replaced}-wal").stat().st_size > 0


def test_where_there_was_no_store_there_is_one(path: Path) -> None:
    target = path.with_name("new.db")
    receipt = restore_backup(path.with_name("copy.db"), f"sqlite:///{target}")
    assert receipt.replaced is None
    assert ids(target) == {"first"}


def test_a_store_that_is_open_is_refused_with_the_name_of_the_process(path: Path) -> None:
    with Store(path) as store:
        store.sessions()
        with pytest.raises(StoreBusy, match=r"this process; end it, .* nothing was changed"):
            restore_backup(path.with_name("copy.db"), path)
    with child(HOLDING, path), pytest.raises(StoreBusy, match=r"open in pid \d+"):
        restore_backup(path.with_name("copy.db"), path)
    assert ids(path) == {"first", "second"}


def test_what_is_no_backup_is_refused_and_nothing_changes(path: Path) -> None:
    damaged = path.with_name("damaged.db")
    data = bytearray(path.with_name("copy.db").read_bytes())
    data[4_096 * 2 : 4_096 * 12] = bytes(4_096 * 10)
    damaged.write_bytes(data)
    empty, text = path.with_name("empty.db"), path.with_name("text.db")
    empty.touch()
    text.write_text("no database " * 1_000)
    before = {file.name for file in path.parent.iterdir()}
    for backup, error in (
        (damaged, StoreDegraded),
        (empty, StoreNotOurs),
        (text, StoreNotOurs),
        (path.with_name("missing.db"), UsageError),
        (path, UsageError),
    ):
        with pytest.raises(error):
            restore_backup(backup, path)
    assert {file.name for file in path.parent.iterdir()} == before
    assert ids(path) == {"first", "second"}


def test_a_store_on_a_server_is_restored_there(path: Path) -> None:
    with pytest.raises(UsageError, match="server"):
        restore_backup(path.with_name("copy.db"), "postgresql://localhost/none")


def test_erasing_looks_into_what_was_replaced(path: Path) -> None:
    with Store(path) as store, store.session("first").turn("the word is swordfish 4711"):
        pass
    receipt = restore_backup(path.with_name("copy.db"), path)
    with Store(path) as store:
        with store.session("first").turn("the word is swordfish 4711"):
            pass
        erasure = store.erase_session("first")
    assert receipt.replaced is not None
    assert Path(receipt.replaced).name in erasure.remaining
