"""Files of other agents are damaged: what is whole comes in, and what is not is named."""

from typing import Final

from tests.exchange.damage import NEW, check
from torture.campaign import Campaign, Round, Sizes

_EACH: Final = 10
"""How many damaged sources of each format a round has."""


def run(round_: Round) -> None:
    folder = round_.quick / "source"
    folder.mkdir()
    for name in NEW:
        for number in range(_EACH):
            round_.check(name, check, name, folder, round_.seed * _EACH + number)


CAMPAIGN = Campaign(
    name="sources",
    tries="lines, rows, values and bytes of another agent's session are changed, doubled or lost",
    holds="what is whole comes in, what is not is named, and importing again changes nothing",
    sizes=Sizes(slice=0, torture=5_000 * len(NEW), long=20_000 * len(NEW)),
    run=run,
)
