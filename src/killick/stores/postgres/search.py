"""The search index in PostgreSQL: words in tsvectors, documents by place beside them.

The words come cut and folded, as in every store, so no dictionary and no parser of PostgreSQL's
has a say in what is found. Each session has its own mark of how far it is indexed.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from killick.errors import InvalidQuery, SearchDamaged
from killick.journal.codec import CodecError, decode_body, to_bytes
from killick.model.entries import Entry
from killick.search.port import Batch, Document, Lineage, Made, Search, Unindexed
from killick.search.query import Either, Every, Phrase, Query, phrases
from killick.search.words import indexed, unbroken
from killick.stores.postgres.keys import columns, join, of, split, tenant_number
from killick.stores.postgres.schema import PostgresQueries

ROLES: Final = ("user", "assistant", "tool", "system", "summary")
_SESSIONS: Final = 64
"""Sessions that one slice is about, at most."""

_BATCH_BYTES: Final = 4 * 1024 * 1024
_PIECE_WORDS: Final = 2_000
_OVERLAP_WORDS: Final = 16
"""What a piece repeats of the one before it: phrases up to this length are found across the cut."""


class PostgresSearch:
    """Searching, on a connection that somebody else has opened."""

    _sql: PostgresQueries

    def fetch(self, sql: str, bindings: dict[str, Any] | None = None) -> list[Any]:
        raise NotImplementedError

    def whole_body(self, key: int, crc: int, body: bytes, blob: bytes | None) -> bytes:
        raise NotImplementedError

    def index_behind(self) -> int:
        self._search_state()
        behind: int = self.fetch(self._sql.index_behind)[0][0]
        return behind

    def index_mark(self) -> int:
        """Every session has a mark of its own; `take_slice` looks at those."""
        self._search_state()
        return 0

    def has_substrings(self) -> bool:
        return self._search_state()

    def _search_state(self) -> bool:
        found = self.fetch(self._sql.search_state)
        if not found:
            raise SearchDamaged(f"the search index has lost its state; {REBUILD}")
        substrings, damage = found[0]
        if damage is not None:
            raise SearchDamaged(f"the search index is damaged: {damage}; {REBUILD}")
        return bool(substrings)

    def unindexed(self, limit: int) -> list[Unindexed]:
        found: list[Unindexed] = []
        size = 0
        for tenant, session, after in self.fetch(
            self._sql.unindexed_sessions, {"limit": min(limit, _SESSIONS)}
        ):
            key, left = join(tenant, session), limit - len(found)
            if left <= 0 or size > _BATCH_BYTES:
                break
            wanted = of(key, after=after, through=2**62, limit=left)
            for row in self.fetch(self._sql.entries, wanted):
                found.append(Unindexed(len(found), key, row[0], self._readable(key, *row)))
                size += len(row[3])
        return found

    def _readable(
        self, key: int, seq: int, at_us: int, crc: int, body: bytes, blob: bytes | None
    ) -> Entry | None:
        try:
            return Entry(seq, at_us, decode_body(self.whole_body(key, crc, body, blob)))
        except CodecError:
            return None  # whoever reads the session is told

    def find_documents(
        self, search: Search, lineage: Sequence[Lineage] | None
    ) -> list[tuple[int, int]]:
        if isinstance(search.query, str) and not self.has_substrings():
            raise InvalidQuery(
                "this store has no index of parts of words; make one with "
                "store.rebuild_search(substrings=True), or search for word*"
            )
        bindings = {**_filters(search), "lineage": None, "reach": None}
        tenant = bindings["tenant"]
        if lineage is not None:
            bindings["lineage"] = [split(one.key)[1] for one in lineage]
            bindings["reach"] = [one.through for one in lineage]
        condition = self._condition(search.query, bindings)
        sql: str = self._sql.search_newest.replace("MATCH", condition)
        if search.order == "best" and not isinstance(search.query, str):
            leaves = [_as_tsquery(one) for one in phrases(search.query)]
            bindings["any"] = " | ".join(f"({leaf})" for leaf in leaves)
            sql = sql.replace("ORDER BY ", f"ORDER BY {self._sql.rank} ")
        return [(join(tenant, session), seq) for session, seq in self.fetch(sql, bindings)]

    def _condition(self, query: Query | str, bindings: dict[str, Any]) -> str:
        """What a document must hold: each phrase is looked for in all of its pieces."""
        match query:
            case Every():
                wanted = [self._condition(one, bindings) for one in query.wanted]
                unwanted = [f"NOT {self._condition(one, bindings)}" for one in query.unwanted]
                return f"({' AND '.join([*wanted, *unwanted])})"
            case Either():
                return f"({' OR '.join(self._condition(one, bindings) for one in query.choices)})"
            case Phrase():
                return self._leaf(self._sql.match_words, _as_tsquery(query), bindings)
            case _:
                return self._leaf(self._sql.match_substring, _as_pattern(query), bindings)

    def _leaf(self, sql: str, wanted: str, bindings: dict[str, Any]) -> str:
        name = f"leaf{len(bindings)}"
        bindings[name] = wanted
        return sql.replace("LEAF", name)


class PostgresIndex(PostgresSearch):
    """Indexing, inside of a transaction that writes."""

    writes: int
    documents: dict[tuple[int, int], tuple[int, Document]]

    def send(self, sql: str, bindings: dict[str, Any] | None = None) -> None:
        """A statement whose result nobody waits for."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send what waits."""
        raise NotImplementedError

    def take_time(self) -> None:
        """What follows may take as long as it takes."""
        raise NotImplementedError

    def take_slice(self, batch: Batch) -> Made:
        """Whoever locks these rows first indexes them; what somebody else has is left to later."""
        first: dict[int, int] = {}
        for one, _ in batch.entries:
            first.setdefault(one.key, one.seq)
        rows = self.fetch(self._sql.lock_index, columns(sorted(first)))
        ours = {
            key for key, at in ((join(*row[:2]), row[2]) for row in rows) if first[key] == at + 1
        }
        return [made for made in batch.entries if made[0].key in ours]

    def put_document(self, key: int, document: Document) -> None:
        """Gathered: a slice is written with a few statements, however many documents it has."""
        earlier = self.documents.get((key, document.place))
        first = document.at_us if earlier is None else earlier[0]
        self.documents[key, document.place] = (first, document)

    def _put_documents(self) -> None:
        if not self.documents:
            return
        substrings = self._search_state()
        rows, words, parts = [], [], []
        for (key, place), (first, made) in self.documents.items():
            where = (*split(key), place)
            role, partial = ROLES.index(made.role), made.state == "partial"
            rows.append((*where, made.seq, first, made.at_us, role, partial))
            for reasoning, text in ((False, made.text), (True, made.reasoning)):
                for piece, vector in enumerate(_pieces(indexed(text).split())):
                    words.append((*where, reasoning, piece, vector))
                if substrings and text:
                    parts.append((*where, reasoning, unbroken(text)))
        self.documents.clear()
        self.send(self._sql.put_documents, _named(rows, _DOCUMENT))
        self.send(self._sql.drop_words, _named(rows, _DOCUMENT))
        for sql, found, names in (
            (self._sql.put_words, words, _WORDS),
            (self._sql.put_substrings, parts, _PARTS),
        ):
            if found:
                self.send(sql, _named(found, names))

    def index_reached(self, done: Sequence[Unindexed]) -> None:
        self._put_documents()
        keys = [key for key, _ in groupby(done, lambda one: one.key)]
        last = {one.key: one.seq for one in done}
        self.send(self._sql.save_indexed, {**columns(keys), "seqs": [last[key] for key in keys]})

    def unindex(self, key: int) -> None:
        for sql in (
            self._sql.drop_documents,
            self._sql.drop_all_words,
            self._sql.drop_all_substrings,
        ):
            self.send(sql, of(key))

    def tidy_index(self) -> None:
        """The server's own vacuum does it."""

    def reset_index(self, *, substrings: bool | None, forget: bool = False) -> None:
        self.take_time()
        kept = self.fetch(self._sql.search_state)
        wanted = bool(kept and kept[0][0]) if substrings is None else substrings
        self.send(self._sql.empty_index)
        self.send(self._sql.index_from_start)
        self.send(self._sql.save_search_state, {"substrings": wanted})
        if wanted:
            self._index_parts()

    def _index_parts(self) -> None:
        """An index of parts, if pg_trgm is there or may be made; without one all parts are read."""
        installed, schema, may_install = self.fetch(self._sql.trigrams)[0]
        if not installed and not may_install:
            return
        if not installed:
            self.send("CREATE EXTENSION IF NOT EXISTS pg_trgm")
            self.flush()
            _, schema, _ = self.fetch(self._sql.trigrams)[0]
        self.send(self._sql.index_parts.replace("OPCLASS", f'"{schema}".gin_trgm_ops'))

    def index_is_damaged(self, reason: str) -> None:
        self.send(self._sql.save_search_damage, {"damage": reason.replace("\0", " ")})


