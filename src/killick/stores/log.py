"""Log for an operator, on threads that no error of a handler may end."""

import contextlib
import logging
from typing import Final

_LOG: Final = logging.getLogger("killick")


def log(level: int, message: str, **fields: object) -> None:
    """Log a constant message with fields. The error of a program's own handler is passed over.

    Raised on the writer thread, or on the one that renews the lease, it would end the store.
    """
    with contextlib.suppress(Exception):
        _LOG.log(level, message, extra=fields, stacklevel=2)
