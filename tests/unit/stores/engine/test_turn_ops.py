"""A stream's end whose outcome was unknown: what was given back to it is not written behind it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from killick import OutcomeUnknown, Store
from killick.stores.memory import MemoryDisk
from killick.testing.faults import Failpoints
from tests.waiting import until


class Unsure(Failpoints):
    """Commits, and says once that it does not know."""

    unsure = False

    @contextmanager
    def writing(self) -> Iterator[Any]:
        with self._database.writing() as tx:
            yield tx
        if self.unsure:
            self.unsure = False
            raise OutcomeUnknown("the server cannot be asked")


def flush_everything(store: Store, turn: Any) -> None:
    """Wait until a stream that began later was flushed, and with it all that waited before."""
    with turn.stream() as reply:
        reply.text("later")
        until(lambda: store.counts()["deltas"] > 0)


@pytest.mark.parametrize("kind", ["stream", "tool", "left"])
def test_a_flush_after_an_end_that_was_stored_leaves_no_deltas(kind: str) -> None:
    database = Unsure(MemoryDisk().open())
    with Store(database, window_seconds=0.2, indexing=False) as store:
        session = store.create_session()
        with session.turn("go") as turn:
            with turn.stream() as reply:
                reply.tool_call("c", name="shell", arguments="{}")
            with pytest.raises((OutcomeUnknown, KeyboardInterrupt)):
                end_in_doubt(kind, turn, database)
            flush_everything(store, turn)
            assert store.counts()["deltas"] == 0
        assert store.examine_session(session.id) == []
        if kind == "stream":
            assert "half" in [message.text for message in session.messages()]


def end_in_doubt(kind: str, turn: Any, database: Unsure) -> None:
    """End a stream, or a tool's, whose text waits; the end is stored, and said to be unknown."""
    if kind == "stream":
        with turn.stream() as reply:
            reply.text("half")
            database.unsure = True
        return
    with turn.tool("c") as call:
        call.output("half")
        database.unsure = True
        if kind == "left":
            raise KeyboardInterrupt
        call.finish("done")
