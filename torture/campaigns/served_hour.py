"""Three servers on one store for an hour, one of which is killed each minute.

The campaign `servers` kills them faster than clients can rest. Here every server has time to be at
work, to hold leases and to be asked again; a short run takes five minutes of the hour.
"""

from typing import Final

from torture.campaign import Campaign, Round, Size, Sizes
from torture.campaigns.servers import CAMPAIGN as SERVERS
from torture.campaigns.servers import Plan, Servers

MINUTES: Final[dict[Size, int]] = {"slice": 1, "torture": 5, "long": 60}


def run(round_: Round, *, minutes: int | None = None, minute_seconds: float = 60.0) -> None:
    plan = Plan(
        prompts=None,
        pause_seconds=1.0,
        deaths=MINUTES[round_.size] if minutes is None else minutes,
        every_seconds=minute_seconds,
        ended=0.0,
    )
    acknowledged = round_.check("one server dies each minute", Servers(round_, plan).run)
    round_.more((acknowledged or 1) - 1)


CAMPAIGN = Campaign(
    name="served_hour",
    tries="three servers on one store behind one address for an hour, or five minutes of it, one "
    "of them killed each minute while clients ask and follow",
    holds=SERVERS.holds,
    sizes=Sizes(slice=0, torture=1, long=1),
    run=run,
)
