"""For all tests: the same random examples in every run, and servers ended after the last test."""

from hypothesis import settings

from tests.postgres_fixtures import _no_server_is_left

__all__ = ["_no_server_is_left"]

# A run of the tests draws the same examples every time; what a new seed finds is kept as an
# `@example` or as a test of its own. `make torture` draws new ones: `--hypothesis-profile=explore`.
settings.register_profile("fixed", derandomize=True)
settings.register_profile("explore", derandomize=False, print_blob=True)
settings.load_profile("fixed")
