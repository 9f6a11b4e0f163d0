"""A store for each test, and the command on it."""

from pathlib import Path

import pytest

from tests.cli.running import Runner
from tests.cli.sample import Sample, make_sample
from tests.printable import pytest_runtest_makereport

__all__ = ["killick", "pytest_runtest_makereport", "sample"]


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return make_sample(tmp_path / "work.db")


@pytest.fixture
def killick(
    sample: Sample, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Runner:
    monkeypatch.delenv("KILLICK_STORE", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    return Runner(sample.path, capsys)
