"""Ids of calls in a request: each occurs once there, and every provider takes it.

Counted from the front, a later repetition never renames an earlier one. Made of a call's place, an
id does not depend on what lies before it.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

_SAFE: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}\Z")
_PLACED: Final = re.compile(r"[a-zA-Z0-9_-]{1,27}_[0-9a-f]{12}")


class CallIds:
    """Gives each call its id; `given` has the provider's own for those made of places."""

    def __init__(self, *, by_place: bool) -> None:
        self._by_place = by_place
        self._counts: dict[str, int] = {}
        self.given: dict[str, str] = {}

    def unique(self, message_id: str, call_id: str) -> str:
        given = call_id if _SAFE.match(call_id) else f"call_{_digest(call_id, 12)}"
        return self._placed(message_id, given) if self._by_place else self._counted(given)

    def _counted(self, call_id: str) -> str:
        count = self._count(call_id)
        return call_id if count == 1 else self._counted(f"{call_id[:30]}_{count}")

    def _placed(self, message_id: str, call_id: str) -> str:
        count = self._count(f"{message_id}/{call_id}")
        unique = f"{call_id[:27]}_{_digest(f'{message_id}/{call_id}/{count}', 6)}"
        self.given[unique] = call_id
        return unique

    def _count(self, name: str) -> int:
        self._counts[name] = self._counts.get(name, 0) + 1
        return self._counts[name]

    def to_given(self, sent: Iterable[str]) -> dict[str, str]:
        """Return the provider's own id for the first that has it, of all that are sent."""
        first: dict[str, str] = {}
        for placed in sent:
            first.setdefault(self.given[placed], placed)
        return {placed: given for given, placed in first.items()}


def replaced(text: str, ids: Mapping[str, str]) -> str:
    """Return a text of ours with other ids in it."""
    return _PLACED.sub(lambda match: ids.get(match[0], match[0]), text)


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()
