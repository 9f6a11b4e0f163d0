"""Rows that are renewed."""

from tests.lab.page import Row, merged


def test_a_renewed_row_keeps_what_following_measured() -> None:
    old = Row("pi", "kill_tools", "1", "2026-11-18", followed="after 1 s", at_once="after 2 s")
    old.idle, old.followed_on = 0.001, "2026-11-17"
    (row,) = merged([old], [Row("pi", "kill_tools", "1", "2026-11-19")])
    assert (row.day, row.followed, row.at_once) == ("2026-11-19", "after 1 s", "after 2 s")
    assert (row.idle, row.followed_on) == (0.001, "2026-11-17")
    (row,) = merged([row], [Row("pi", "kill_tools", "1", "2026-11-19", followed_on="2026-11-19")])
    assert (row.followed, row.followed_on) == ("", "2026-11-19")
