"""A backup is brought up to date by the pages that have changed, whole or not at all."""

import os
import shutil
from pathlib import Path

import apsw
import pytest

from killick import Message, Store, StoreError, Text, UsageError
from killick.maintenance.restore import restore_backup
from killick.stores.sqlite import renewal


def _fill(store: Store, sessions: int) -> None:
    for _ in range(sessions):
        with store.create_session().turn("go") as turn:
            turn.record(Message("assistant", [Text(os.urandom(600).hex())]))


def _lines(path: Path) -> list[str]:
    with Store(path) as store:
        return sorted(
            message.text
            for info in store.sessions()
            for message in store.session(info.id).messages()
        )


def test_a_second_backup_of_a_store_that_did_not_change_writes_next_to_nothing(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "work.db", durability="normal") as store:
        _fill(store, 300)
        first = store.backup(tmp_path / "copy.db", renew=True)
        again = store.backup(tmp_path / "copy.db", renew=True)
    assert first.written == first.bytes
    assert again.written <= 2 * 4_096
    assert (again.bytes, again.sessions, again.entries) == (first.bytes, 300, first.entries)


def test_what_is_written_is_what_has_changed(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db", durability="normal") as store:
        _fill(store, 300)
        store.backup(tmp_path / "copy.db")
        _fill(store, 3)
        second = store.backup(tmp_path / "copy.db", renew=True)
        assert second.sessions == 303
        assert 0 < second.written < second.bytes / 4
        store.backup(tmp_path / "whole.db")
    assert sorted(file.name for file in tmp_path.glob("copy*")) == ["copy.db"]
    assert _lines(tmp_path / "copy.db") == _lines(tmp_path / "whole.db")


def test_a_store_that_became_smaller_is_backed_up_as_it_is(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db", durability="normal") as store:
        _fill(store, 100)
        store.backup(tmp_path / "copy.db")
        for info in store.sessions()[20:]:
            store.erase_session(info.id)
        size = store.backup(tmp_path / "copy.db", renew=True).bytes
    shutil.copy(tmp_path / "copy.db", tmp_path / "small.db")
    with Store(tmp_path / "small.db") as store:
        assert store.check_file() == []
        assert len(store.sessions()) == 20
    assert size == (tmp_path / "copy.db").stat().st_size


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("writes", [0, 1, 2, 5])
def test_whoever_is_killed_leaves_the_old_backup_or_one_that_is_finished_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    backup = tmp_path / "copy.db"
    with Store(tmp_path / "work.db", durability="normal") as store:
        _fill(store, 30)
        store.backup(backup)
        _fill(store, 30)
        left = writes
        really = apsw.VFSFile.xWrite

        class File(apsw.VFSFile):
            def xWrite(self, data: bytes, offset: int) -> None:
                nonlocal left
                if not left:
                    raise Killed
                left -= 1
                really(self, data, offset)

        with monkeypatch.context() as patch:
            patch.setattr(apsw, "VFSFile", File)
            with pytest.raises(Killed):
                store.backup(backup, renew=True)
        assert renewal.changes_of(backup).exists()
    if writes:
        shutil.copy(backup, tmp_path / "torn.db")
        with pytest.raises(StoreError):
            Store(tmp_path / "torn.db")
    restore_backup(backup, tmp_path / "again.db")
    assert not renewal.changes_of(backup).exists()
    assert _lines(tmp_path / "again.db") == _lines(tmp_path / "work.db")


def test_only_a_backup_of_the_same_store_is_renewed(tmp_path: Path) -> None:
    with Store(tmp_path / "other.db") as other:
        other.backup(tmp_path / "theirs.db")
    precious = tmp_path / "precious.txt"
    precious.write_text("mine" * 1_000)
    with Store(tmp_path / "work.db") as store:
        for name in ("theirs.db", "precious.txt"):
            with pytest.raises(UsageError, match="no backup of this store"):
                store.backup(tmp_path / name, renew=True)
        assert precious.read_text() == "mine" * 1_000
        with pytest.raises(UsageError, match="the store itself"):
            store.backup(tmp_path / "work.db", renew=True)
        store.backup(tmp_path / "used.db")
        with Store(tmp_path / "used.db") as used:
            used.create_session()
        with pytest.raises(UsageError, match="opened as a store"):
            store.backup(tmp_path / "used.db", renew=True)
    assert not list(tmp_path.glob("*.part"))
