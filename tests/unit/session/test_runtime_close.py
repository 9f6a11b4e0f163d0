"""Closing a store that cannot write, or in which closing was interrupted."""

import threading
from contextlib import suppress
from pathlib import Path

import pytest

from killick import Store, StoreBusy
from killick.stores.engine.state import Op
from killick.stores.memory import MemoryDisk
from tests.interrupt.driving import open_files
from tests.interrupt.tracing import Interrupter

HERE = str(Path(__file__).parent)


def test_what_could_not_be_written_in_time_is_said_and_the_file_is_closed_afterwards(
    tmp_path: Path,
) -> None:
    path = tmp_path / "work.db"
    store = Store(path)
    session = store.create_session()
    turn = session.turn("go").__enter__()
    held = threading.Event()
    runtime = store._core.runtime()
    runtime.writer.submit(Op(lambda engine: held.wait(20)))  # as a disk that does not answer
    with pytest.raises(StoreBusy, match="still being written"):
        runtime.close(seconds=0.1)
    held.set()
    for thread in threading.enumerate():
        if thread.name == "killick-closing":
            thread.join(20)
    assert str(path) not in open_files()
    with Store(path) as again:
        [ended] = again.session(session.id).turns()
        assert (ended.id, ended.status, ended.reason) == (turn.id, "interrupted", "store_closed")


def test_closing_that_was_interrupted_is_gone_on_with() -> None:
    places = 0
    while True:
        store = Store(MemoryDisk().open())
        turn = store.create_session().turn("go").__enter__()
        interrupter = Interrupter({places + 1}, HERE)
        with suppress(KeyboardInterrupt):
            interrupter.run(store.close)
        store.close()
        assert store._core.runtime().closed
        assert (turn.status, turn.reason) == ("interrupted", "store_closed")
        if not interrupter.fired:
            break
        places += 1
    assert places > 20
