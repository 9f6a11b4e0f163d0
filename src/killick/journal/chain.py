"""The chain of a session: one link for each entry, each made of the link before it.

Rule 1: a link is SHA-256 over the link before, the hash of the stored body, and a text: seq, time,
        the lengths of the next two, the session's id, the entry's kind, its identity.
Rule 2: the hash of a body is the one that names a blob, so a large body is not hashed twice, and a
        copy that leaves words out can still show the links by naming the hashes.
Rule 3: the first entry of a chain follows on 32 zero bytes; a fork's first on its parent's link.
Rule 4: a link is made when its entry is written, and kept when the entry is copied.

A program that can write the rows can make a new chain. `verify --expect` compares with links that
were kept elsewhere.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b, sha256
from typing import Final

import msgspec

from killick.journal.codec import CodecError, decode_body
from killick.journal.kinds import identity, identity_names, lookup_class
from killick.model import entries as e

LINK_BYTES: Final = 32
_BEGIN: Final = bytes(LINK_BYTES)
_NOTHING_HASHED: Final = sha256()
"""Copied for each link: OpenSSL looks its SHA-256 up for a new one."""


class LinkedEntry(e.Entry, frozen=True, gc=False):
    """An entry with its link and the one that it follows on; None where there is none."""

    before: bytes | None = None
    link: bytes | None = None


class StoredEntry(msgspec.Struct, frozen=True):
    """A row of a journal as it lies there, and what its database finds wrong with it by itself."""

    seq: int
    at_us: int
    body: bytes
    link: bytes | None
    wrong: str | None = None


def body_hash(data: bytes) -> bytes:
    """Return the hash of a body; `kinds.digest` names a blob by the same."""
    return blake2b(data, digest_size=32).digest()


def link_of(
    before: bytes | None,
    session_id: str,
    seq: int,
    at_us: int,
    kind: str,
    name: str,
    hashed: bytes,
) -> bytes:
    """Return the link of an entry; `name` is its identity, `hashed` the hash of its body."""
    text = f"{seq} {at_us} {len(session_id)} {len(kind)} {session_id}{kind}{name}"
    data = text.encode("utf-8", "surrogatepass")
    link = _NOTHING_HASHED.copy()
    link.update((before or _BEGIN) + hashed + data)
    return link.digest()


def matches(
    link: bytes,
    before: bytes | None,
    session_ids: Iterable[str],
    entry: e.Entry,
    hashed: bytes,
    data: bytes,
) -> bool:
    """Tell whether a link is the one of this entry, in a session of one of these ids."""
    names = identity_names(entry.body, data)
    return any(
        link_of(before, session_id, entry.seq, entry.at_us, entry.kind, name, hashed) == link
        for name in names
        for session_id in session_ids
    )


def wrong_row(
    body: bytes | None, crc: int, mark: int | None, is_key: Callable[[str], bool]
) -> str | None:
    """Return what is wrong with a row whatever its link; `is_key` compares the key it has."""
    if body is None:
        return "its body is missing"
    if zlib.crc32(body) != crc:
        return "its checksum does not match"
    try:
        decoded = decode_body(body)
    except CodecError as error:
        return str(error)
    if is_key(identity(decoded)):
        lookup = lookup_class(decoded)
    elif any(map(is_key, identity_names(decoded, body))):
        lookup = None
    else:
        return "the key that it is stored under is not its own"
    return None if mark == lookup else "the mark that it is found by is not its own"


class ChainCheck:
    """Follows a chain from entry to entry and says where it breaks.

    `before` is the link that the first entry follows on: None, or a fork's parent's.
    """

    def __init__(self, session_ids: Iterable[str], before: bytes | None, after: int) -> None:
        self._session_ids = tuple(session_ids)
        self._before = before
        self.seq = after
        self.linked = 0
        self.unlinked = 0

    @property
    def newest(self) -> bytes | None:
        return self._before

    def follow(self, stored: StoredEntry) -> Iterator[tuple[int, str]]:
        """Yield what is wrong at the next entry, each with its seq."""
        expected = self.seq + 1
        gap = stored.seq != expected
        if stored.seq > expected:
            gone = (
                f"entries {expected} to {stored.seq - 1} are"
                if stored.seq > expected + 1
                else (f"entry {expected} is")
            )
            yield expected, f"{gone} missing"
        elif gap:
            yield stored.seq, f"entry {stored.seq} stands where {expected} should"
        self.seq = stored.seq
        if stored.wrong is not None:
            yield stored.seq, stored.wrong
        elif not gap:
            yield from self._check(stored)
        if stored.link is None:
            self.unlinked += 1
        else:
            self.linked += 1
        self._before = stored.link

    def _check(self, stored: StoredEntry) -> Iterator[tuple[int, str]]:
        if stored.link is None:
            if self._before is not None:
                yield stored.seq, "it has no link, and the entry before it has one"
            return
        try:
            entry = e.Entry(stored.seq, stored.at_us, decode_body(stored.body))
        except CodecError as error:
            yield stored.seq, str(error)
            return
        hashed = body_hash(stored.body)
        if not matches(stored.link, self._before, self._session_ids, entry, hashed, stored.body):
            yield stored.seq, "its link does not fit: it was changed, or what it follows on was"

    def end(self, newest: bytes | None, head: int | None = None) -> Iterator[tuple[int, str]]:
        """Yield what is wrong with the end, given the newest link and seq that the row names."""
        if head is not None and head != self.seq:
            yield self.seq + 1, f"the journal ends at {self.seq}, and its session's row says {head}"
        elif newest != self._before:
            yield (
                self.seq + 1,
                f"the newest link of its session is not that of entry {self.seq}: the end was cut "
                "off, or added to",
            )
