"""What a blocked caller waits at: woken for good only by its own outcome, and few descriptors."""

import contextlib
import gc
import os
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from killick import Message, Store, Text
from killick.session.drive.wakeup_fd import Bells


def _said(text: str) -> Message:
    return Message(role="assistant", parts=[Text(text)])


def eventfds() -> int:
    """How many this process has open; 0 where there is no /proc, and so none."""
    found = 0
    with contextlib.suppress(FileNotFoundError):
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed by another thread meanwhile
                found += "eventfd" in str(link.readlink())
    return found


@contextlib.contextmanager
def no_more_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.linux
def test_an_old_ring_ends_nobodys_wait(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        session = store.create_session()
        with session.turn("go") as turn:
            bells = store._core.runtime().bells
            for number in range(50):
                bell = bells.borrow()
                assert bell is not None
                bell.wake([])  # as for a caller that gave its wait up
                bells.give_back(bell)
                turn.record(_said(f"{number}"))
                assert session.messages(last=1)[0].parts == (Text(f"{number}"),)


def _most_bells_of(callers: int, path: Path) -> int:
    most = 0
    together = threading.Barrier(callers)
    with Store(path) as store:

        def write() -> None:
            nonlocal most
            with store.create_session().turn("go") as turn:
                together.wait()
                for number in range(20):
                    turn.record(_said(f"{number}"))
                    most = max(most, eventfds())

        threads = [threading.Thread(target=write) for _ in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [len(store.session(one.id).messages()) for one in store.sessions()] == [21] * callers
    return most


@pytest.mark.linux
def test_many_callers_have_few_descriptors(tmp_path: Path) -> None:
    gc.collect()
    before = eventfds()
    most = _most_bells_of(24, tmp_path / "s.db")
    assert 1 <= most - before <= 8
    gc.collect()
    assert eventfds() == before


@pytest.mark.linux
def test_without_a_descriptor_left_a_lock_has_to_do(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", indexing=False) as store:  # which gives descriptors back
        runtime = store._core.runtime()
        session = store.create_session()
        with session.turn("go") as turn:
            turn.record(_said("before"))
            runtime.bells = Bells()
            gc.collect()
            with no_more_descriptors():
                assert runtime.bells.borrow() is None
                turn.record(_said("now"))
        assert [m.parts for m in session.messages(last=2)] == [(Text("before"),), (Text("now"),)]


def test_where_there_are_no_bells_a_lock_has_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    bells = Bells()
    assert bells.borrow() is None
    monkeypatch.undo()
    with Store(tmp_path / "s.db") as store:
        store._core.runtime().bells = bells
        with store.create_session().turn("go") as turn:
            assert turn.record(_said("now"))
