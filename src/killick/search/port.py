"""The contract of a search index, which every database fulfils.

The index is derived from the journals and behind them: an append does not touch it. It is brought
up to date in slices, each a transaction of its own, in the order in which entries were committed;
a crash leaves it where it was.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

import msgspec

from killick.model.entries import Entry
from killick.model.sessions import Description

if TYPE_CHECKING:  # a program that does not search does not import it
    from killick.search.query import Query

Order = Literal["newest", "best"]
SLICE_ENTRIES: Final = 200
SLICE_SECONDS: Final = 0.005
"""About what one slice takes; then the next writer that waits for the lock has its turn."""

FoundRole = Literal["user", "assistant", "tool", "system", "summary"]
"""The roles of messages; and `summary` for that of a compaction."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it is found. `place` is where it began, `seq` the entry that made it so."""

    place: int
    seq: int
    at_us: int
    id: str
    turn_id: str | None
    role: FoundRole
    state: Literal["complete", "partial"]
    text: str
    reasoning: str


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """A query and its filters; None filters nothing. `query` is text for a substring."""

    tenant: str
    query: "Query | str"
    reasoning: bool = True
    session: str | None = None
    role: str | None = None
    state: str | None = None
    project: str | None = None
    interrupted: bool | None = None
    since_us: int | None = None
    until_us: int | None = None
    order: Order = "newest"
    limit: int = 20


RANKED_MAX: Final = 10_000
"""Of more matches, only so many are ranked, the newest."""


class Found(NamedTuple):
    """The session and the entry of each document, in order; how many were ranked, if not all."""

    places: list[tuple[int, int]]
    ranked: int | None = None


class Lineage(msgspec.Struct, frozen=True):
    """A session that a search is in: its entries up to `through`."""

    key: int
    through: int


class Unindexed(msgspec.Struct, frozen=True):
    """An entry that the index does not have; None for one that cannot be read."""

    place: int
    key: int
    seq: int
    entry: Entry | None


Made = Sequence[tuple[Unindexed, Document | None]]
"""Entries to be indexed, each with its document; None where there is nothing to find in it."""


class Batch(msgspec.Struct, frozen=True):
    """The entries of one slice, read before its transaction begins, which is short then.

    `mark` is how far the index is when its transaction begins, unless another process was quicker.
    """

    mark: int
    entries: Made


class SearchReader(Protocol):
    """A database that can be searched, as of one moment."""

    def index_behind(self) -> int:
        """Count the entries that the index lacks, about; 0 only for none. Raises SearchDamaged."""

    def index_mark(self) -> int:
        """Return how far the index is; it moves with every slice. Raises SearchDamaged."""

    def unindexed(self, limit: int) -> list[Unindexed]:
        """Return the next entries that the index lacks, in the order of their commits."""

    def has_substrings(self) -> bool:
        """Return True if this store can be searched for parts of words."""

    def find_documents(self, search: Search, lineage: Sequence[Lineage] | None) -> Found:
        """Return the documents in order. Raises SearchDamaged."""


class SearchedSession(Protocol):
    """A session's row, as far as a search reads it; a fork begins with the entries of `base`."""

    key: int
    id: str
    head: int
    base: int | None
    base_seq: int
    about: Description


class SearchedJournal(SearchReader, Protocol):
    """Reads journals and the index as of one moment."""

    def find_session(self, tenant: str, session_id: str) -> SearchedSession | None: ...
    def session(self, key: int) -> SearchedSession | None: ...
    def find_entry(self, key: int, identity: str) -> Entry | None: ...
    def marked_entries(self, key: int, mark: int, *, after: int = 0) -> list[Entry]: ...
    def entries(
        self, key: int, *, after: int = 0, through: int | None = None, limit: int | None = None
    ) -> list[Entry]: ...


class SearchTransaction(SearchReader, Protocol):
    """A database that can be indexed."""

    def put_document(self, key: int, document: Document) -> None:
        """Index a document in place of one with the same place, unless its entry was erased."""

    def take_slice(self, batch: Batch) -> Made:
        """Return what of this the index still lacks and no other process indexes meanwhile."""

    def index_reached(self, done: Sequence[Unindexed]) -> None:
        """Move the mark behind these, which come in the order in which they were found."""

    def reset_index(self, *, substrings: bool | None, forget: bool = False) -> None:
        """Empty the index; all entries are then unindexed.

        Raises SearchDamaged if it is too damaged to be taken apart: then `forget` it, in another
        transaction.
        """

    def index_is_damaged(self, reason: str) -> None:
        """Remember that the index must not be used until it is rebuilt."""
