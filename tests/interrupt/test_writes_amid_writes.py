"""A signal handler, or a finaliser, that uses the store while its own thread is in the midst of it.

Python runs both on whatever thread it likes, between any two instructions: a lock that this thread
holds is not let go before they return, and a handler that writes waits for its outcome.
"""

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from killick import Message, Session, Store, Text
from killick.model.entries import Entry
from killick.stores.engine.state import Op
from tests.interrupt.disks import MemoryStores, ServerStores
from tests.interrupt.driving import Disk
from tests.interrupt.tracing import Interrupter

HERE = str(Path(__file__).parent)
SOURCE = Path(__file__).parents[2] / "src"
SECONDS = 25
"""So long a thread may take that would take two; one that waits for itself takes for ever."""


class Handler(Interrupter):
    """Calls a handler where a signal's would be called: at all places, or at every so manieth."""

    def __init__(self, handle: Callable[[], object], every: int = 1, *, within: str = "") -> None:
        super().__init__(set(), HERE, within=f"{SOURCE}/killick/{within}")
        self._handle = handle
        self._every = every
        self.only: int | None = None
        self.handled = 0
        self.place = ""

    def concerns(self, code: CodeType) -> bool:
        """Pure functions hold nothing that a handler could wait for."""
        pure = f"{SOURCE}/killick/journal/", f"{SOURCE}/killick/views/"
        return super().concerns(code) and not code.co_filename.startswith(pure)

    def _visit(self, frame: FrameType) -> None:
        self.count += 1
        if self.count % self._every == 0 and self.only in (None, self.count):
            self.handled += 1
            self.place = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
            self._handle()


def record(session: Session) -> None:
    with session.turn("go") as turn:
        turn.record(said("one"))


def stream(session: Session) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        reply.text("Let me ")
        reply.tool_call("a", name="shell", arguments="{}")
        with turn.tool("a") as call:
            call.output("printed")
            call.finish("done")


def read(session: Session) -> None:
    session.messages()
    session.messages(last=1)
    session.context("neutral")
    session.entries()


def said(text: str) -> Message:
    return Message("assistant", [Text(text)])


WORKS: list[Callable[[Session], None]] = [record, stream, read]


@pytest.mark.parametrize("work", WORKS)
def test_a_handler_writes_and_reads_amid_whatever_its_thread_does(
    disk: Disk, work: Callable[[Session], None]
) -> None:
    if work is read and isinstance(disk, MemoryStores):
        pytest.skip("a read of the store for tests is a lock: no writer gets past it")
    with disk.sync() as store:
        session, other = store.create_session(), store.create_session()
        record(session)

        def handle() -> None:
            other.note("handled", key=str(handler.handled))
            assert other.entries(after=other.head - 1)[-1].kind == "note"
            other.context("neutral")

        handler = Handler(handle, every=8 if isinstance(disk, ServerStores) else 1)
        _in_time(handler, partial(work, session))
        assert [note.key for note in other.notes(name="handled")] == [
            str(number + 1) for number in range(handler.handled)
        ]
        assert handler.count > 50
        assert {turn.status for turn in session.turns()} == {"completed"}


def test_a_handler_writes_while_another_thread_follows(disk: Disk) -> None:
    """The writer's thread wakes those that follow before it answers the handler."""
    with disk.sync() as store:
        session, seen = store.create_session(), list[str]()
        other = store.session(session.id)

        def follow() -> None:
            for item in other.follow():
                seen.append(item.kind if isinstance(item, Entry) else "delta")
                begun.set()
                if seen[-1] == "archived":
                    break

        begun = threading.Event()
        thread = threading.Thread(target=follow)
        thread.start()
        begun.wait(SECONDS)
        handler = Handler(lambda: session.note("handled"), within="session/watcher.py")
        _in_time(handler, partial(stream, session))
        session.archive()
        thread.join(SECONDS)
        assert not thread.is_alive()
        assert handler.count > 5
        assert seen.count("note") == handler.count


