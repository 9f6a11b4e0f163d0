"""Every bound of the record, by name. What is over one is refused, never cut."""

from typing import Final

PARTS_MAX: Final = 4_096
"""Parts in one message."""

BODY_BYTES_MAX: Final = 256 * 1024 * 1024
"""One entry's encoded body, or one blob."""

BODY_BYTES_INLINE: Final = 1024 * 1024
"""A larger body is written in a transaction of its own, before its entry."""

ID_BYTES_MAX: Final = 1_024
"""An id or key that comes from outside."""

JSON_DEPTH_MAX: Final = 100
OPAQUE_DEPTH_MAX: Final = 500
"""Levels of notes, settings and other data of an application."""

TITLE_CHARS_MAX: Final = 1_000

TAG_CHARS_MAX: Final = 100

TAGS_MAX: Final = 100
"""Tags on one session."""

TOKENS_MAX: Final = 2**40
"""Tokens of one model call: a count that is larger is a mistake, and sums of them must fit."""

STREAM_BUFFER_BYTES: Final = 1024 * 1024
"""Text of one open stream that waits for the disk."""

FLUSH_BYTES: Final = 4 * 1024
"""A stream with this much waiting is flushed at once."""

WINDOW_SECONDS: Final = 0.050
"""A delta is durable within this time."""

LOCK_WAIT_SECONDS: Final = 30.0
"""How long a write waits for the lock of another process."""

LEASE_SECONDS: Final = 10.0
"""How long a host that cannot reach its server keeps the right to run its turns."""

RECONNECT_SECONDS: Final = 10.0
"""How long a server that cannot be reached is tried again before the caller is told."""

ANSWER_SECONDS: Final = 30.0
"""How long a server that is connected may say nothing while a caller waits for its answer."""

EARLIEST_US: Final = -62_135_596_800_000_000
LATEST_US: Final = 253_402_300_799_999_999
"""The years 1 to 9999, in microseconds from 1970: what a time can be shown as."""

WORK_MAX: Final = 1_000
"""Pieces of due work that one call takes at most."""

LEASE_SECONDS_MAX: Final = 86_400.0
"""For how long work that was taken and not begun is kept from others at most."""
