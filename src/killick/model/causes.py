"""Causes: why a turn ended or was asked to stop. Only a cause decides; a reason is only shown."""

from typing import Final, Literal, get_args

from killick.errors import UsageError

Cause = Literal[
    "stopped",
    "cancelled",
    "timed_out",
    "client_gone",
    "shut_down",
    "terminated",
    "crashed",
    "taken_over",
    "abandoned",
    "deleted",
    "forked",
    "failed",
    "other",
]

CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)

KEEP_WAITING: Final = frozenset[str | None](
    {"cancelled", "timed_out", "client_gone", "shut_down", "terminated", "crashed", "abandoned"}
)
"""Interruptions that are no person's wish: a call that waits for an approval goes on waiting."""

_OF_WORDS: Final[dict[str, Cause]] = {
    "stopped": "stopped",
    "stopped by the user": "stopped",
    "interrupted by the next turn": "stopped",
    "cancelled": "cancelled",
    "keyboard_interrupt": "cancelled",
    "terminal_closed": "client_gone",
    "the server was shut down": "shut_down",
    "system_exit": "terminated",
    "process_exit": "terminated",
    "store_closed": "terminated",
    "terminated": "terminated",
    "left": "terminated",
    "awaiting_approval": "terminated",
    "crashed": "crashed",
    "taken_over": "taken_over",
    "closed": "abandoned",
    "abandoned": "abandoned",
    "outcome_unknown": "abandoned",
    "deleted": "deleted",
    "forked": "forked",
}
"""The reasons that Killick's own code wrote before entries had causes."""


def check_cause(cause: str) -> None:
    """Refuse a word that is no cause. Raises UsageError, which names them all."""
    if cause not in CAUSES:
        raise UsageError(f"there is no cause {cause!r}; it is one of {', '.join(CAUSES)}")


def cause_of_words(reason: str | None, detail: str | None) -> Cause:
    """Return the cause of an interruption that was stored before there were causes.

    A turn that waited for an approval has the first reason as its detail.
    """
    waited = detail is not None and reason == "awaiting_approval"
    return _OF_WORDS.get((detail if waited else reason) or "", "other")
