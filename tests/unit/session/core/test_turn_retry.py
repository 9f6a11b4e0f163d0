"""An ending that could not be written is written as soon as the store can write again."""

import gc

import pytest

from killick import Session, Store, StoreDegraded
from killick.stores.memory import MemoryDisk
from killick.testing.faults import Failpoints


def _answer_on_a_failing_disk(session: Session, disk: Failpoints) -> None:
    with session.turn("go") as turn, turn.stream() as reply:
        reply.text("half an answer")
        disk.fail_at = 0


def test_a_failed_ending_does_not_keep_the_session_busy() -> None:
    """The same objects work again when there is room: one ending, the text kept, a next turn."""
    disk = Failpoints(MemoryDisk().open(), lasting=True)
    with Store(disk) as store:
        session = store.create_session()
        with pytest.raises(StoreDegraded):
            _answer_on_a_failing_disk(session, disk)
        assert store.status == "degraded"
        disk.fail_at = None
        with session.turn("next"):
            pass
        assert [one.status for one in session.turns()] == ["failed", "completed"]
        assert [message.text for message in session.messages()] == ["go", "half an answer", "next"]
        assert store.counts()["deltas"] == 0


def test_a_turn_that_was_collected_while_writes_failed_is_ended_afterwards() -> None:
    disk = Failpoints(MemoryDisk().open(), lasting=True)
    with Store(disk) as store:
        session = store.create_session()
        turn = session.turn("go")
        turn.__enter__()
        disk.fail_at = 0
        del turn
        gc.collect()
        disk.fail_at = None
        with session.turn("next"):
            pass
        assert [(one.status, one.reason) for one in session.turns()] == [
            ("interrupted", "abandoned"),
            ("completed", None),
        ]
