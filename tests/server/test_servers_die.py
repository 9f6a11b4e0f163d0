"""A small round of the campaign of servers: three behind one address, one dies after the other."""

from collections.abc import Callable
from pathlib import Path

import pytest

from torture.campaign import Places, Round
from torture.campaigns import served_hour, servers
from torture.campaigns.on_postgres import lacks, places

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.mark.parametrize("stores", [None, places], ids=["sqlite", "postgres"])
def test_clients_are_told_all_whatever_dies(
    tmp_path: Path, stores: Callable[[], Places] | None
) -> None:
    if stores is not None and lacks() is not None:
        pytest.skip(lacks() or "")
    made = None if stores is None else stores()
    round_ = Round("servers", 1, tmp_path, tmp_path, places=made)
    servers.run(round_, servers.Plan(clients=3, prompts=8))
    assert not round_.failures, round_.failures[0].error


def test_the_hour_goes_on_until_enough_servers_have_died(tmp_path: Path) -> None:
    round_ = Round("served_hour", 1, tmp_path, tmp_path)
    served_hour.run(round_, minutes=2, minute_seconds=2.0)
    assert not round_.failures, round_.failures[0].error
    assert round_.cases > 6, "each client has asked more than once"
