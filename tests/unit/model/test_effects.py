"""Effects of tools, and the hints of MCP that speak of them."""

import pytest

from killick.errors import UsageError
from killick.model.effects import (
    EFFECTS,
    REPEATABLE,
    check_effect,
    check_settlement,
    effect_of_hints,
)


@pytest.mark.parametrize(
    ("hints", "effect"),
    [
        (None, "once"),
        ({}, "once"),
        ({"readOnlyHint": True}, "none"),
        ({"readOnlyHint": True, "idempotentHint": False, "destructiveHint": True}, "none"),
        ({"readOnlyHint": False, "idempotentHint": True}, "idempotent"),
        ({"destructiveHint": False}, "once"),
        ({"destructiveHint": True}, "once"),
        ({"readOnlyHint": "yes", "idempotentHint": 1}, "once"),
    ],
)
def test_a_hint_that_is_not_plain_means_once(hints: dict[str, object], effect: str) -> None:
    assert effect_of_hints(hints) == effect


def test_only_once_may_not_be_repeated() -> None:
    assert set(EFFECTS) - REPEATABLE == {"once"}


def test_other_words_are_refused_with_all_that_there_are() -> None:
    with pytest.raises(UsageError, match="none, idempotent, once"):
        check_effect("twice")
    with pytest.raises(UsageError, match="ran, did_not_run"):
        check_settlement("perhaps", "person")
    with pytest.raises(UsageError, match="person or a check"):
        check_settlement("ran", "model")
