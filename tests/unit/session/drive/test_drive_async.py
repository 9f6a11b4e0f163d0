"""Which event loop runs here."""

import sys
from types import ModuleType

import pytest

from killick.session.drive.drive_async import in_trio
from killick.session.drive.exit_guard import ending


def test_a_trio_that_is_being_imported_does_not_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """By another thread: its modules are there already, and empty."""
    for name in ("trio", "trio.lowlevel"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert not in_trio()
    assert ending("turn", ValueError("no")).status == "failed"
