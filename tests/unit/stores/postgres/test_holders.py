"""Whether a holder is alive: the judge is pure, and has one look or two to go by."""

import pytest

from killick.stores.postgres.holders import APART_SECONDS, Look, Looks, judge

FREE = Look(until_us=10, over=False, locked=False, at=0.0)
LATER = APART_SECONDS


@pytest.mark.parametrize(
    ("earlier", "now", "verdict"),
    [
        (None, None, "dead"),
        (None, FREE._replace(over=True, locked=True), "dead"),
        (None, FREE._replace(locked=True), "alive"),
        (None, FREE._replace(locked=None), "alive"),
        (None, FREE, "doubt"),
        (FREE, FREE._replace(at=LATER), "dead"),
        (FREE, FREE._replace(at=LATER - 0.01), "doubt"),
        (FREE, FREE._replace(at=LATER, until_us=11), "doubt"),
        (FREE, FREE._replace(at=LATER, locked=True), "alive"),
        (FREE, FREE._replace(at=LATER, locked=None), "alive"),
        (FREE, FREE._replace(at=LATER, over=True), "dead"),
    ],
)
def test_the_verdict(earlier: Look | None, now: Look | None, verdict: str) -> None:
    assert judge(earlier, now) == verdict


def test_a_renewal_in_between_begins_the_count_anew() -> None:
    looks = Looks("own")
    renewed = FREE._replace(until_us=11, at=LATER)
    assert looks.is_alive("other", FREE)
    assert looks.is_alive("other", renewed)
    assert looks.is_alive("other", renewed._replace(at=LATER * 1.5))
    assert not looks.is_alive("other", renewed._replace(at=LATER * 2))
    assert not looks.is_alive("other", renewed._replace(at=LATER * 2.1)), "it stays dead"


def test_a_lock_that_was_held_in_between_begins_the_count_anew() -> None:
    looks = Looks("own")
    assert looks.is_alive("other", FREE)
    assert looks.doubt("other", FREE.at + APART_SECONDS / 4) == APART_SECONDS * 3 / 4
    assert looks.is_alive("other", FREE._replace(locked=True, at=LATER / 2))
    assert looks.doubt("other", LATER) == 0
    assert looks.is_alive("other", FREE._replace(at=LATER))


def test_no_more_looks_are_kept_than_a_limit() -> None:
    looks = Looks("own")
    for number in range(3_000):
        assert looks.is_alive(f"other/{number}", FREE)
    doubts = [looks.doubt(f"other/{number}", 0.0) for number in range(3_000)]
    assert sum(doubt > 0 for doubt in doubts) <= 1_024
