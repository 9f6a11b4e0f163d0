"""Wait for what has no event: a condition that is polled, with a generous limit."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = 30.0) -> T:
    """Return the first true value of the condition; fail when the time is over."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not true after {seconds} s"
        time.sleep(0.005)
    return value
