"""When the writer folds streams out of the rows that they share."""

import logging
from pathlib import Path

import pytest

from killick.errors import StoreDegraded
from killick.stores import writer
from killick.stores.sqlite import packs
from killick.stores.writer import FoldSchedule
from tests.unit.stores.sqlite.test_packs import Crowd
from tests.waiting import until


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_fold_begins_when_streams_have_shared_rows_for_a_while() -> None:
    clock = Clock()
    schedule = FoldSchedule(unfolded=False, clock=clock)
    schedule.wrote(unfolded=False)
    assert schedule.due is None
    schedule.wrote(unfolded=True)
    clock.now += 1.9
    schedule.wrote(unfolded=True)
    assert not schedule.is_due(flushing=True)
    clock.now += 0.2
    assert schedule.is_due(flushing=False)


def test_its_steps_go_with_flushes_or_come_alone() -> None:
    clock = Clock()
    schedule = FoldSchedule(unfolded=True, clock=clock)
    clock.now += 2.1
    schedule.folded(more=True)
    assert schedule.is_due(flushing=True)
    assert not schedule.is_due(flushing=False)
    clock.now += 0.2
    assert schedule.is_due(flushing=False)
    schedule.folded(more=False)
    assert not schedule.is_due(flushing=True)
    assert schedule.due == clock.now + 2.0


def test_a_commit_that_did_not_look_changes_nothing() -> None:
    """As when another process has written since."""
    schedule = FoldSchedule(unfolded=True, clock=Clock())
    schedule.wrote(unfolded=None)
    assert schedule.due is not None
    schedule.wrote(unfolded=False)
    assert schedule.due is None


def test_a_fold_that_fails_holds_nothing_up_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer, "_FOLD_SECONDS", 0.02)
    monkeypatch.setattr(writer, "_FOLD_RETRY_SECONDS", 0.05)
    fold, failures = packs.SqliteFlushes._fold, 3

    def failing(*args: object) -> int:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise StoreDegraded("injected")
        return fold(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(packs.SqliteFlushes, "_fold", failing)
    with caplog.at_level(logging.WARNING, "killick"):
        crowd = Crowd(tmp_path / "store.db")
        for number in range(5):
            crowd.say(f"number {number}")
        until(lambda: failures < 0 and crowd.rows()[0] == 0)
        crowd.check()
        crowd.store.close()
    assert "streams could not be folded" in caplog.text
