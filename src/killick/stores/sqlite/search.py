"""The search index in SQLite: words in FTS5 tables, documents by number beside them.

Nothing in here may stop a write or a read of anything else: whatever is wrong with the index is
raised as SearchDamaged, and all of it can be dropped and made again.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Final, cast

import apsw

from killick.errors import InvalidQuery, SearchDamaged, SessionDamaged
from killick.journal.codec import CodecError, decode_body, to_bytes
from killick.model.entries import Entry
from killick.search import port
from killick.search.documents import document_of
from killick.search.port import (
    Batch,
    Document,
    Found,
    Lineage,
    Made,
    Search,
    SearchedJournal,
    Unindexed,
)
from killick.search.query import Either, Every, Phrase, Query
from killick.search.words import indexed, unbroken
from killick.stores.sql import load
from killick.stores.sqlite.pages import number_at
from killick.stores.sqlite.rank import add_ranking

SQL: Final = load("killick.stores.sqlite")

_ROLES: Final = ("user", "assistant", "tool", "system", "summary")
_LARGEST: Final = 2**62
_PIECES: Final = 16
"""Pieces of the index that are merged at once; FTS5 takes 4 if it is not told, at most 16."""

_BATCH_BYTES: Final = 4 * 1024 * 1024
"""What a slice holds in memory, about: entries can be large."""

_BY_WORTH: Final = ("ORDER BY", "ORDER BY worth(word.search_words, :documents, :times),")
_NUMBERS: Final = ("SELECT document.session, document.seq", "SELECT word.rowid")
_Table = Callable[[str], str]
"""Makes a statement about the table of words one about another."""

_TABLES: Final = ("search_words", "search_substrings", "search_documents", "search_state")


class SqliteSearch:
    """Searches, on a connection that the database opened."""

    connection: apsw.Connection

    def index_behind(self) -> int:
        with _damage():
            mark, newest = self._mark()
        return max(0, newest - mark)

    def has_substrings(self) -> bool:
        with _damage():
            return bool(self._state()[3])

    def _state(self) -> Any:
        state = self.connection.execute(SQL.search_state).fetchone()
        if state is None:
            raise SearchDamaged(f"the search index has lost its state; {_REBUILD}")
        if state[4] is not None:
            raise SearchDamaged(f"the search index is damaged: {state[4]}; {_REBUILD}")
        return state

    def _mark(self) -> tuple[int, int]:
        """Return the row of the last entry that was indexed, and that of the newest.

        Rows may have been renumbered, or removed and their numbers given out again. The mark is
        taken for what it says only if that row is still the same entry; else all are looked at
        once more, which finds those that are indexed.
        """
        mark, session, seq, _, _, newest = self._state()
        if session and self.connection.execute(SQL.row_of_entry, (session, seq)).get != mark:
            mark = 0
        return mark, newest

    def index_mark(self) -> int:
        with _damage():
            return self._mark()[0]

    def unindexed(self, limit: int) -> list[Unindexed]:
        with _damage():
            mark, newest = self._mark()
        if newest <= mark:
            return []
        try:
            return self._next_rows(mark, limit)
        except apsw.CorruptError:
            last = min(mark + limit, newest)
            return [self._one_row(row) for row in range(mark + 1, last + 1)]

    def _next_rows(self, mark: int, limit: int) -> list[Unindexed]:
        waiting: list[Unindexed] = []
        size = 0
        for row in self.connection.execute(SQL.unindexed, (mark, limit)):
            entry, length = self._unindexed(row)
            waiting.append(entry)
            size += length
            if size > _BATCH_BYTES:
                break
        return waiting

    def _one_row(self, row: int) -> Unindexed:
        """Return an entry near a damaged page of the journal, if it can still be read."""
        try:
            stored = self.connection.execute(SQL.unindexed_one, (row,)).fetchone()
        except apsw.CorruptError:
            stored = None
        return Unindexed(row, 0, 0, None) if stored is None else self._unindexed(stored)[0]

    def _unindexed(self, row: Any) -> tuple[Unindexed, int]:
        """Return an entry that waits, and its size."""
        number, key, seq, at_us, crc, body, blob = row
        entry = None
        try:
            if blob is not None:
                body = self.connection.execute(SQL.blob_by_key, (blob,)).get
            if body is not None and zlib.crc32(body) == crc:
                entry = Entry(seq, at_us, decode_body(body))
        except (CodecError, apsw.CorruptError):
            pass  # reading the session raises
        return Unindexed(number, key, seq, entry), len(body or b"")

    def find_documents(self, search: Search, lineage: Sequence[Lineage] | None) -> Found:
        with _damage():
            if isinstance(search.query, str) and not self.has_substrings():
                raise InvalidQuery(
                    "this store has no index of parts of words; make one with "
                    "store.rebuild_search(substrings=True), or search for word*"
                )
            reach = self._reach(lineage)
            if reach is None:
                return Found([])
            bindings = {**_filters(search), **reach, "words": _compiled(search, search.query)}
            if search.order == "best":
                return self._best(search, bindings)
            return Found(self._found(search, SQL.search_newest, bindings))

    def _found(self, search: Search, sql: str, bindings: dict[str, Any]) -> list[Any]:
        if isinstance(search.query, str):
            sql = _for_substrings(sql)
        return self.connection.execute(sql, bindings).fetchall()

    def _best(self, search: Search, bindings: dict[str, Any]) -> Found:
        """Rank what was found: of very many matches the newest, so that it takes no longer."""
        most, ranked = port.RANKED_MAX, None
        further = {**bindings, "limit": 2, "newer": most - 1}
        numbers = self._found(search, SQL.search_newest.replace(*_NUMBERS), further)
        if len(numbers) > 1:
            ranked, bindings["first"] = most, numbers[0][0]
        leaves = [] if isinstance(search.query, str) else _leaves(search.query)
        times = [1]  # of one alone it does not matter how rare it is
        if len(leaves) > 1:
            times = [self._times(search, leaf, bindings) for leaf in leaves]
        weighed = {"documents": self._documents(bindings), "times": json.dumps(times)}
        sql = SQL.search_newest.replace(*_BY_WORTH)
        add_ranking(self.connection)
        return Found(self._found(search, sql, {**bindings, **weighed}), ranked)

    def _documents(self, bindings: dict[str, Any]) -> int | None:
        """Count the documents that are ranked and those between them; None for all."""
        first: int = bindings["first"]
        last: int = bindings["last"]
        if (first, last) == (0, _LARGEST):
            return None
        newest = self.connection.execute(SQL.newest_document).get
        assert isinstance(newest, int)
        return min(last, newest) - first + 1

    def _times(self, search: Search, leaf: Phrase, bindings: dict[str, Any]) -> int:
        words = {**bindings, "words": _compiled(search, leaf)}
        ((count,),) = self._found(search, SQL.count_matches, words)
        return int(count)

    def _reach(self, lineage: Sequence[Lineage] | None) -> dict[str, Any] | None:
        """Return the sessions to look in, with the range of their documents; None for none."""
        if lineage is None:
            return {"lineage": None, "first": 0, "last": _LARGEST}
        pairs = json.dumps([(session.key, session.through) for session in lineage])
        reach: Any = self.connection.execute(SQL.reach_of_session, (pairs,)).fetchone()
        first, last = reach
        return None if first is None else {"lineage": pairs, "first": first, "last": last}


class SqliteIndex(SqliteSearch):
    """Writes to the index, on the writer's connection, inside a transaction."""

    writes: int
    known_substrings: bool | None = None
    """True if there is an index of parts of words; None until this transaction has looked."""

    def put_document(self, key: int, document: Document) -> None:
        about = (document.seq, document.at_us, _ROLES.index(document.role))
        partial = document.state == "partial"
        with _damage():
            if not self.connection.execute(SQL.may_be_indexed, (key, document.seq)).get:
                return
            stored: Any = self.connection.execute(
                SQL.find_document, (key, document.place)
            ).fetchone()
            if stored is None:
                self._change(SQL.put_document, (key, document.place, *about, partial))
                number = self.connection.last_insert_rowid()
            elif stored[1] < document.seq:
                number = stored[0]
                self._drop_words(key, number, stored[1])
                self._change(SQL.replace_document, (*about, partial, number))
            else:
                return  # it is there, as it is or as something later made it
            for table, texts in self._as_indexed(document):
                self._change(table(SQL.put_words), (number, *texts))

    def _as_indexed(self, document: Document) -> Iterator[tuple[_Table, tuple[str, str]]]:
        """Yield, for each table of words, what it is given of a document."""
        texts = (document.text, document.reasoning)
        yield str, (indexed(texts[0]), indexed(texts[1]))
        if self._with_substrings():
            yield _for_substrings, (unbroken(texts[0]), unbroken(texts[1]))

    def _drop_words(self, key: int, number: int, seq: int) -> None:
        """Take a document's words out of the index: those of the entry that made it."""
        try:
            made = document_of(cast("SearchedJournal", self), key, seq)  # a transaction reads too
        except SessionDamaged as error:
            raise SearchDamaged(f"the words of a damaged entry stay behind; {_REBUILD}") from error
        if made is None:
            raise SearchDamaged(f"the entry of a document is gone; {_REBUILD}")
        for table, texts in self._as_indexed(made):
            self._change(table(SQL.drop_words), (number, *texts))
        self._flush()
        texts = (indexed(made.text), indexed(made.reasoning))
        self._move_separators({word for text in texts for word in text.split()})

    def _move_separators(self, words: set[str]) -> None:
        """Find pages of the index by their first word, where it was the beginning of a lost one."""
        pages: Any = self.connection.execute(SQL.separators, (json.dumps(list(words)),)).fetchall()
        for segment, term, page in pages:
            block = self.connection.execute(SQL.page_of_words, (segment, page)).get
            if block is None:  # the page was merged into another segment, and this one is to go
                self._change(SQL.drop_separator, (segment, term))
                continue
            first = _first_word(block)
            if not first.startswith(term):
                self._change(SQL.move_separator, (first, segment, term))

    def take_slice(self, batch: Batch) -> Made:
        with _damage():
            if self.connection.execute(SQL.pieces_merged).get != _PIECES:
                self._merge_seldom()
        return batch.entries if self.index_mark() == batch.mark else ()

    def _merge_seldom(self) -> None:
        """Let FTS5 merge more pieces of the index at once: it then writes each less often."""
        for setting, pieces in (("automerge", _PIECES), ("crisismerge", 2 * _PIECES)):
            self._change(SQL.merge_seldom, (setting, pieces))
            if self._with_substrings():
                self._change(_for_substrings(SQL.merge_seldom), (setting, pieces))

    def index_reached(self, done: Sequence[Unindexed]) -> None:
        last = done[-1]
        with _damage():
            self._change(SQL.save_search_mark, (last.place, last.key, last.seq))
            self._flush()

    def _flush(self) -> None:
        self._change(SQL.flush_words, ())
        if self._with_substrings():
            self._change(_for_substrings(SQL.flush_words), ())

    def _with_substrings(self) -> bool:
        if self.known_substrings is None:
            self.known_substrings = bool(self._state()[3])
        return self.known_substrings

    def unindex(self, key: int, limit: int) -> bool:
        """Take some documents of an erased session out of the index; True if more are left.

        Its entries are still there: the words are made of them. Raises SearchDamaged, also if the
        words are not known any more: then empty the index.
        """
        with _damage():
            return self._unindex(key, limit)

    def _unindex(self, key: int, limit: int) -> bool:
        mark, session, *_ = self._state()
        if session == key:  # the mark may not lie on an entry that goes
            before = self.connection.execute(SQL.mark_before, (mark, key)).fetchone()
            self._change(SQL.save_search_mark, before or (0, 0, 0))
        documents: Any = self.connection.execute(SQL.documents_of, (key, limit)).fetchall()
        for number, seq in documents:
            self._drop_words(key, number, seq)
            self._change(SQL.drop_document, (number,))
        return len(documents) == limit

    def reset_index(self, *, substrings: bool | None, forget: bool = False) -> None:
        if substrings is None:
            substrings = self._kept_setting()
        self.known_substrings = substrings
        if forget:
            self._forget()
        else:
            with _damage():
                self._drop()
        self._change(_schema(), ())
        self._change(SQL.clear_deleted_words, ())
        if substrings:
            self._change(SQL.create_substrings, ())
            self._change(_for_substrings(SQL.clear_deleted_words), ())
            self._change(SQL.save_substrings, (1,))

    def _kept_setting(self) -> bool:
        """True if there was an index of parts of words, also when the state cannot be read."""
        names = [name for (name,) in self.connection.execute(SQL.search_schema)]
        return "search_substrings" in names

    def _drop(self) -> None:
        # The next erasure clears the pages, in steps: here all of them would be written at once.
        self.connection.pragma("secure_delete", 0)
        try:
            for name in _TABLES:
                self._change(f"DROP TABLE IF EXISTS {name}", ())
        finally:
            self.connection.pragma("secure_delete", 1)

    def _forget(self) -> None:
        """Drop tables that are too damaged for DROP; their pages are lost until a VACUUM.

        A DROP that failed would leave a transaction in which nothing works any more, this neither.
        """
        self.connection.pragma("writable_schema", 1)
        try:
            self._change(SQL.forget_search_schema, ())
            self._change(SQL.note_lost_pages, ())
        finally:
            self.connection.execute("PRAGMA writable_schema = RESET")

    def index_is_damaged(self, reason: str) -> None:
        with _damage():
            self._change(SQL.save_search_damage, (reason,))

    def _change(self, sql: str, bindings: Sequence[Any]) -> None:
        self.writes += 1
        self.connection.execute(sql, bindings)


