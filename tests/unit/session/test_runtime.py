"""Time and ids as they come when nobody gives others."""

import time

from killick.session.runtime import random_ids, system_clock


def test_ids_say_what_they_name_and_are_never_the_same() -> None:
    made = [random_ids("turn") for _ in range(10_000)]
    assert len(set(made)) == 10_000
    assert all(one.startswith("turn_") for one in made)


def test_ids_ascend_so_that_an_index_grows_at_its_end() -> None:
    made = [random_ids("ent") for _ in range(10_000)]
    assert made == sorted(made)


def test_the_clock_counts_microseconds() -> None:
    before = time.time_ns() // 1_000
    assert before <= system_clock() <= before + 5_000_000
