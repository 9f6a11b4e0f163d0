"""What a stream still held when its turn was ended by somebody else is kept, or said to be lost."""

import pytest

from killick import Session, Store, Turn, TurnEnded
from killick.stores.memory import MemoryDisk


@pytest.mark.parametrize("failing", [False, True])
def test_a_rest_that_cannot_be_kept_is_said_to_be_lost(failing: bool) -> None:
    """Somebody else has recorded the whole answer as late already, and it is another."""
    disk = MemoryDisk()
    with Store(disk.open(), window_seconds=60) as store, Store(disk.open()) as other:
        session = store.create_session()
        elsewhere = other.session(session.id)
        turn = session.turn("go")
        with pytest.raises(RuntimeError if failing else TurnEnded) as raised:
            _answer_after_the_end(turn, elsewhere, failing=failing)
        notes = " ".join(raised.value.__notes__)
        assert "was not kept" in notes
        assert [one.text for one in session.messages()][-1] == "Nobody knows."
        assert [one.status for one in session.turns()] == ["interrupted", "completed"]
        assert store.counts()["deltas"] == 0


def _answer_after_the_end(turn: Turn, elsewhere: Session, *, failing: bool) -> None:
    with turn, turn.stream() as reply:
        reply.text("The answer")
        with elsewhere.turn(None, if_busy="take_over"):
            pass
        elsewhere.add_late_text(turn.id, reply.id, "Nobody knows.")
        if failing:
            raise RuntimeError("the model hung up")