_REBUILD: Final = "writing and reading go on; store.rebuild_search() makes it anew"


@contextmanager
def _damage() -> Iterator[None]:
    """Raise SQLite's errors of a broken index as SearchDamaged; a full disk stays one."""
    try:
        yield
    except (apsw.CorruptError, apsw.SQLError, apsw.FormatError, apsw.MismatchError) as error:
        if "no such table: search_state" in str(error):
            message = "this store has no search index; open it where it may be written"
        else:
            message = f"the search index is damaged: {error}"
        raise SearchDamaged(f"{message}; {_REBUILD}") from error


def _schema() -> str:
    return files("killick.stores.sqlite").joinpath("search_schema.sql").read_text(encoding="utf-8")


def _first_word(block: bytes) -> bytes:
    """Return the first word on a page of FTS5's index: its place stands behind the page's words."""
    offset, _ = number_at(block, int.from_bytes(block[2:4], "big"))
    length, offset = number_at(block, offset)
    return block[offset : offset + length]


def _for_substrings(sql: str) -> str:
    return sql.replace("search_words", "search_substrings")


def _compiled(search: Search, query: Query | str) -> str:
    """Compile a query for FTS5. Every word is quoted, so none is taken for an operator."""
    if isinstance(query, str):
        quoted = query.replace('"', '""')
        compiled = f'"{quoted}"'
    else:
        compiled = _expression(query)
    return compiled if search.reasoning else f"{{text}} : ({compiled})"


