"""Times as other programs write them."""

from datetime import UTC, datetime
from typing import Final

from killick.model.sessions import microseconds
from killick.session.importing import EARLIEST_US, LATEST_US

_SECONDS_MAX: Final = 10**11
_MILLISECONDS_MAX: Final = 10**14


def time_us(value: object) -> int | None:
    """Microseconds since 1970, of an ISO text or of a number of seconds, ms or µs; None for none.

    A text without a zone is taken as UTC, as SQLite writes it.
    """
    if isinstance(value, str):
        return _iso_us(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    size = abs(value)
    scales = ((_SECONDS_MAX, 1_000_000), (_MILLISECONDS_MAX, 1_000), (1 << 62, 1))
    scale = next((scale for most, scale in scales if size < most), 0)
    return _bounded(int(value * scale)) if scale else None


def _iso_us(text: str) -> int | None:
    try:
        at = datetime.fromisoformat(text)
        return _bounded(microseconds(at if at.tzinfo is not None else at.replace(tzinfo=UTC)))
    except (ValueError, OverflowError):
        return None


def _bounded(at_us: int) -> int | None:
    return at_us if EARLIEST_US <= at_us <= LATEST_US else None
