"""Noticing what others have committed, and nothing when nobody asks."""

import threading
from collections.abc import Callable, Collection, Iterator

import pytest

from killick.errors import StoreReplaced
from killick.session.watcher import Watcher
from killick.stores.contract import Pace
from tests.waiting import until

SECONDS = 5.0


class Sea:
    """A change mark that a test moves, and how often it was looked at."""

    def __init__(self) -> None:
        self.mark = 1
        self.looks = 0
        self.foreign = threading.Event()
        self.looked = threading.Semaphore(0)
        self.failing = False
        self.moved: set[int] | None = None
        self.asked_for = Pace()
        self.tell: Callable[[], None] = lambda: None

    def watch(
        self, followed: Collection[int], running: Collection[int], notice: Callable[[], None]
    ) -> None:
        self.tell = notice

    def changed(self, followed: Collection[int]) -> Collection[int] | None:
        return None if self.moved is None else self.moved & set(followed)

    def pace(self) -> Pace:
        return self.asked_for

    def change_mark(self) -> int:
        self.looks += 1
        self.looked.release()
        if self.failing:
            raise StoreReplaced("gone")
        return self.mark


@pytest.fixture
def sea() -> Sea:
    return Sea()


@pytest.fixture
def watcher(sea: Sea) -> Iterator[Watcher]:
    made = Watcher(sea, sea.foreign.set)
    yield made
    made.close()


def test_nothing_is_polled_while_nobody_follows_or_runs(sea: Sea, watcher: Watcher) -> None:
    watcher.committed()
    watcher.wait(-1, 0.02)
    assert sea.looks == 0


def test_a_follower_is_woken_by_a_commit_of_this_process(watcher: Watcher) -> None:
    with watcher.following():
        since = watcher.generation
        watcher.committed()
        watcher.wait(since, SECONDS)
        assert watcher.generation > since


def test_a_change_by_another_process_is_noticed(sea: Sea, watcher: Watcher) -> None:
    with watcher.following():
        assert sea.foreign.wait(SECONDS)
        sea.foreign.clear()
        sea.mark += 1
        assert sea.foreign.wait(SECONDS)


def test_a_running_turn_is_watched_over(sea: Sea, watcher: Watcher) -> None:
    watcher.run_began()
    assert sea.foreign.wait(SECONDS)
    watcher.run_ended()


def test_polling_ends_when_nobody_is_interested_any_more(sea: Sea, watcher: Watcher) -> None:
    with watcher.following():
        assert sea.looked.acquire(timeout=SECONDS)
    thread = watcher._thread
    assert thread is not None
    thread.join(SECONDS)
    assert not thread.is_alive()
    with watcher.following():
        assert sea.looked.acquire(timeout=SECONDS)


def test_a_store_that_fails_does_not_end_the_watch(sea: Sea, watcher: Watcher) -> None:
    sea.failing = True
    with watcher.following():
        for _ in range(3):
            assert sea.looked.acquire(timeout=SECONDS)
        sea.failing = False
        assert sea.foreign.wait(SECONDS)


def test_whoever_waits_is_told_of_a_store_that_fails_and_says_why(
    sea: Sea, watcher: Watcher
) -> None:
    """Once: a look of theirs raises what is wrong, and they decide what to do about it."""
    with watcher.following():
        watcher.wait(0, SECONDS)
        since = watcher.generation
        sea.failing = True
        watcher.wait(since, SECONDS)
        assert watcher.generation == since + 1
        for _ in range(3):
            assert sea.looked.acquire(timeout=SECONDS)
        assert watcher.generation == since + 1


def test_a_database_that_is_told_is_asked_when_it_is_told(sea: Sea, watcher: Watcher) -> None:
    """And not in between, whatever the time."""
    sea.asked_for = Pace(busy=3_600, quiet=3_600)
    with watcher.following():
        for looks in range(1, 5):
            assert sea.looked.acquire(timeout=SECONDS)
            assert sea.looks == looks
            sea.mark += 1
            sea.tell()
        watcher.run_began()  # what was asked of that turn before it was known here
        assert sea.looked.acquire(timeout=SECONDS)
        watcher.run_ended()