_DOCUMENT: Final = ("tenants", "sessions", "place", "seq", "first", "at_us", "role", "partial")
_WORDS: Final = ("tenants", "sessions", "place", "reasoning", "piece", "words")
_PARTS: Final = ("tenants", "sessions", "place", "reasoning", "folded")


def _named(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Rows as columns, each with its name."""
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


REBUILD: Final = "writing and reading go on; store.rebuild_search() makes it anew"


def _pieces(words: Sequence[str]) -> Iterator[str]:
    """Words as tsvectors are written, each with its places, in pieces that overlap."""
    for start in range(0, len(words), _PIECE_WORDS):
        places: dict[str, list[str]] = {}
        for place, word in enumerate(words[start : start + _PIECE_WORDS + _OVERLAP_WORDS], 1):
            places.setdefault(word, []).append(str(place))
        yield " ".join(f"'{word}':{','.join(found)}" for word, found in places.items())


def _as_tsquery(phrase: Phrase) -> str:
    """Words are letters and digits, so quoting them is enough."""
    quoted = [f"'{word}'" for word in phrase.words]
    return " <-> ".join(quoted) + (":*" if phrase.prefix else "")


def _as_pattern(text: str) -> str:
    for special in ("\\", "%", "_"):
        text = text.replace(special, f"\\{special}")
    return f"%{text}%"


def _filters(search: Search) -> dict[str, Any]:
    return {
        "tenant": tenant_number(search.tenant),
        "reasoning": search.reasoning,
        "role": None if search.role is None else ROLES.index(search.role),
        "partial": None if search.state is None else search.state == "partial",
        "project": None if search.project is None else to_bytes(search.project),
        "interrupted": search.interrupted,
        "since_us": search.since_us,
        "until_us": search.until_us,
        "limit": search.limit,
    }
