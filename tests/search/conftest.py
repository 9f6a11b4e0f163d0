"""Processes of their own for the tests that need them."""

from tests.crash.conftest import _one_nursery, nursery

__all__ = ["_one_nursery", "nursery"]
