"""A restore is killed at every line of its steps; the store is the old one or the new one."""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from killick import Store
from killick.maintenance.restore import restore_backup
from tests.bad_input.helpers import crash, ids
from tests.crash.journals import check_file
from tests.crash.processes import Channel, Nursery

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

STEPS = {"back_up", "_copy", "_restore", "finish_restore", "sync_folder", "renew"} | {
    *("_connect_writer", "set_generation")
}


def restore_until(_parent: Channel, folder: str, last: int) -> None:
    """Restore the backup, and be killed before the line of that number runs."""
    kill_at(last)
    restore_backup(f"{folder}/copy.db", f"{folder}/work.db")


def open_until(_parent: Channel, folder: str, last: int) -> None:
    """Open a store that a backup waits to become, and write to it; killed as above."""
    kill_at(last)
    Store(f"{folder}/work.db").create_session(id="third")


def kill_at(last: int) -> None:
    lines = 0

    def count(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        if lines == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return count

    def enter(frame: FrameType, _event: str, _arg: Any) -> Any:
        return count if frame.f_code.co_name in STEPS else None

    sys.settrace(enter)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A store that crashed, one session in its file and one in its log, and a backup."""
    folder = tmp_path / "made"
    folder.mkdir()
    with Store(folder / "work.db") as store:
        store.create_session(id="first")
        store.backup(folder / "copy.db")
    crash(folder / "work.db", "second")
    return folder


def killed_everywhere(
    body: Callable[..., None], made: Path, nursery: Nursery, check: Callable[[Path, int], str]
) -> tuple[int, set[str]]:
    """Kill a child at each line; how many there were, and what was there afterwards."""
    seen: set[str] = set()
    work = made.with_name("work")
    last = 0
    while True:
        last += 1
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(made, work)
        child = nursery.start(body, str(work), last)
        status = child.wait()
        child.channel.close()
        if status == 0:
            return last - 1, seen
        assert status == -signal.SIGKILL
        seen.add(check(work, last))


def test_killed_at_every_line_the_store_is_the_old_one_or_the_restored_one(
    made: Path, nursery: Nursery
) -> None:
    lines, seen = killed_everywhere(restore_until, made, nursery, check_restored)
    assert lines > 50
    assert seen == {"old", "restored"}


def check_restored(work: Path, last: int) -> str:
    """Open the store, every second time restored once more; nothing is lost, nothing is mixed."""
    path = work / "work.db"
    if last % 2 == 0:
        restore_backup(work / "copy.db", path)
    there = ids(path)
    check_file(str(path))
    kept = [ids(file) for file in kept_files(work)]
    if there == {"first", "second"}:
        assert not kept
        return "old"
    assert there == {"first"}
    assert {"first", "second"} in kept
    return "restored"


def kept_files(work: Path) -> list[Path]:
    return [file for file in work.glob("work.db-replaced-*") if file.name[-4] != "-"]


def test_an_opening_that_finishes_a_restore_is_killed_at_every_line(
    made: Path, nursery: Nursery
) -> None:
    shutil.copy(made / "copy.db", made / "work.db-restoring")
    lines, seen = killed_everywhere(open_until, made, nursery, check_opened)
    assert lines > 30
    assert seen == {"restored"}


def check_opened(work: Path, _last: int) -> str:
    assert ids(work / "work.db") in ({"first"}, {"first", "third"})
    (kept,) = kept_files(work)
    assert ids(kept) == {"first", "second"}
    return "restored"


def test_a_new_store_that_is_killed_at_every_line_of_its_opening_opens(
    tmp_path: Path, nursery: Nursery
) -> None:
    empty = tmp_path / "made"
    empty.mkdir()
    lines, _ = killed_everywhere(open_until, empty, nursery, check_new)
    assert lines > 10


def check_new(work: Path, _last: int) -> str:
    assert ids(work / "work.db") <= {"third"}
    return "new"
