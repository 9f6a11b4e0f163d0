"""Which names have come by, in little memory: a journal may have millions of them."""

from array import array
from bisect import bisect_left
from hashlib import blake2b
from itertools import chain
from typing import Final

_RECENT: Final = 1 << 16
_RUN: Final = 1 << 19
"""Larger runs are not merged any more: merging takes memory of its own."""


def hashed(name: str) -> int:
    """A number for a name; that two names share one is less likely than a broken disk."""
    data = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(data, "big")


class Seen:
    """A set of such numbers that only grows: the newest as a set, the rest in sorted runs."""

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._runs: list[array[int]] = []

    def __contains__(self, number: int) -> bool:
        return number in self._recent or any(_has(run, number) for run in self._runs)

    def add(self, number: int) -> None:
        self._recent.add(number)
        if len(self._recent) >= _RECENT:
            self._fold()

    def _fold(self) -> None:
        run = array("Q", sorted(self._recent))
        self._recent = set()
        while self._runs and len(self._runs[-1]) <= len(run) < _RUN:
            run = array("Q", sorted(chain(self._runs.pop(), run)))
        self._runs.append(run)


def _has(run: "array[int]", number: int) -> bool:
    at = bisect_left(run, number)
    return at < len(run) and run[at] == number
