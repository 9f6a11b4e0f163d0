"""The search index in PostgreSQL: words in tsvectors, documents by place beside them.

The words come cut and folded, as in every store, so no dictionary and no parser of PostgreSQL's
decides what is found. Each session has its own mark of how far it is indexed.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from killick.errors import InvalidQuery, SearchDamaged
from killick.journal.codec import CodecError, decode_body
from killick.model.entries import Entry
from killick.search import port
from killick.search.port import Batch, Document, Found, Lineage, Made, Search, Unindexed
from killick.search.query import Either, Every, Phrase, Query, phrases
from killick.search.words import indexed, unbroken
from killick.stores.postgres.connection import StatementRunner
from killick.stores.postgres.statements import columns, filters_of, join, of, split

ROLES: Final = ("user", "assistant", "tool", "system", "summary")
_SESSIONS: Final = 64
"""Sessions that one slice is about, at most."""

_JOINED: Final = 4
"""Phrases that the server may turn into joins: how long it plans grows with their square.

The others are tested on what those find: IS TRUE keeps it from joining them.
"""

_BATCH_BYTES: Final = 4 * 1024 * 1024
_PIECE_WORDS: Final = 2_000
_OVERLAP_WORDS: Final = 16
"""Words that a piece repeats of the one before: phrases of this length are found across a cut."""


class PostgresSearch(StatementRunner):
    """Searches, on a connection that its caller has opened."""

    def whole_body(self, key: int, crc: int, body: bytes, blob: bytes | None) -> bytes:
        """Return a body, wherever it is kept. Raises CodecError if it is not as it was stored."""
        if blob is not None:
            row = self.fetch_one(self._sql.blob, {"tenant": key >> 64, "digest": blob})
            if row is None:
                raise CodecError("its body is missing")
            (body,) = row
        if zlib.crc32(body) != crc:
            raise CodecError("its checksum does not match")
        return body

    def index_behind(self) -> int:
        self._search_state()
        behind: int = self.fetch(self._sql.index_behind)[0][0]
        return behind

    def index_mark(self) -> int:
        """Return 0: every session has a mark of its own, and `take_slice` looks at those."""
        self._search_state()
        return 0

    def has_substrings(self) -> bool:
        return self._search_state()

    def _search_state(self) -> bool:
        states = self.fetch(self._sql.search_state)
        if not states:
            raise SearchDamaged(f"the search index has lost its state; {REBUILD}")
        substrings, damage = states[0]
        if damage is not None:
            raise SearchDamaged(f"the search index is damaged: {damage}; {REBUILD}")
        return bool(substrings)

    def unindexed(self, limit: int) -> list[Unindexed]:
        entries: list[Unindexed] = []
        size = 0
        behind = self.fetch(self._sql.unindexed_sessions, {"limit": min(limit, _SESSIONS)})
        for tenant, session, after in behind:
            key, left = join(tenant, session), limit - len(entries)
            if left <= 0 or size > _BATCH_BYTES:
                break
            wanted = of(key, after=after, through=2**62, limit=left)
            for seq, at_us, crc, body, blob in self.fetch(self._sql.entries, wanted):
                entry = self._readable(key, seq, at_us, crc, body, blob)
                entries.append(Unindexed(len(entries), key, seq, entry))
                size += len(body)
        return entries

    def _readable(
        self, key: int, seq: int, at_us: int, crc: int, body: bytes, blob: bytes | None
    ) -> Entry | None:
        try:
            return Entry(seq, at_us, decode_body(self.whole_body(key, crc, body, blob)))
        except CodecError:
            return None  # a reader of the session is told

    def find_documents(self, search: Search, lineage: Sequence[Lineage] | None) -> Found:
        if isinstance(search.query, str) and not self.has_substrings():
            raise InvalidQuery(
                "this store has no index of parts of words; make one with "
                "store.rebuild_search(substrings=True), or search for word*"
            )
        bindings = {**_filters(search), "lineage": None, "reach": None}
        tenant = bindings["tenant"]
        if lineage is not None:
            bindings["lineage"] = [split(part.key)[1] for part in lineage]
            bindings["reach"] = [part.through for part in lineage]
        leaves = dict[str, str]()
        condition = self._condition(search.query, leaves)
        bindings.update(leaves)
        sql: str = self._sql.search_newest.replace("MATCH", condition)
        if search.order == "best" and not isinstance(search.query, str):
            words = [_as_tsquery(phrase) for phrase in phrases(search.query)]
            bindings["any"] = " | ".join(f"({word})" for word in words)
            bindings.update(best=search.limit, most=port.RANKED_MAX, limit=port.RANKED_MAX + 1)
            rows = self.fetch(self._sql.rank_newest.replace("FOUND", sql), bindings)
            ranked = port.RANKED_MAX if rows and rows[0][2] else None
            return Found([(join(tenant, session), seq) for session, seq, _ in rows], ranked)
        rows = self.fetch(sql, bindings)
        return Found([(join(tenant, session), seq) for session, seq, *_ in rows])

    def _condition(self, query: Query | str, leaves: dict[str, str]) -> str:
        """Return the condition on a document: each phrase is looked for in all of its pieces."""
        match query:
            case Every():
                wanted = [self._condition(term, leaves) for term in query.wanted]
                unwanted = [f"NOT {self._condition(term, leaves)}" for term in query.unwanted]
                return f"({' AND '.join([*wanted, *unwanted])})"
            case Either():
                return f"({' OR '.join(self._condition(term, leaves) for term in query.choices)})"
            case Phrase():
                return self._leaf(self._sql.match_words, _as_tsquery(query), leaves)
            case _:
                return self._leaf(self._sql.match_substring, _as_pattern(query), leaves)

    def _leaf(self, sql: str, wanted: str, leaves: dict[str, str]) -> str:
        name, joined = f"leaf{len(leaves)}", len(leaves) < _JOINED
        leaves[name] = wanted
        condition = sql.replace("LEAF", name)
        return condition if joined else f"{condition} IS TRUE"


class PostgresIndex(PostgresSearch):
    """Indexes, inside of a transaction that writes."""

    writes: int
    documents: dict[tuple[int, int], tuple[int, Document]]

    def send(self, sql: str, bindings: dict[str, Any] | None = None) -> None:
        """Gather a statement whose result is not needed."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send the gathered statements."""
        raise NotImplementedError

    def take_slice(self, batch: Batch) -> Made:
        """Return the entries of sessions that this process was the first to lock."""
        first: dict[int, int] = {}
        for entry, _ in batch.entries:
            first.setdefault(entry.key, entry.seq)
        rows = self.fetch(self._sql.lock_index, columns(sorted(first)))
        reached = {join(tenant, session): seq for tenant, session, seq in rows}
        ours = {key for key, seq in reached.items() if first[key] == seq + 1}
        return [made for made in batch.entries if made[0].key in ours]

    def put_document(self, key: int, document: Document) -> None:
        """Gather a document: a slice is written with a few statements, whatever its size."""
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
        if words:
            self.send(self._sql.put_words, _named(words, _WORDS))
        if parts:
            self.send(self._sql.put_substrings, _named(parts, _PARTS))

    def index_reached(self, done: Sequence[Unindexed]) -> None:
        self._put_documents()
        last = {entry.key: entry.seq for entry in done}
        reached = {**columns([*last]), "seqs": [*last.values()]}
        self.send(self._sql.save_indexed, reached)

    def _unindex(self, key: int) -> None:
        self.send(self._sql.drop_documents, of(key))
        self.send(self._sql.drop_all_words, of(key))
        self.send(self._sql.drop_all_substrings, of(key))

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
        """Make an index of parts, if pg_trgm may be used; without one all parts are read."""
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
    """Turn rows into columns, each with its name."""
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


REBUILD: Final = "writing and reading go on; store.rebuild_search() makes it anew"


def _pieces(words: Sequence[str]) -> Iterator[str]:
    """Write words as tsvectors, each with its positions, in pieces that overlap."""
    for start in range(0, len(words), _PIECE_WORDS):
        positions: dict[str, list[str]] = {}
        for position, word in enumerate(words[start : start + _PIECE_WORDS + _OVERLAP_WORDS], 1):
            positions.setdefault(word, []).append(str(position))
        yield " ".join(f"'{word}':{','.join(at)}" for word, at in positions.items())


def _as_tsquery(phrase: Phrase) -> str:
    """Write a phrase as a tsquery. Words are letters and digits, so quoting them is enough."""
    quoted = [f"'{word}'" for word in phrase.words]
    return " <-> ".join(quoted) + (":*" if phrase.prefix else "")


def _as_pattern(text: str) -> str:
    for special in ("\\", "%", "_"):
        text = text.replace(special, f"\\{special}")
    return f"%{text}%"


def _filters(search: Search) -> dict[str, Any]:
    role = None if search.role is None else ROLES.index(search.role)
    partial = None if search.state is None else search.state == "partial"
    return {**filters_of(search), "role": role, "partial": partial}
