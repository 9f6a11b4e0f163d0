"""Whose turn it is to write and who is alive, between real processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from killick.errors import StoreBusy
from killick.stores.sqlite.lockfile import LockFile, describe_process

_CHILD = """
import sys
from pathlib import Path
from killick.stores.sqlite.lockfile import LockFile
lock = LockFile.open(Path(sys.argv[1]))
lock.acquire_turn(5)
print(lock.take_holder(), flush=True)
sys.stdin.read()
lock.release_turn()
lock.close()
"""

_ENTANGLED = """
import sys
from pathlib import Path
from killick.errors import StoreBusy
from killick.stores.sqlite.lockfile import LockFile
held, wanted = (LockFile.open(Path(name)) for name in sys.argv[1:])
held.acquire_turn(5)
try:
    wanted.acquire_turn(0.05)
except StoreBusy:
    print("waiting for the other", flush=True)  # and a thread goes on with it
sys.stdin.read()
"""

_IS_ALIVE = """
import sys
from pathlib import Path
from killick.stores.sqlite.lockfile import LockFile
print(LockFile.open(Path(sys.argv[1])).is_alive(sys.argv[2]))
"""


def _no_thread(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """What Ctrl+C does, after a while."""

    def ring(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Child:
    """A process that has the turn and a life, until it is told to end or killed."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.holder = self.process.stdout.readline().strip()
        assert self.holder

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> None:
        self.process.communicate(timeout=10)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=10)


@contextmanager
def child_holding(path: Path) -> Iterator[Child]:
    child = Child(path)
    try:
        yield child
    finally:
        if child.process.poll() is None:
            child.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.db-lock"


@pytest.fixture
def lock(path: Path) -> Iterator[LockFile]:
    opened = LockFile.open(path)
    yield opened
    opened.close()


def test_the_turn_can_be_taken_again_after_it_was_released(lock: LockFile) -> None:
    for _ in range(3):
        lock.acquire_turn(1)
        lock.release_turn()


def test_one_process_has_one_lock_file_however_often_it_opens_it(
    lock: LockFile, path: Path
) -> None:
    again = LockFile.open(path)
    assert again is lock
    again.close()
    lock.acquire_turn(1)
    lock.release_turn()


def test_a_lock_file_with_two_names_is_one(lock: LockFile, path: Path) -> None:
    """As in a folder that is mounted twice: closing either would drop the locks of both."""
    other = path.with_name("other.db-lock")
    os.link(path, other)
    again = LockFile.open(other)
    assert again is lock
    again.close()


def test_the_turn_held_elsewhere_in_this_process_is_said_to_be(lock: LockFile) -> None:
    lock.acquire_turn(1)
    with pytest.raises(StoreBusy, match=rf"held by pid {os.getpid()}, this process"):
        lock.acquire_turn(0.01)
    lock.release_turn()


def test_the_error_names_the_process_that_has_the_turn(lock: LockFile, path: Path) -> None:
    with child_holding(path) as child:
        with pytest.raises(StoreBusy, match=rf"held by pid {child.pid}\b") as caught:
            lock.acquire_turn(0.05)
        assert "then try again" in str(caught.value)
        assert str(path) in str(caught.value)


def test_the_second_wait_that_runs_out_names_the_same_process(lock: LockFile, path: Path) -> None:
    with child_holding(path) as child:
        for _ in range(2):
            with pytest.raises(StoreBusy) as caught:
                lock.acquire_turn(0.05)
        assert f"pid {child.pid}" in str(caught.value)


def test_the_turn_comes_when_the_other_process_lets_it_go(lock: LockFile, path: Path) -> None:
    with child_holding(path) as child:
        got = threading.Event()

        def wait() -> None:
            lock.acquire_turn(10)
            got.set()
            lock.release_turn()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not got.wait(0.05)
        child.end()
        assert got.wait(5)
        waiting.join()


def test_the_turn_comes_when_the_other_process_dies(lock: LockFile, path: Path) -> None:
    with child_holding(path) as child:
        child.kill()
        lock.acquire_turn(1)
        lock.release_turn()


def test_a_turn_given_up_on_can_be_taken_later(lock: LockFile, path: Path) -> None:
    with child_holding(path) as child:
        with pytest.raises(StoreBusy):
            lock.acquire_turn(0.01)
        child.end()
        lock.acquire_turn(5)
        lock.release_turn()


def test_a_turn_given_up_on_is_kept_from_no_other_process(lock: LockFile, path: Path) -> None:
    """It comes to this process when nothing here waits for it any more: it is let go at once."""
    with child_holding(path) as child:
        with pytest.raises(StoreBusy):
            lock.acquire_turn(0.01)
        child.end()
    with child_holding(path):
        pass


