"""Effects of tools on the world outside: may a run whose outcome is unknown be repeated?"""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from killick.errors import UsageError

Effect = Literal["none", "idempotent", "once"]
"""none: it only looks. idempotent: a repeat with the same key adds nothing. once: neither."""

EFFECTS: Final[tuple[Effect, ...]] = get_args(Effect)

REPEATABLE: Final = frozenset[str]({"none", "idempotent"})
"""The effects of a tool that may be run again; a word that is not known may not."""

Outcome = Literal["ran", "did_not_run"]
"""What can be found out about a call whose outcome is unknown."""

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

SettledBy = Literal["person", "check"]

SETTLED_BY: Final[tuple[SettledBy, ...]] = get_args(SettledBy)


def check_effect(effect: str) -> None:
    """Refuse a word that is no effect. Raises UsageError, which names them all."""
    if effect not in EFFECTS:
        raise UsageError(f"there is no effect {effect!r}; it is one of {', '.join(EFFECTS)}")


def check_settlement(outcome: str, by: str) -> None:
    """Refuse words that are no outcome, or name none who can settle one. Raises UsageError."""
    if outcome not in OUTCOMES:
        raise UsageError(f"there is no outcome {outcome!r}; it is one of {', '.join(OUTCOMES)}")
    if by not in SETTLED_BY:
        raise UsageError(f"by={by!r}; an outcome is settled by a {' or a '.join(SETTLED_BY)}")


def effect_of_hints(hints: Mapping[str, Any] | None) -> Effect:
    """Return the effect that MCP's hints about a tool speak of; without a hint it is once.

    A tool that is only said not to destroy anything (`destructiveHint` false) may still add twice.
    """
    hints = hints or {}
    if hints.get("readOnlyHint") is True:
        return "none"
    return "idempotent" if hints.get("idempotentHint") is True else "once"
