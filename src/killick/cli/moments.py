"""Times and lengths of time, as people write and read them. Pure: what time it is comes in."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_UNITS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_AGO: Final = re.compile(r"(\d{1,6})([smhdw])")


def parse_length(text: str) -> timedelta:
    """`90s`, `30m`, `12h`, `7d`, `2w`."""
    found = _AGO.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no length of time; write 30m, 12h, 7d or 2w")
    return int(found[1]) * _UNITS[found[2]]


def parse_moment(text: str, now: datetime) -> datetime:
    """A date, a time, or how long ago: `2026-11-15`, `2026-11-15T09:30`, `yesterday`, `2h`.

    One without a zone is in that of `now`.
    """
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if text == "today":
        return today
    if text == "yesterday":
        return today - timedelta(days=1)
    try:
        if _AGO.fullmatch(text.strip()):
            return now - parse_length(text)
        at = datetime.fromisoformat(text.strip())
        at = at if at.tzinfo is not None else at.replace(tzinfo=now.tzinfo)
        return at.astimezone(UTC)  # fails in the first and the last hours that there are
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{text!r} is no time; write 2026-11-15, 2026-11-15T09:30, yesterday, or 2h for "
            "two hours ago"
        ) from error


def told(at: datetime, now: datetime) -> str:
    """A time as short as it can be understood: today the hour, this year the day."""
    at = at.astimezone(now.tzinfo)
    if at.date() == now.date():
        return at.strftime("%H:%M:%S")
    if at.year == now.year:
        return at.strftime("%d %b %H:%M")
    return at.strftime("%Y-%m-%d")


def lasting(seconds: float | None) -> str:
    """A duration: `0.3 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
