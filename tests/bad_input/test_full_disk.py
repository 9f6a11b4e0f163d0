"""A full disk: nothing is acknowledged that is not durable, and the same object works again."""

# ruff: noqa: PT012, SIM117  (the block that an exception leaves is what is tested)

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from killick import Session, Store, StoreDegraded
from tests.bad_input.helpers import calling, is_usable, saying, texts, until

KILOBYTES = 1_024


class Disk:
    """A small file system of its own that can be filled and emptied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        descriptor = os.open(self._filler, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            for size in (64 * KILOBYTES, 4 * KILOBYTES, 1):
                self._write_until_full(descriptor, bytes(size))
        finally:
            os.close(descriptor)

    def _write_until_full(self, descriptor: int, block: bytes) -> None:
        try:
            while os.write(descriptor, block) == len(block):
                pass
        except OSError:
            return

    def make_room(self) -> None:
        self._filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1536k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def path(disk: Disk) -> Path:
    return disk.folder / "work.db"


def write_until_refused(session: Session) -> list[str]:
    """Notes that were acknowledged before the first that was not."""
    acknowledged: list[str] = []
    with pytest.raises(StoreDegraded, match="disk is full; make room") as caught:
        while len(acknowledged) < 10_000:
            name = f"note {len(acknowledged)}"
            session.note(name, "x" * 600)
            acknowledged.append(name)
    assert caught.value.__cause__ is not None
    return acknowledged


def notes(session: Session) -> list[str]:
    return [getattr(e.body, "name", "") for e in session.entries() if e.kind == "note"]


def test_a_write_that_does_not_fit_raises_and_the_status_says_so(
    disk: Disk, store: Store, session: Session
) -> None:
    disk.fill()
    acknowledged = write_until_refused(session)
    assert store.status == "degraded"
    assert notes(session) == acknowledged


def test_the_same_object_works_again_when_there_is_room(
    disk: Disk, store: Store, session: Session
) -> None:
    disk.fill()
    acknowledged = write_until_refused(session)
    disk.make_room()
    session.note("after", "x" * 600)
    assert store.status == "ok"
    assert notes(session) == [*acknowledged, "after"]
    assert [entry.seq for entry in session.entries()] == list(range(1, session.head + 1))
    assert is_usable(session)


def test_nothing_acknowledged_is_missing_after_opening_again(disk: Disk, path: Path) -> None:
    with Store(path) as store:
        session = store.create_session(id="s")
        disk.fill()
        acknowledged = write_until_refused(session)
    disk.make_room()
    with Store(path) as store:
        assert notes(store.session("s")) == acknowledged
        assert is_usable(store.session("s"))


def test_a_store_can_be_read_while_its_disk_is_full(
    disk: Disk, store: Store, session: Session
) -> None:
    with session.turn("go"):
        pass
    disk.fill()
    write_until_refused(session)
    assert texts(store.session("s")) == ["go"]
    assert [info.id for info in store.sessions()] == ["s"]


def test_a_prompt_that_does_not_fit_begins_no_turn(
    disk: Disk, store: Store, session: Session
) -> None:
    disk.fill()
    write_until_refused(session)
    with pytest.raises(StoreDegraded), session.turn("x" * 50_000):
        raise AssertionError("the block must not run")
    assert session.turns() == []
    disk.make_room()
    assert is_usable(session)


def test_a_result_that_does_not_fit_raises_and_can_be_recorded_when_there_is_room(
    disk: Disk, session: Session
) -> None:
    with session.turn("go") as turn:
        turn.record(calling())
        with turn.tool("c1") as call:
            disk.fill()
            write_until_refused(session)
            with pytest.raises(StoreDegraded):
                call.finish("r" * 50_000)
            disk.make_room()
            call.finish("r" * 50_000)
    assert session.messages()[-1].role == "tool"
    assert session.turns()[-1].status == "completed"


def test_a_streaming_reply_is_told_by_its_next_delta_and_its_text_is_there_afterwards(
    disk: Disk, store: Store, session: Session
) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        reply.text("first ")
        disk.fill()
        write_until_refused(session)
        reply.text("x" * 50_000)
        until(lambda: store.status == "degraded" and reply._core._buffer.error is not None)  # type: ignore[union-attr]
        with pytest.raises(StoreDegraded, match="could not be written"):
            reply.text(" not taken")
        disk.make_room()
        until(lambda: store.status == "ok")
        reply.text(" last")
    assert texts(session)[-1] == "first " + "x" * 50_000 + " last"
    assert store.counts()["deltas"] == 0


def test_an_exception_that_leaves_on_a_full_disk_goes_on_with_the_failure_attached(
    disk: Disk, store: Store, session: Session
) -> None:
    with pytest.raises(KeyboardInterrupt) as caught, session.turn("go") as turn:
        with turn.stream() as reply:
            disk.fill()
            write_until_refused(session)
            reply.text("x" * 50_000)
            raise KeyboardInterrupt
    assert "StoreDegraded" in "".join(caught.value.__notes__)
    disk.make_room()
    assert is_usable_after_take_over(session)


def is_usable_after_take_over(session: Session) -> bool:
    """The turn has no ending, since none could be written; this process may still take it over."""
    with session.turn("still there?", if_busy="take_over") as turn:
        turn.record(saying("yes"))
    return texts(session)[-1] == "yes"


def test_a_body_too_large_for_the_disk_raises_the_same_error(
    disk: Disk, store: Store, session: Session
) -> None:
    """It does not wait for the commit: pages of a large body go to the disk before it."""
    with pytest.raises(StoreDegraded, match="disk is full"):
        store.put_blob(os.urandom(6_000 * KILOBYTES))
    assert store.status == "degraded"
    with pytest.raises(StoreDegraded):
        session.note("n", "x" * 6_000 * KILOBYTES)
    assert notes(session) == []
    assert is_usable(session)
    assert store.status == "ok"


def test_a_new_store_on_a_full_disk_is_refused_and_made_when_there_is_room(
    disk: Disk, path: Path
) -> None:
    disk.fill()
    with pytest.raises(StoreDegraded):
        Store(path)
    disk.make_room()
    with Store(path) as store:
        assert is_usable(store.create_session())
