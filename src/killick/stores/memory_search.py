"""Searching the store in memory: every message is looked at, each time."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from killick.model.entries import Entry
from killick.search import port
from killick.search.documents import document
from killick.search.port import Batch, Document, Found, Lineage, Made, Search, Unindexed
from killick.search.query import Phrase, holds, occurs, phrases
from killick.search.words import unbroken, words
from killick.stores.contract import SessionRow


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

    def find_documents(self, search: Search, lineage: Sequence[Lineage] | None) -> Found:
        hits = [
            (key, made)
            for key, made in self._documents()
            if _is_among(self._disk.rows[key], made, search, key, lineage)
            and _matches(made, search)
        ]
        hits.reverse()
        ranked = None
        if search.order == "best":
            ranked = port.RANKED_MAX if len(hits) > port.RANKED_MAX else None
            hits = sorted(hits[:ranked], key=lambda hit: -_worth(hit[1], search))
        return Found([(key, made.seq) for key, made in hits[: search.limit]], ranked)

    def _documents(self) -> Iterator[tuple[int, Document]]:
        """Yield one document for each place, in the order in which they were first made."""
        made: dict[tuple[int, int], Document] = {}
        for key, seq in self._disk.order:
            found_by = partial(self.find_entry, key)
            doc = document(self._entry(key, seq), found_by)
            if doc is not None and (doc.text or doc.reasoning):
                made[key, doc.place] = doc
        return ((key, doc) for (key, _), doc in made.items())

    # -- there is nothing to keep up -----------------------------------------------------------

    def unindexed(self, limit: int) -> list[Unindexed]:
        return []

    def put_document(self, key: int, document: Document) -> None:
        """Do nothing: documents are found by reading."""

    def take_slice(self, batch: Batch) -> Made:
        return ()

    def index_reached(self, done: Sequence[Unindexed]) -> None:
        """Do nothing: there is no mark."""

    def reset_index(self, *, substrings: bool | None, forget: bool = False) -> None:
        """Do nothing: there is no index."""

    def index_is_damaged(self, reason: str) -> None:
        """Do nothing: there is no index."""


def _is_among(
    row: SessionRow, made: Document, search: Search, key: int, lineage: Sequence[Lineage] | None
) -> bool:
    about = row.about
    if lineage is not None:
        among = any(line.key == key and made.seq <= line.through for line in lineage)
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
    return holds(query, lambda wanted: any(_times(wanted, texts) for texts in lists))


def _times(wanted: Phrase, text: Sequence[str]) -> int:
    return sum(occurs(wanted, text, at) for at in range(len(text)))


def _worth(made: Document, search: Search) -> float:
    """Rate a document roughly: how much of it is what was looked for."""
    query = search.query
    lists = [[word.text for word in words(text)] for text in _texts(made, search)]
    if isinstance(query, str):
        return 0.0
    times = sum(_times(wanted, text) for wanted in phrases(query) for text in lists)
    return times / (1 + sum(map(len, lists)))
