"""Causes: why a turn ended or was asked to stop. Only a cause decides; a reason is only shown."""

from typing import Final, Literal, get_args

from killick.errors import UsageError

Cause = Literal[
    "stopped", "cancelled", "timed_out", "client_gone", "shut_down", "terminated", "crashed",
    "taken_over", "abandoned", "deleted", "forked", "failed", "other",
]  # fmt: skip

CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)

KEEP_WAITING: Final = frozenset[str | None](
    {"cancelled", "timed_out", "client_gone", "shut_down", "terminated", "crashed", "abandoned"}
)
"""Interruptions that are no person's wish: a call that waits for an approval goes on waiting."""

_WORDS: Final[dict[Cause, tuple[str, ...]]] = {
    "stopped": ("stopped", "stopped by the user", "interrupted by the next turn"),
    "cancelled": ("cancelled", "keyboard_interrupt"),
    "client_gone": ("terminal_closed",),
    "shut_down": ("the server was shut down",),
    "terminated": ("terminated", "system_exit", "process_exit", "store_closed", "left"),
    "crashed": ("crashed",),
    "taken_over": ("taken_over",),
    "abandoned": ("abandoned", "closed", "outcome_unknown"),
    "deleted": ("deleted",),
    "forked": ("forked",),
}
"""The reasons that Killick's own code wrote before entries had causes."""

_OF_WORDS: Final = {word: cause for cause, words in _WORDS.items() for word in words}
_WAITED: Final = "awaiting_approval"


def check_cause(cause: str) -> None:
    """Refuse a word that is no cause. Raises UsageError, which names them all."""
    if cause not in CAUSES:
        raise UsageError(f"there is no cause {cause!r}; it is one of {', '.join(CAUSES)}")


def cause_of_words(reason: str | None, detail: str | None) -> Cause:
    """Return the cause of an interruption that was stored before there were causes.

    A turn that waited for an approval has the first reason as its detail.
    """
    if reason == _WAITED:
        return _OF_WORDS.get(detail or "", "terminated")
    return _OF_WORDS.get(reason or "", "other")
