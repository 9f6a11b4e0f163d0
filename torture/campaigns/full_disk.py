"""The disk is full from the k-th write that makes a file longer, for every k, until room is made.

The scenario and what must hold are those of `io_errors`. A write that does not fit is half done, as
the file systems do it.
"""

from torture.campaign import Campaign, Round, Sizes
from torture.campaigns.io_errors import Trial
from torture.disk import FullDisk, faulty_disk

_NEVER = 10**9


def run(round_: Round) -> None:
    with faulty_disk() as disk:
        pages = round_.chance.choice((5, 12, 4_000))
        trial = Trial(disk, round_.quick, round_.seed, pages, exists=round_.seed % 3 != 0)
        trial.run(FullDisk(_NEVER))
        many = disk.counts["write"]
        assert many > 10, "the writes are not counted"
        for at in range(1, many + 1):
            round_.check(f"full from write {at} of {many} on", trial.run, FullDisk(at))


CAMPAIGN = Campaign(
    name="full_disk",
    tries="there is no room from the k-th write on that makes a file longer, for every k",
    holds="the call that did not fit raises and the status says so at once; nothing is fused; the "
    "same store object goes on when there is room",
    sizes=Sizes(slice=60, torture=600, long=20_000),
    run=run,
)