def test_closing_after_a_wait_that_ran_out_is_quiet(path: Path) -> None:
    """No thread stays behind, and none ends with a traceback, once the holder lets go."""
    lock = LockFile.open(path)
    with child_holding(path) as child:
        with pytest.raises(StoreBusy):
            lock.acquire_turn(0.01)
        lock.close()
        child.end()


def test_two_processes_that_each_wait_for_a_store_of_the_other_both_go_on(tmp_path: Path) -> None:
    """The kernel takes that for a deadlock, although other threads have the turns waited for."""
    here, there = tmp_path / "here.db-lock", tmp_path / "there.db-lock"
    ours, theirs = LockFile.open(here), LockFile.open(there)
    ours.acquire_turn(1)
    with subprocess.Popen(
        [sys.executable, "-c", _ENTANGLED, str(there), str(here)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting for the other\n"
        with pytest.raises(StoreBusy, match=rf"held by pid {child.pid}\b"):
            theirs.acquire_turn(0.05)
        child.communicate(timeout=10)
    theirs.acquire_turn(5)
    for lock in (ours, theirs):
        lock.release_turn()
        lock.close()


def test_an_interrupted_wait_keeps_the_turn_from_nobody(lock: LockFile, path: Path) -> None:
    """Whoever opens a store waits on the main thread; another opening of it goes on afterwards."""
    with child_holding(path) as child:
        with alarm(0.05), pytest.raises(KeyboardInterrupt):
            lock.acquire_turn(10)
        child.end()
        lock.acquire_turn(5)
        lock.release_turn()
    with child_holding(path):  # it has the turn: nobody here kept it
        pass


def test_a_thread_that_cannot_be_started_keeps_the_turn_from_nobody(
    lock: LockFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with child_holding(path) as child:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", _no_thread)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                lock.acquire_turn(1)
        child.end()
    lock.acquire_turn(1)
    lock.release_turn()


def test_opened_again_while_a_wait_that_ran_out_goes_on_a_holder_stays_alive(path: Path) -> None:
    """Closing a descriptor drops the locks that were taken through another one."""
    first = LockFile.open(path)
    with child_holding(path) as child:
        with pytest.raises(StoreBusy):
            first.acquire_turn(0.01)
        first.close()
        again = LockFile.open(path)
        holder = again.take_holder()
        child.end()
        again.acquire_turn(5)  # whatever waited is over
        again.release_turn()
        seen = subprocess.run(
            [sys.executable, "-c", _IS_ALIVE, str(path), holder], capture_output=True, text=True
        )
    again.close()
    assert seen.stdout == "True\n", seen.stderr


def test_a_holder_is_alive_until_it_is_released(lock: LockFile) -> None:
    holder = lock.take_holder()
    assert f"/{os.getpid()}/" in holder
    assert lock.is_alive(holder)
    lock.release_holder(holder)
    assert not lock.is_alive(holder)


def test_two_holders_of_one_process_are_told_apart(lock: LockFile) -> None:
    one, other = lock.take_holder(), lock.take_holder()
    assert one != other
    lock.release_holder(one)
    assert (lock.is_alive(one), lock.is_alive(other)) == (False, True)


def test_a_holder_in_another_process_is_alive_until_that_process_is_killed(
    lock: LockFile, path: Path
) -> None:
    with child_holding(path) as child:
        assert lock.is_alive(child.holder)
        child.kill()
        assert not lock.is_alive(child.holder)


@pytest.mark.parametrize("name", ["", "nobody", "host/1/xyz", "host/1/", "host/1/" + "f" * 40])
def test_a_name_that_means_nothing_is_nobody_alive(lock: LockFile, name: str) -> None:
    assert not lock.is_alive(name)


@pytest.mark.linux
def test_a_process_is_described_by_its_pid_and_command() -> None:
    assert describe_process(os.getpid()).startswith(f"pid {os.getpid()} (")


def test_a_process_that_is_gone_is_described_by_its_pid_alone() -> None:
    assert describe_process(2**30) == "pid 1073741824"


def test_a_process_outside_this_container_is_said_to_be() -> None:
    assert describe_process(0) == "a process in another container"


def test_the_lock_file_may_be_read_by_its_owner_only(lock: LockFile, path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_new_generation_is_synced_after_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves the old one, and a log of its own is taken for another file's."""
    synced: list[int | None] = []
    lock = LockFile.open(tmp_path / "lock")
    real = os.fsync

    def sync(fd: int) -> None:
        real(fd)
        synced.append(lock.generation())

    monkeypatch.setattr(os, "fsync", sync)
    for generation in (7, 7, None, 8):
        lock.set_generation(generation)
    lock.close()
    assert synced == [7, None, 8]
