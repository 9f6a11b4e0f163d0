"""Wait for what has no event: a condition that is polled, with a generous limit.

Processes are asked about with ps, which Linux and macOS have alike.
"""

import subprocess
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


def processes() -> dict[int, int]:
    """Return the processes that have not ended, each with its parent; ps itself is left out."""
    command = ["ps", "-A", "-o", "pid=,ppid=,stat="]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ps:
        rows = [line.split() for line in ps.communicate()[0].splitlines()]
    found = {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}
    found.pop(ps.pid, None)
    return found


def children(parent: int) -> set[int]:
    return {pid for pid, its in processes().items() if its == parent}


def is_over(pid: int, seconds: float = 20.0) -> bool:
    """Return whether a process ends in time."""
    deadline = time.monotonic() + seconds
    while pid in processes():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def resident(pid: int) -> int:
    """Return the bytes of memory that a process holds now."""
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    return 1024 * int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
