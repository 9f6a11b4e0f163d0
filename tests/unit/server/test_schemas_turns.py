"""What a client is told of a turn."""

import pytest

from killick.model.sessions import Starts, TurnInfo
from killick.server.schemas import TurnOut


@pytest.mark.parametrize("starts", ["seen", "unseen"])
def test_a_turn_says_whether_starts_were_seen(starts: Starts) -> None:
    turn = TurnInfo("t", 1, "completed", None, None, 0, 1, starts=starts)
    assert TurnOut.of(turn).starts == starts
