"""Pieces of what was said, as they stand in a file: to look for what should be gone."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from killick.journal.codec import encode
from killick.model import entries as e

FRAGMENTS_MAX: Final = 64
"""Each costs one pass over the file."""

_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]{12,48}')
"""What JSON writes as it is, long enough to be told from anything else."""


def fragments(bodies: Iterable[e.Body], blobs: Iterable[bytes] = ()) -> list[bytes]:
    """Pieces of these entries' texts and of blobs, evenly spread, and every one only once."""
    found = list(dict.fromkeys([*_of_texts(bodies), *_of_blobs(blobs)]))
    step = max(1, -(-len(found) // FRAGMENTS_MAX))
    return found[::step]


def _of_texts(bodies: Iterable[e.Body]) -> Iterator[bytes]:
    for body in bodies:
        if isinstance(body, e.Unknown):
            continue
        for text in _texts(msgspec.to_builtins(body)):
            pieces = _PLAIN.findall(encode(text))
            yield from pieces[:1]
            yield from pieces[-1:]


def _texts(value: Any) -> Iterator[str]:
    """Every text that somebody wrote; kinds, ids and hashes are ours."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, str):
                if name in _WRITTEN:
                    yield inner
            else:
                yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


_WRITTEN: Final = frozenset(
    {"text", "arguments", "content", "output", "summary", "title", "data", "detail"}
)


def _of_blobs(blobs: Iterable[bytes]) -> Iterator[bytes]:
    for data in blobs:
        middle = len(data) // 2
        piece = data[middle : middle + 32] if len(data) > 64 else data[:32]
        if len(piece) >= 12 and len(set(piece)) > 4:
            yield piece
