"""A backup is a whole store, made while others write, and checked."""

import os
import threading
from pathlib import Path

import pytest

from killick import Message, Store, StoreDegraded, Text, UsageError
from killick.stores.sqlite import maintain
from tests.bad_input.helpers import raw


def test_a_backup_opens_as_a_store_and_holds_everything(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store:
        session = store.create_session(title="kept")
        with session.turn("go") as turn:
            turn.record(Message("assistant", [Text("done")]))
        told: list[tuple[int, int]] = []
        receipt = store.backup(tmp_path / "copy.db", progress=lambda *done: told.append(done))
        expected = session.messages()
    assert (receipt.sessions, receipt.entries) == (1, 5)
    assert told[-1][0] == told[-1][1]
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    with Store(tmp_path / "copy.db") as copy:
        assert copy.session(session.id).messages() == expected


def test_a_backup_is_made_while_others_write(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db", durability="normal") as store:
        session = store.create_session()
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                session.note("n", "x" * 1_000)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(5):
                store.backup(tmp_path / f"copy-{number}.db")
        finally:
            stop.set()
            writer.join()
        for number in range(5):
            with Store(tmp_path / f"copy-{number}.db") as copy:
                assert copy.check_file() == []
                assert copy.examine_session(session.id) == []


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "precious.txt"
    target.write_text("mine")
    with Store(tmp_path / "work.db") as store, pytest.raises(UsageError, match="exists"):
        store.backup(target)
    assert target.read_text() == "mine"
    assert not list(tmp_path.glob("*.part"))


def test_a_backup_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def fail(_done: int, _of: int) -> None:
        raise KeyboardInterrupt

    with Store(tmp_path / "work.db") as store:
        with pytest.raises(KeyboardInterrupt):
            store.backup(tmp_path / "copy.db", progress=fail)
        store.create_session()
    assert not list(tmp_path.glob("copy.db*"))


def test_two_backups_to_the_same_name_do_not_write_into_each_other(tmp_path: Path) -> None:
    """The second is made while the first is under way; one is named, and it is whole."""
    with Store(tmp_path / "work.db") as store, Store(tmp_path / "work.db") as other:
        session = store.create_session()
        for _ in range(20):
            with session.turn("a word " * 100_000):
                pass
        copies: list[str] = []

        def meanwhile(_done: int, _of: int) -> None:
            if not copies:
                copies.append(other.backup(tmp_path / "copy.db").path)

        with pytest.raises(UsageError, match="exists"):
            store.backup(tmp_path / "copy.db", progress=meanwhile)
        with Store(tmp_path / "copy.db") as copy:
            assert len(copy.session(session.id).messages()) == 20
            assert copy.check_file() == []
        assert not list(tmp_path.glob("*.part*"))


def test_a_place_where_nothing_can_be_written_is_said(tmp_path: Path) -> None:
    with Store(tmp_path / "work.db") as store, pytest.raises(UsageError, match="another file"):
        store.backup(tmp_path / "nowhere" / "copy.db")


def test_a_copy_that_is_not_sound_is_no_backup(tmp_path: Path) -> None:
    """A page goes bad on its way to the disk: that is said, and no file of that name is left."""
    with Store(tmp_path / "work.db") as store:
        store.create_session(tags=["t"])
        with raw(tmp_path / "work.db") as connection:
            page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'labels'")
            begin, size = (page.get - 1) * connection.pragma("page_size"), 100

        def spoil(_done: int, _of: int) -> None:
            (copy,) = tmp_path.glob("copy.db.*.part")
            data = copy.read_bytes()
            copy.write_bytes(data[:begin] + b"\xff" * size + data[begin + size :])

        with pytest.raises(StoreDegraded, match="did not pass its check"):
            store.backup(tmp_path / "copy.db", progress=spoil)
    assert not list(tmp_path.glob("copy.db*"))


def test_the_name_of_a_backup_is_on_the_disk_when_its_receipt_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is a part of its folder, which is synced after the file has it."""
    folder = tmp_path / "copies"
    folder.mkdir()
    synced: list[bool] = []
    sync = os.fsync

    def watch(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            synced.append((folder / "copy.db").exists())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    with Store(tmp_path / "work.db") as store:
        store.backup(folder / "copy.db")
    assert synced
    assert synced[-1]


def test_progress_is_told_in_pages_of_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain, "_PAGES_A_STEP", 10)
    told: list[tuple[int, int]] = []
    with Store(tmp_path / "work.db") as store:
        store.create_session()
        store.backup(tmp_path / "copy.db", progress=lambda *done: told.append(done))
    pages = told[-1][1]
    assert told == [(min(10 * step, pages), pages) for step in range(1, len(told) + 1)]
    assert len(told) > 2
