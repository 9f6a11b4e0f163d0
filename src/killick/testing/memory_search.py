"""Searching a store without an index, by reading all of it: what every index is compared with."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from killick.journal.documents import Document, document
from killick.journal.queries import Phrase, holds, occurs, phrases
from killick.journal.words import unbroken, words
from killick.model.entries import Entry
from killick.stores.base import SessionRow
from killick.stores.indexed import Batch, Lineage, Made, Search, Unindexed


class MemorySearch:
    """Finds what is there now. There is no index, so it is never behind and never damaged."""

    _disk: Any
    find_entry: Callable[[int, str], Entry | None]
    _entry: Callable[[int, int], Entry]

    def index_behind(self) -> int:
        return 0

    def index_mark(self) -> int:
        return 0

    def has_substrings(self) -> bool:
        return True

    def find_documents(
        self, search: Search, lineage: Sequence[Lineage] | None
    ) -> list[tuple[int, int]]:
        found = [
            (key, made)
            for key, made in self._documents()
            if _is_among(self._disk.rows[key], made, search, key, lineage)
            and _matches(made, search)
        ]
        found.reverse()
        if search.order == "best":
            found.sort(key=lambda one: -_worth(one[1], search))
        return [(key, made.seq) for key, made in found[: search.limit]]

    def _documents(self) -> Iterator[tuple[int, Document]]:
        """One for each place, in the order in which they were first made."""
        made: dict[tuple[int, int], Document] = {}
        for key, seq in self._disk.order:
            one = document(self._entry(key, seq), lambda name, key=key: self.find_entry(key, name))  # type: ignore[misc]
            if one is not None and (one.text or one.reasoning):
                made[key, one.place] = one
        return ((key, one) for (key, _), one in made.items())

    # -- there is nothing to keep up -----------------------------------------------------------

    def unindexed(self, limit: int) -> list[Unindexed]:
        return []

    def put_document(self, key: int, document: Document) -> None:
        """Found by reading."""

    def take_slice(self, batch: Batch) -> Made:
        return ()

    def index_reached(self, done: Sequence[Unindexed]) -> None:
        """There is no mark."""

    def unindex(self, key: int) -> None:
        """What is not on the disk is not found."""

    def tidy_index(self) -> None:
        """Nothing is left behind."""

    def reset_index(self, *, substrings: bool | None, forget: bool = False) -> None:
        """There is nothing to begin anew."""

    def index_is_damaged(self, reason: str) -> None:
        """There is nothing that could be."""


def _is_among(
    row: SessionRow, made: Document, search: Search, key: int, lineage: Sequence[Lineage] | None
) -> bool:
    about = row.about
    if lineage is not None:
        among = any(one.key == key and made.seq <= one.through for one in lineage)
    else:
        among = row.tenant == search.tenant and not about.deleted
    return (
        among
        and search.role in (None, made.role)
        and search.state in (None, made.state)
        and search.project in (None, about.project and about.project.root)
        and search.interrupted in (None, about.status == "interrupted")
        and (search.since_us is None or made.at_us >= search.since_us)
        and (search.until_us is None or made.at_us < search.until_us)
    )


def _texts(made: Document, search: Search) -> list[str]:
    return [made.text, made.reasoning] if search.reasoning else [made.text]


def _matches(made: Document, search: Search) -> bool:
    texts = _texts(made, search)
    query = search.query
    if isinstance(query, str):
        return any(query in unbroken(text) for text in texts)
    lists = [[word.text for word in words(text)] for text in texts]
    return holds(query, lambda wanted: any(_times(wanted, found) for found in lists))


def _times(wanted: Phrase, found: Sequence[str]) -> int:
    return sum(occurs(wanted, found, at) for at in range(len(found)))


def _worth(made: Document, search: Search) -> float:
    """How well a document fits, roughly: how much of it is what was looked for."""
    query = search.query
    lists = [[word.text for word in words(text)] for text in _texts(made, search)]
    if isinstance(query, str):
        return 0.0
    times = sum(_times(wanted, found) for wanted in phrases(query) for found in lists)
    return times / (1 + sum(map(len, lists)))
