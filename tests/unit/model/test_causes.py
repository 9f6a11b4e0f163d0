"""The list of causes, and what is refused."""

import pytest

from killick import UsageError
from killick.model.causes import CAUSES, KEEP_WAITING, check_cause


def test_an_unknown_cause_is_refused_with_the_list() -> None:
    for cause in CAUSES:
        check_cause(cause)
    with pytest.raises(UsageError) as refused:
        check_cause("canceled")
    assert "'canceled'" in str(refused.value)
    assert all(cause in str(refused.value) for cause in CAUSES)


def test_a_persons_wish_ends_the_waiting_and_so_does_what_is_not_known() -> None:
    assert not KEEP_WAITING & {"stopped", "taken_over", "deleted", "forked", "failed", "other"}
