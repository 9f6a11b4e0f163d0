"""Text and descriptions as both databases keep them in a row."""

from killick.journal.codec import decode, to_bytes
from killick.model.sessions import Description


def as_bytes(text: str | None) -> bytes | None:
    return None if text is None else to_bytes(text)


def folded(title: str | None) -> bytes | None:
    """A title as it is searched: without regard to case."""
    return None if title is None else to_bytes(title.casefold())


def shown(about: bytes) -> Description:
    """A damaged session is listed all the same, and says so when it is opened."""
    try:
        return decode(about, Description)
    except ValueError:
        return Description(extra={"damaged": True})
