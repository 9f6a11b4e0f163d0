"""All campaigns, in the order of the table; each is loaded when it is asked for."""

from importlib import import_module

from torture.campaign import Campaign

NAMES = (
    "cancellation",
    "kills",
    "races",
    "io_errors",
    "full_disk",
    "power_loss",
    "processes",
    "fences",
    "openings",
    "clocks",
    "keys",
    "contexts",
    "truth",
    "damage",
    "marked",
)


def load(name: str) -> Campaign:
    """One campaign by its name."""
    campaign = import_module(f"torture.campaigns.{name}").CAMPAIGN
    assert isinstance(campaign, Campaign)
    assert campaign.name == name
    return campaign
