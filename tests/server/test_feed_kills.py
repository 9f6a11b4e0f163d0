"""A small round of the campaign of the feed: agents, the server and a follower are killed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from torture.campaign import Places, Round
from torture.campaigns import feed
from torture.campaigns.on_postgres import lacks, places

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.mark.parametrize("stores", [None, places], ids=["sqlite", "postgres"])
def test_what_the_journals_say_is_told_whatever_dies(
    tmp_path: Path, stores: Callable[[], Places] | None
) -> None:
    if stores is not None and lacks() is not None:
        pytest.skip(lacks() or "")
    made = None if stores is None else stores()
    round_ = Round("feed", 1, tmp_path, tmp_path, places=made)
    feed.run(round_, sessions=20)
    assert not round_.failures, round_.failures[0].error
