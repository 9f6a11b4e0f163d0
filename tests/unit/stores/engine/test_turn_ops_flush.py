"""A stream that was admitted once is asked again when an entry has come into its session."""

from contextlib import suppress

import pytest

from killick.errors import IdConflict
from killick.model import entries as e
from killick.stores.buffers import StreamBuffer
from killick.stores.contract import Claim, Database
from killick.stores.engine import session_ops, turn_ops
from killick.stores.engine.state import EngineState
from killick.stores.memory import MemoryDisk


class Asleep:
    def within_window(self, buffer: StreamBuffer) -> None: ...
    def at_once(self) -> None: ...


class Undo(Exception):
    """Rolls a transaction back."""


class Stream:
    """One stream of a turn, without a writer thread."""

    def __init__(self, database: Database) -> None:
        self.database, self.engine, self.said = database, EngineState(), 0
        with database.writing() as tx:
            self.engine.begin(tx)
            row = session_ops.create_session(
                self.engine, session_id="s", tenant="", created=e.SessionCreated(), at_us=1
            )
            assert row is not None
            start = turn_ops.TurnStart("turn", "holder", None)
            self.claim = turn_ops.start_turn(self.engine, row.key, start, 2).claim
            self.key = row.key
            seq = self.append(e.MessageStarted(id="msg", turn_id="turn"))
        self.engine.committed()
        self.buffer = StreamBuffer(key=row.key, seq=seq, claim=self.claim, wake=Asleep())

    def append(self, body: e.Body) -> int:
        claim = Claim(self.claim.turn_id, self.claim.fence)
        return turn_ops.append(self.engine, self.key, claim, (body,), 3)[0].seq

    def flush(self) -> list[object]:
        """Return why it was refused."""
        self.buffer.add(e.Delta(0, self.said, "text", "x"), 1)
        self.said += 1
        return [*turn_ops.flush(self.engine, [self.buffer]).values()]

    def flush_alone(self) -> list[object]:
        with self.database.writing() as tx:
            self.engine.begin(tx)
            refused = self.flush()
        self.engine.committed()
        return refused

    def append_and_undo(self) -> int:
        """Return the seq of an entry that is not there after all."""
        with suppress(Undo), self.database.writing() as tx:
            self.engine.begin(tx)
            seq = self.append(e.ModelCallStarted(id="call", turn_id="turn"))
            assert self.flush() == []
            raise Undo
        self.engine.rolled_back()
        return seq


ENDED = e.MessageEnded(id="msg", turn_id="turn", state="complete", parts=())


@pytest.fixture
def stream() -> Stream:
    return Stream(MemoryDisk().open())


def test_a_stream_that_was_admitted_is_refused_after_its_end(stream: Stream) -> None:
    assert stream.flush_alone() == stream.flush_alone() == []
    with stream.database.writing() as tx:
        stream.engine.begin(tx)
        stream.append(ENDED)
        (refused,) = stream.flush()
    assert isinstance(refused, IdConflict)


def test_an_admission_that_was_rolled_back_does_not_hold_for_an_end_in_its_place(
    stream: Stream,
) -> None:
    assert stream.flush_alone() == []
    undone = stream.append_and_undo()
    with stream.database.writing() as tx:
        stream.engine.begin(tx)
        assert stream.append(ENDED) == undone
    stream.engine.committed()
    (refused,) = stream.flush_alone()
    assert isinstance(refused, IdConflict)
