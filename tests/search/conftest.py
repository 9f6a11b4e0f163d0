"""Processes of their own for the tests that need them, and patience for all."""

import pytest

from tests.crash.conftest import _one_nursery, nursery

__all__ = ["_one_nursery", "nursery", "patience"]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may be busy: a search waits until the index has caught up, unless a test says."""
    monkeypatch.setattr("killick.session.core.queries.WAIT_SECONDS", 60)
