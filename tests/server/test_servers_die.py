"""A small round of the campaign of servers: three behind one address, one dies after the other."""

from collections.abc import Callable
from pathlib import Path

import pytest

from torture.campaign import Places, Round
from torture.campaigns import servers
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
    servers.run(round_, clients=3, prompts=8)
    assert not round_.failures, round_.failures[0].error
