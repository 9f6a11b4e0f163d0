"""Cut off at every suspension point, on a server; on a file and in memory a campaign does it."""

from pathlib import Path

import pytest

from tests.interrupt.disks import ServerStores
from tests.interrupt.driving import Way
from tests.interrupt.points import Moment
from torture.campaign import Round
from torture.campaigns.cancellation import visit_scenario

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    ("way", "moment"),
    [("cancel twice", "soon"), ("trio scope", "at once")],
)
def test_every_point_of_a_turn(way: Way, moment: Moment, tmp_path: Path) -> None:
    """A turn with a stream, a tool and what is recorded: what was told is stored, one ending."""
    round_ = Round("cancellation", 0, tmp_path, tmp_path)
    visit_scenario("whole_turn", way, moment, round_, ServerStores(tmp_path))
    assert [f"{one.what}\n{one.error}" for one in round_.failures] == []
    assert round_.cases > 10
