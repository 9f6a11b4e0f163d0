"""Time and ids, which everything else is given."""

import time
from collections.abc import Callable
from typing import Literal

import uuid_utils

Clock = Callable[[], int]
"""Microseconds since 1970. Recorded with every entry, never used to order anything."""

Prefix = Literal["ses", "turn", "msg", "call", "ent", "queue"]
IdSource = Callable[[Prefix], str]
"""A new id: unique for ever, and ascending, so that indexes grow at their end."""


def system_clock() -> int:
    return time.time_ns() // 1_000


def random_ids(prefix: Prefix) -> str:
    return f"{prefix}_{uuid_utils.uuid7().hex}"