def _expression(query: Query) -> str:
    match query:
        case Phrase():
            return f'"{" ".join(query.words)}"' + ("*" if query.prefix else "")
        case Either():
            return f"({' OR '.join(map(_expression, query.choices))})"
        case Every():
            wanted = f"({' AND '.join(map(_expression, query.wanted))})"
            if not query.unwanted:
                return wanted
            return f"({wanted} NOT ({' OR '.join(map(_expression, query.unwanted))}))"


def _leaves(query: Query) -> list[Phrase]:
    """Return the phrases of a query as FTS5 numbers them, with those that are not wanted."""
    match query:
        case Phrase():
            return [query]
        case Either():
            return [leaf for part in query.choices for leaf in _leaves(part)]
        case Every():
            return [leaf for part in (*query.wanted, *query.unwanted) for leaf in _leaves(part)]


def _filters(search: Search) -> dict[str, Any]:
    return {
        "tenant": to_bytes(search.tenant),
        "role": None if search.role is None else _ROLES.index(search.role),
        "partial": None if search.state is None else search.state == "partial",
        "project": None if search.project is None else to_bytes(search.project),
        "interrupted": search.interrupted,
        "since_us": search.since_us,
        "until_us": search.until_us,
        "limit": search.limit,
        "newer": 0,
    }
