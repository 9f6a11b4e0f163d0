"""Time and ids as they come when the caller gives no others."""

import time

import pytest

from killick import Store, UsageError
from killick.session.runtime import random_ids, system_clock
from killick.stores.memory import MemoryDisk


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


def test_a_clock_before_1970_is_told_of_and_does_not_panic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library of ids would panic there, past every `except Exception`."""
    monkeypatch.setattr(time, "time_ns", lambda: -1)
    with pytest.raises(UsageError, match="set the clock"):
        random_ids("ses")
    with Store(MemoryDisk().open()) as store:
        with pytest.raises(UsageError, match="1969"):
            store.create_session()
        assert store.create_session(id="of-my-own").id == "of-my-own"


def test_what_is_remembered_of_opened_sessions_does_not_grow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("killick.session.runtime._VERIFIED_MAX", 8)
    with Store(MemoryDisk().open()) as store:
        known = store._core.runtime().verified
        for _ in range(3 * 8):
            session = store.create_session()
            with session.turn("go"):
                pass
            before = list(known)
            assert store.session(session.id).head == session.head
            assert len(known) <= 8
            assert list(known)[:-1] == [one for one in before if one in known]
            assert len(known) > len(before) // 2, "the newer half is still known"
