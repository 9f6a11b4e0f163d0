"""Ctrl+C in what runs on the caller's own thread: nothing is kept locked, and nothing kept open."""

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from killick import Message, Store, Text
from killick.stores.sqlite.connection import Gate
from tests.interrupt.tracing import Interrupter

Where = Callable[[FrameType, str], bool]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "work.db", lock_wait_seconds=0.5) as opened:
        session = opened.create_session(id="s")
        for _ in range(2):
            with session.turn("Say it.") as turn:
                turn.record(Message(role="assistant", parts=[Text("said")]))
        opened.create_session(id="gone")
        yield opened


class interrupted:
    """Ctrl+C at the first such moment on this thread, as the interpreter would raise it.

    No generator: from Python 3.13 on, one that has caught something is in a ring with it, and keeps
    all that was at work until the garbage is collected.
    """

    def __init__(self, where: Where) -> None:
        self._where = where
        self._came: list[str] = []
        self._before = sys.gettrace()

    def __enter__(self) -> list[str]:
        sys.settrace(self._trace)
        return self._came

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        sys.settrace(self._before)
        return kind is KeyboardInterrupt

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not self._came and self._where(frame, event):
            self._came.append(frame.f_code.co_name)
            raise KeyboardInterrupt
        return self._trace


def leaving_a_read(frame: FrameType, event: str) -> bool:
    """The block around a read is left, and what was begun there is not ended yet."""
    code = frame.f_code
    if event != "call" or code.co_name != "__exit__" or "contextlib" not in code.co_filename:
        return False
    return "reading" in str(frame.f_locals["self"].gen.__name__)


def giving_back(frame: FrameType, event: str) -> bool:
    return event == "call" and frame.f_code.co_name == "_give_back"


@pytest.mark.parametrize("where", [leaving_a_read, giving_back])
def test_a_read_that_was_interrupted_keeps_no_old_moment_open(store: Store, where: Where) -> None:
    """An erased session's bytes leave the log only when nobody reads it; so it tells of readers."""
    gc.collect()
    gc.disable()  # what is only garbage may stay for long
    try:
        with interrupted(where) as came:
            store.session("s").messages()
        assert came
        assert store.erase_session("gone").verified
    finally:
        gc.enable()
    assert len(store.session("s").messages()) == 4


def holding_the_lock(frame: FrameType, event: str) -> bool:
    """The lock was taken, or is about to be let go."""
    name = frame.f_code.co_name
    return (name, event) in {("acquire_turn", "return"), ("release_turn", "call")}


@pytest.mark.parametrize("use", ["erase", "reindex"])
def test_work_that_keeps_others_from_writing_lets_go_of_the_lock(store: Store, use: str) -> None:
    with interrupted(holding_the_lock) as came:
        if use == "erase":
            assert store.erase_session("gone").verified
        else:
            store.rebuild_indexes()
    with store.session("s").turn("Are you there?"):  # StoreBusy while the lock is kept
        pass
    assert came == []  # it never is on a thread that Ctrl+C comes to


def test_who_was_interrupted_at_the_gate_keeps_no_fork_waiting() -> None:
    place = 0
    while True:
        place += 1
        key, gate = Interrupter({place}, str(Path(__file__).parent)), Gate()
        try:
            key.run(lambda gate=gate: _pass(gate))  # type: ignore[misc]
        except KeyboardInterrupt:
            assert key.fired
        assert not gate._visits, key.fired
        if not key.fired:
            break
    assert place > 5


def _pass(gate: Gate) -> None:
    with gate():
        pass
