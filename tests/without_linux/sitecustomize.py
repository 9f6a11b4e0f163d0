"""Take away what Linux alone has: eventfd, pidfd and /proc. macOS has none of them.

`KILLICK_WITHOUT_LINUX=1 make test-fast` runs the tests so. Children get it too: this folder is on
their path, and Python imports a module of this name when it starts. SQLite and the C library read
what they like; this is about what Killick asks for.
"""

import os
import sys
from typing import Any

_EVENTS = {"open", "os.listdir", "os.scandir"}


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _EVENTS and arguments and isinstance(arguments[0], str | os.PathLike):
        path = os.fspath(arguments[0])
        if isinstance(path, str) and (path == "/proc" or path.startswith("/proc/")):
            raise FileNotFoundError(2, "there is no /proc here", path)


def _no_descriptor(*_arguments: int) -> int:
    raise OSError(38, "there is no such call here")


def take_away() -> None:
    """Do it in this process, for as long as it lives."""
    sys.addaudithook(_refuse)
    for name in ("eventfd", "pidfd_open"):
        setattr(os, name, _no_descriptor)


if os.environ.get("KILLICK_WITHOUT_LINUX"):
    take_away()
