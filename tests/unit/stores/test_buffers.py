"""Deltas on their way to the disk: order, limits, and what a rollback gives back."""

import pytest

from killick.errors import StoreDegraded, TurnEnded
from killick.model.entries import Delta
from killick.model.limits import FLUSH_BYTES
from killick.model.messages import Opaque
from killick.stores.buffers import StreamBuffer
from killick.stores.contract import Claim


class WakeupFd:
    """Counts how often the writer would have been woken."""

    def __init__(self) -> None:
        self.later = 0
        self.now = 0

    def within_window(self, buffer: StreamBuffer) -> None:
        self.later += 1

    def at_once(self) -> None:
        self.now += 1


def make(bell: WakeupFd | None = None, limit: int = 1_000_000) -> StreamBuffer:
    return StreamBuffer(key=1, seq=2, claim=Claim("t", 1), wake=bell or WakeupFd(), limit=limit)


def hand_over(buffer: StreamBuffer, delta: Delta) -> None:
    buffer.add(delta, buffer.admit(delta))


def add(buffer: StreamBuffer, *texts: str) -> None:
    for text in texts:
        hand_over(buffer, Delta(0, 0, "text", text))


def taken(buffer: StreamBuffer) -> str:
    return "".join(delta.text for delta in buffer.take())


def test_what_was_added_is_taken_in_order_and_once() -> None:
    buffer = make()
    add(buffer, "a", "b", "c")
    assert taken(buffer) == "abc"
    assert taken(buffer) == ""


def test_what_a_rolled_back_transaction_took_comes_back_before_what_came_since() -> None:
    buffer = make()
    add(buffer, "a", "b")
    buffer.take()
    add(buffer, "c")
    buffer.give_back()
    add(buffer, "d")
    assert taken(buffer) == "abcd"


def test_what_two_takes_of_one_transaction_took_comes_back_in_order() -> None:
    buffer = make()
    add(buffer, "a")
    buffer.take()
    add(buffer, "b")
    buffer.take()
    add(buffer, "c")
    buffer.give_back()
    buffer.give_back()
    assert taken(buffer) == "abc"


def test_only_what_was_taken_last_is_given_back() -> None:
    """An operation that is refused gives back its own; what another of its commit took stays."""
    buffer = make()
    add(buffer, "a")
    buffer.take()
    add(buffer, "b")
    buffer.take()
    buffer.give_back()
    buffer.settle()
    assert taken(buffer) == "b"


def test_flushes_are_numbered_and_an_empty_one_takes_no_number() -> None:
    buffer = make()
    buffer.take()
    assert buffer.number == 0
    add(buffer, "a")
    buffer.take()
    buffer.settle()
    add(buffer, "b")
    buffer.take()
    assert buffer.number == 2


def test_a_flush_that_was_rolled_back_is_written_again_under_a_number_of_its_own() -> None:
    """It may be stored after all, and what is stored under a number is never replaced."""
    buffer = make()
    add(buffer, "a")
    buffer.take()
    buffer.settle()
    add(buffer, "b")
    buffer.take()
    buffer.give_back()
    add(buffer, "c")
    assert taken(buffer) == "bc"
    assert buffer.number == 3


def test_a_delta_over_the_limit_is_refused_and_nothing_of_it_is_kept() -> None:
    buffer = make(limit=10)
    add(buffer, "12345678")
    with pytest.raises(StoreDegraded, match=r"8 bytes.*limit of 10.*not taken"):
        add(buffer, "abc")
    assert taken(buffer) == "12345678"


def test_the_limit_counts_what_was_taken_until_it_is_durable() -> None:
    buffer = make(limit=10)
    add(buffer, "12345678")
    buffer.take()
    with pytest.raises(StoreDegraded):
        add(buffer, "abc")
    buffer.settle()
    add(buffer, "abc")
    assert taken(buffer) == "abc"


def test_the_limit_does_not_count_a_rolled_back_flush_twice() -> None:
    buffer = make(limit=10)
    add(buffer, "12345")
    buffer.take()
    buffer.give_back()
    add(buffer, "67890")
    assert taken(buffer) == "1234567890"


def test_one_delta_that_is_larger_than_the_limit_is_taken_when_nothing_waits() -> None:
    buffer = make(limit=10)
    add(buffer, "x" * 50)
    assert taken(buffer) == "x" * 50


def test_an_opaque_part_is_counted_until_it_is_durable_and_not_after() -> None:
    """The part's own bytes, not its text, are what waits for the disk."""
    buffer = make(limit=10)
    part = Delta(0, 0, "part", "", Opaque("p", b"12345678"))
    for _ in range(5):
        hand_over(buffer, part)
        buffer.take()
        buffer.settle()
    hand_over(buffer, part)
    with pytest.raises(StoreDegraded):
        hand_over(buffer, part)


def test_a_failed_flush_is_told_to_the_next_delta() -> None:
    buffer = make()
    buffer.error = StoreDegraded("the disk is full")
    for _ in range(2):
        with pytest.raises(StoreDegraded, match="the disk is full"):
            add(buffer, "x")
    assert taken(buffer) == ""


def test_an_ended_turn_is_told_to_the_next_delta_by_its_own_error() -> None:
    buffer = make()
    buffer.error = TurnEnded("it has ended")
    with pytest.raises(TurnEnded, match="it has ended"):
        add(buffer, "x")


def test_a_flush_that_succeeds_clears_the_error() -> None:
    buffer = make()
    add(buffer, "a")
    buffer.error = StoreDegraded("the disk is full")
    buffer.take()
    buffer.settle()
    add(buffer, "b")
    assert taken(buffer) == "b"


def test_the_writer_is_woken_once_for_many_deltas() -> None:
    bell = WakeupFd()
    buffer = make(bell)
    add(buffer, *"abcdef")
    assert (bell.later, bell.now) == (1, 0)
    buffer.take()
    add(buffer, "g")
    assert bell.later == 2


def test_enough_text_is_flushed_at_once() -> None:
    bell = WakeupFd()
    buffer = make(bell)
    add(buffer, "x" * (FLUSH_BYTES - 1))
    assert bell.now == 0
    add(buffer, "x", "x")
    assert bell.now == 1
