"""Times as people write and read them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from killick.cli.invocation import parse_length, parse_moment
from killick.cli.render import duration_text, short_time

ZONE = timezone(timedelta(hours=2))
NOW = datetime(2026, 11, 15, 14, 30, tzinfo=ZONE)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-11-15", datetime(2026, 11, 15, tzinfo=ZONE)),
        ("2026-11-15T09:30", datetime(2026, 11, 15, 9, 30, tzinfo=ZONE)),
        ("2026-11-15T09:30Z", datetime(2026, 11, 15, 9, 30, tzinfo=UTC)),
        ("today", datetime(2026, 11, 15, tzinfo=ZONE)),
        ("yesterday", datetime(2026, 11, 14, tzinfo=ZONE)),
        ("2h", datetime(2026, 11, 15, 12, 30, tzinfo=ZONE)),
        ("1w", datetime(2026, 11, 8, 14, 30, tzinfo=ZONE)),
    ],
)
def test_a_time_is_understood(text: str, meant: datetime) -> None:
    assert parse_moment(text, NOW) == meant


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-13-01", "-2h", "2x", "999999w", "2h2h", "0001-01-01"]
)
def test_what_is_no_time_is_refused_with_what_would_be(text: str) -> None:
    with pytest.raises(ValueError, match="is no time; write 2026-11-15"):
        parse_moment(text, NOW)


def test_a_length_of_time_is_understood() -> None:
    assert parse_length("90s") == timedelta(seconds=90)
    with pytest.raises(ValueError, match="write 30m"):
        parse_length("long")


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (datetime(2026, 11, 15, 7, 5, 9, tzinfo=UTC), "09:05:09"),
        (datetime(2026, 11, 14, 23, 5, tzinfo=UTC), "01:05:00"),
        (datetime(2026, 3, 1, 8, 0, tzinfo=UTC), "01 Mar 10:00"),
        (datetime(2025, 3, 1, 8, 0, tzinfo=UTC), "2025-03-01"),
    ],
)
def test_a_time_is_told_as_short_as_it_is_understood(at: datetime, shown: str) -> None:
    assert short_time(at, NOW) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59.4, "59 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_a_duration_is_told_in_its_own_unit(seconds: float | None, shown: str) -> None:
    assert duration_text(seconds) == shown
