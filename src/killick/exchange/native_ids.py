"""The ids that sessions have with other agents: made here, and known again when they come back."""

from typing import Final

from killick.journal.kinds import digest

_CHECK_BITS: Final = 12
_MARK_BITS: Final = 18
_NAME_BITS: Final = 44


def mint(session_id: str, through: int, at_us: int) -> str:
    """Return the id that a session has with another agent: a UUID of version 7.

    It is made of the session's id and of the last entry that was handed over, so the same is found
    again, and `could_be` knows it from those that agents make themselves.
    """
    tail = _name_bits(session_id) << _MARK_BITS | through & (1 << _MARK_BITS) - 1
    time_ms = max(at_us, 0) // 1_000 & (1 << 48) - 1
    return as_uuid(time_ms << 80 | 7 << 76 | _check(tail) << 64 | 2 << 62 | tail)


def could_be(native_id: str, session_id: str) -> bool:
    """Tell whether an agent's id was made of the session's."""
    tail = _tail(native_id)
    return tail is not None and tail >> _MARK_BITS == _name_bits(session_id)


def is_minted(native_id: str) -> bool:
    """Tell whether an agent's id looks as if it was made here; one in 4,096 others does too."""
    return _tail(native_id) is not None


def _tail(native_id: str) -> int | None:
    text = native_id.removeprefix("ses_").replace("-", "")
    try:
        value = int(text, 16) if len(text) == 32 else -1
    except ValueError:
        return None
    tail = value & (1 << 62) - 1
    minted = value >= 0 and value >> 76 & 0xF in (4, 7) and value >> 64 & 0xFFF == _check(tail)
    return tail if minted else None


def _name_bits(session_id: str) -> int:
    name = session_id.encode("utf-8", "surrogatepass")
    return int(digest(name)[-16:], 16) & (1 << _NAME_BITS) - 1


def _check(tail: int) -> int:
    return int(digest(f"killick/{tail}".encode())[-8:], 16) & (1 << _CHECK_BITS) - 1


def as_uuid(value: int) -> str:
    """Return a number as a UUID of the usual variant."""
    text = f"{value & (1 << 128) - 1 & ~(3 << 62) | 2 << 62:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
