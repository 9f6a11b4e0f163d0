"""What all tests share: servers are ended when the last test was run."""

from tests.postgres_fixtures import _no_server_is_left

__all__ = ["_no_server_is_left"]
