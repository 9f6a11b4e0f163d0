"""Views are made without the garbage collector, which is as it was afterwards."""

import gc
from pathlib import Path

import pytest

from killick import Store


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_as_it_was(tmp_path: Path, on: bool) -> None:
    was_on = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        with Store(tmp_path / "work.db") as store:
            session = store.create_session()
            session.context("anthropic")
            assert gc.isenabled() is on
            with pytest.raises(ValueError, match="format"):
                session.context("unknown")  # type: ignore[arg-type]
            assert gc.isenabled() is on
    finally:
        (gc.enable if was_on else gc.disable)()
