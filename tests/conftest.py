"""For all tests: the same random examples in every run, and servers ended after the last test.

With `KILLICK_WITHOUT_LINUX=1` what Linux alone has is taken away, here and in every child.
"""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.postgres_fixtures import _no_server_is_left
from tests.without_linux import sitecustomize

__all__ = ["_no_server_is_left"]

# A run of the tests draws the same examples every time; what a new seed finds is kept as an
# `@example` or as a test of its own. `make torture` draws new ones: `--hypothesis-profile=explore`.
settings.register_profile("fixed", derandomize=True)
settings.register_profile("explore", derandomize=False, print_blob=True)
settings.load_profile("fixed")

_TESTS = Path(__file__).parent
_LONG = {
    *("acp", "adapters", "agent", "browser", "compat", "docs", "growth", "interrupt", "lab"),
    *("museum", "mutate", "postgres", "property", "proxy", "recall", "recorders", "server"),
    *("tidy", "torture", "conformance/test_postgres.py", "crash/test_restoring_killed.py"),
    *("exchange/test_damage.py", "exchange/test_native.py", "exchange/test_own.py"),
    *("exchange/test_scale.py", "exchange/test_shelf.py", "views/test_pydantic_ai.py"),
    *("cli/test_attach.py", "cli/test_terminal.py"),
}
"""Servers, browsers, agents, documents, planted bugs. `make test-all` runs them, and PostgreSQL."""
_WITHOUT = "not slow"

_ON_LINUX = sys.platform == "linux" and not os.environ.get("KILLICK_WITHOUT_LINUX")
if os.environ.get("KILLICK_WITHOUT_LINUX"):
    os.environ["PYTHONPATH"] = str(Path(sitecustomize.__file__).parent)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what would be collected to be left out: importing it takes each worker seconds."""
    inside = collection_path.is_relative_to(_TESTS) and collection_path != _TESTS
    if _WITHOUT in config.getoption("markexpr") and inside and _is_long(collection_path):
        return True
    return None


def _is_long(path: Path) -> bool:
    place = path.relative_to(_TESTS)
    return not _LONG.isdisjoint({place.parts[0], place.as_posix()})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs Linux where it is not; docs/platforms.md says what is tested instead.

    Mark the tests of long folders. A property test tries many examples: on a busy machine it needs
    more than a minute.
    """
    for item in items:
        tries_many = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if tries_many and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(300))
        if "postgres" in item.name or _is_long(item.path):
            item.add_marker(pytest.mark.slow)
        if not _ON_LINUX and item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason="needs eventfd, pidfd or /proc"))