def test_a_database_in_which_nothing_happens_is_asked_less_often(
    sea: Sea, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("killick.session.watcher._QUIET_SECONDS", 0.0)
    sea.asked_for = Pace(busy=0.0, quiet=3_600)
    with watcher.following():
        assert sea.looked.acquire(timeout=SECONDS)
        assert not sea.looked.acquire(timeout=0.2)
        sea.tell()
        assert sea.looked.acquire(timeout=SECONDS)


def test_a_call_asked_for_comes_once(watcher: Watcher) -> None:
    calls: list[int] = []
    watcher.call_on_change(watcher.generation, lambda: calls.append(1))
    assert calls == []
    watcher.bump()
    watcher.bump()
    assert calls == [1]


def test_a_call_asked_for_too_late_comes_at_once(watcher: Watcher) -> None:
    calls: list[int] = []
    since = watcher.generation
    watcher.bump()
    watcher.call_on_change(since, lambda: calls.append(1))
    assert calls == [1]


def test_a_call_that_was_forgotten_does_not_come(watcher: Watcher) -> None:
    calls: list[int] = []

    def call() -> None:
        calls.append(1)

    watcher.call_on_change(watcher.generation, call)
    watcher.forget(call)
    watcher.bump()
    assert calls == []


def test_closing_wakes_whoever_waits(watcher: Watcher) -> None:
    woken = threading.Event()

    def wait() -> None:
        watcher.wait(watcher.generation, SECONDS)
        woken.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    watcher.close()
    assert woken.wait(SECONDS)
    waiting.join()
    assert watcher.closed


def test_only_those_are_woken_whose_session_was_committed_to(sea: Sea, watcher: Watcher) -> None:
    calls: list[int] = []
    with watcher.following(1), watcher.following(2):
        assert sea.foreign.wait(SECONDS)
        until(lambda: watcher.generation > 0, SECONDS)  # the first look wakes all
        for key in (1, 2):
            watcher.call_on_change(watcher.generation, lambda key=key: calls.append(key), key)  # type: ignore[misc]
        watcher.committed([2, 3])
        assert calls == [2]
        watcher.committed()
        assert calls == [2, 1]


def test_what_others_changed_wakes_those_whose_session_it_was(sea: Sea, watcher: Watcher) -> None:
    woken = threading.Event()
    calls: list[int] = []
    with watcher.following(1), watcher.following(2):
        assert sea.foreign.wait(SECONDS)
        until(lambda: watcher.generation > 0, SECONDS)
        sea.moved = {2}
        watcher.call_on_change(watcher.generation, lambda: calls.append(1), 1)
        watcher.call_on_change(watcher.generation, woken.set, 2)
        sea.mark += 1
        assert woken.wait(SECONDS)
        assert calls == []


def test_a_session_that_moved_before_the_wait_does_not_wait(watcher: Watcher) -> None:
    with watcher.following(1):
        since = watcher.generation
        watcher.committed([1])
        watcher.wait(since, 3600, 1)
        assert watcher.has_moved(since, 1)
        assert not watcher.has_moved(watcher.generation, 1)


def test_a_thread_sleeps_through_changes_of_other_sessions(sea: Sea, watcher: Watcher) -> None:
    woken = threading.Event()
    sea.moved = set()
    with watcher.following(1), watcher.following(2):
        since = watcher.generation

        def sleep() -> None:
            watcher.wait(since, SECONDS, 1)
            woken.set()

        thread = threading.Thread(target=sleep)
        thread.start()
        for _ in range(100):
            watcher.committed([2])
        assert not woken.is_set()
        watcher.committed([1])
        assert woken.wait(SECONDS)
        thread.join()
    assert watcher._doors == {}
