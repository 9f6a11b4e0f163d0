"""All campaigns, in the order of the table; each is loaded when it is asked for."""

from importlib import import_module

from torture.campaign import Campaign

NAMES = (
    "served_hour_on_postgres",  # its one round takes minutes: it is begun before all others
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
    "sources",
    "marked",
    "terminated",
    "finish",
    "feed",
    "servers",
    "tenants",
    "kills_on_postgres",
    "cancellation_on_postgres",
    "races_on_postgres",
    "processes_on_postgres",
    "finish_on_postgres",
    "feed_on_postgres",
    "servers_on_postgres",
    "tenants_on_postgres",
)


def load(name: str) -> Campaign:
    """One campaign by its name."""
    if name.endswith("_on_postgres"):
        module = import_module("torture.campaigns.on_postgres")
        campaign = module.on_postgres(load(name.removesuffix("_on_postgres")))
    else:
        campaign = import_module(f"torture.campaigns.{name}").CAMPAIGN
    assert isinstance(campaign, Campaign)
    assert campaign.name == name
    return campaign