def test_a_handler_runs_a_turn_of_its_own_amid_a_turn(disk: Disk) -> None:
    with disk.sync() as store:
        session, other = store.create_session(), store.create_session()
        handler = Handler(partial(record, other), every=8 if isinstance(disk, ServerStores) else 1)
        _in_time(handler, partial(stream, session))
        statuses = [turn.status for turn in (*session.turns(), *other.turns())]
        assert statuses == ["completed"] * (handler.handled + 1)


def test_a_handler_writes_into_the_turn_that_its_thread_writes_into(disk: Disk) -> None:
    with disk.sync() as store:
        session = store.create_session()

        def handle() -> None:
            turn.record(said(f"handled {handler.handled}"))

        handler = Handler(handle)
        with session.turn("go") as turn:
            _in_time(handler, lambda: turn.record(said("recorded")))
        texts = [message.text for message in session.messages()]
    assert sorted(texts) == sorted(
        ["go", "recorded", *(f"handled {number + 1}" for number in range(handler.handled))]
    )


class Dropped:
    """It writes when it is dropped."""

    def __init__(self, write: Callable[[], object]) -> None:
        self._write = write

    def __del__(self) -> None:
        self._write()


def test_a_finaliser_writes_on_the_callers_thread(disk: Disk) -> None:
    with disk.sync() as store:
        session, other = store.create_session(), store.create_session()

        def write() -> None:
            other.note("dropped", key=str(handler.handled))

        handler = Handler(lambda: Dropped(write))
        with session.turn("go") as turn:
            _in_time(handler, lambda: turn.record(said("recorded")))
        store._core.runtime().writer.submit(Op(lambda engine: None)).wait()
        assert len(other.notes(name="dropped")) == handler.count > 20


def test_a_finaliser_writes_on_the_writers_thread_in_the_midst_of_a_commit(disk: Disk) -> None:
    """It waits for nothing there; what it wrote is in a later commit."""
    with disk.sync() as store, store.create_session().turn("go") as turn:
        other, place = store.create_session(), 0
        while True:
            place += 1
            write = partial(other.note, "dropped", key=str(place))
            handler = Handler(partial(Dropped, write))
            handler.only = place
            _on_the_writers_thread(store, handler)
            turn.record(said("recorded"))
            _on_the_writers_thread(store, None)
            if not handler.handled:
                break
        keys = [note.key for note in other.notes(name="dropped")]
        assert keys == [str(number) for number in range(1, place)]
        assert place > 30


def _on_the_writers_thread(store: Store, handler: Handler | None) -> None:
    """Have the handler called on that thread, or none."""
    watching.set(handler)
    op = store._core.runtime().writer.submit(Op(lambda engine: watching.begin()))
    assert op.wait(SECONDS)


class _Watching:
    """A trace of the writer's thread, from its next call on."""

    def __init__(self) -> None:
        self._handler: Handler | None = None

    def set(self, handler: Handler | None) -> None:
        self._handler = handler

    def begin(self) -> None:
        sys.settrace(None if self._handler is None else self._begin)

    def _begin(self, frame: Any, _event: str, _arg: object) -> Any:
        handler = self._handler
        if handler is None or not handler.concerns(frame.f_code):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True

        def step(frame: Any, event: str, _arg: object) -> Any:
            if event in ("return", "exception"):
                handler.leave(frame)
            elif event == "opcode":
                handler.step(frame, frame.f_lasti)
            return step

        return step


watching = _Watching()


def _in_time(handler: Handler, work: Callable[[], object]) -> None:
    """Do the work on a thread of its own, which is left behind if it waits for itself."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            handler.run(work)
        except BaseException as error:  # noqa: BLE001  (raised below)
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), f"it waits for itself, {handler.handled}: {handler.place}"
    if failed:
        raise failed[0]
